package upstream

import (
	"fmt"
	"strings"
)

// Inherit makes a chain of the proxy variables of an environment, as os.LookupEnv gives them. For plain HTTP it takes
// the first that is not empty of http_proxy, HTTP_PROXY, all_proxy and ALL_PROXY; for tunnels https_proxy, HTTPS_PROXY,
// all_proxy, ALL_PROXY, http_proxy and HTTP_PROXY; the bypass is no_proxy or NO_PROXY. A value without a scheme is an
// http:// one. Without any of them nothing is chained. Errors name the variable and never quote a proxy's value.
func Inherit(lookup func(string) (string, bool)) (*Chain, error) {
	plain := []string{"http_proxy", "HTTP_PROXY"}
	all := []string{"all_proxy", "ALL_PROXY"}
	tunnel := []string{"https_proxy", "HTTPS_PROXY"}
	httpName, httpValue := firstOf(lookup, plain, all)
	httpsName, httpsValue := firstOf(lookup, tunnel, all, plain)
	c := &Chain{}
	var err error
	if c.http, err = parseInherited(httpName, httpValue); err != nil {
		return nil, err
	}
	if c.https = c.http; httpsValue != httpValue {
		if c.https, err = parseInherited(httpsName, httpsValue); err != nil {
			return nil, err
		}
	}
	name, value := firstOf(lookup, []string{"no_proxy", "NO_PROXY"})
	if c.bypass, err = ParseBypass(value); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return c, nil
}

// firstOf gives the first variable that is not empty.
func firstOf(lookup func(string) (string, bool), groups ...[]string) (name, value string) {
	for _, group := range groups {
		for _, name := range group {
			if value, ok := lookup(name); ok && value != "" {
				return name, value
			}
		}
	}
	return "", ""
}

func parseInherited(name, value string) (*Parent, error) {
	if value == "" {
		return nil, nil
	}
	if !strings.Contains(value, "://") {
		value = "http://" + value
	}
	p, err := ParseParent(value)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return p, nil
}
