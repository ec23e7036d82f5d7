package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"dshproxy/rules/live"
	"dshproxy/rules/tree"
	"dshproxy/upstream"

	"gopkg.in/yaml.v3"
)

// upstreamSettings say which parent proxies there are.
type upstreamSettings struct {
	proxy           string // off, inherit or a URL
	routes          []upstreamRoute
	bypass          []string
	resolve         string
	only            bool
	credentialsFile string
	caFile          string
}

// upstreamRoute sends some domains through a parent of their own.
type upstreamRoute struct {
	domains []string
	proxy   string // off or a URL
}

const upstreamHint = "off, inherit, or http://HOST:PORT, https://… or socks5://…"

// parentValue is off or a URL of a parent proxy, or inherit where that is known.
type parentValue struct {
	field   *string
	inherit bool
}

// set takes it from a variable, where every process of the user could read a password.
func (v *parentValue) set(s string) error {
	if strings.Contains(s, "@") {
		return errors.New("credentials stand in the settings file or in upstreamCredentialsFile")
	}
	return v.take(s)
}

func (v *parentValue) take(s string) error {
	if s != "off" && (s != "inherit" || !v.inherit) {
		if _, err := upstream.ParseParent(s); err != nil {
			return err
		}
	}
	*v.field = s
	return nil
}

func (v *parentValue) decode(d decoder, path string, n *yaml.Node) error {
	r := tree.Resolve(n)
	if r.Kind != tree.String {
		return d.fail(n, upstreamHint, "%s: want text, not %s", path, r.Kind)
	}
	if err := v.take(r.Text); err != nil {
		return d.fail(n, upstreamHint, "%s: %v", path, err)
	}
	return nil
}

// String masks a password.
func (v *parentValue) String() string {
	if p, err := upstream.ParseParent(*v.field); err == nil {
		return p.String()
	}
	return *v.field
}

func (v *parentValue) schema() map[string]any {
	words := "off"
	if v.inherit {
		words = "off|inherit"
	}
	return map[string]any{"type": "string", "pattern": "^(" + words + "|([Hh][Tt][Tt][Pp][Ss]?|[Ss][Oo][Cc][Kk][Ss]5[Hh]?)://[^ ]+)$"}
}

// routesValue is a list of mappings with domains and proxy.
type routesValue struct {
	fileOnly
	field *[]upstreamRoute
}

func (r *upstreamRoute) keys() []setting {
	return []setting{
		{"domains", (*namesValue)(&r.domains), "hosts: x and below, *.x below only, =x exact, addresses, networks, * for all; each may have a port"},
		{"proxy", &parentValue{field: &r.proxy}, "off for a direct connection, or the URL of a parent proxy"},
	}
}

func (v *routesValue) decode(d decoder, path string, n *yaml.Node) error {
	var out []upstreamRoute
	err := d.list(path, "a list of mappings with domains and proxy", n, func(path string, n *yaml.Node) error {
		var r upstreamRoute
		has, err := d.mapping(path, n, r.keys())
		if err != nil {
			return err
		}
		if !has["domains"] || !has["proxy"] {
			return d.fail(n, "", "%s: needs domains and proxy", path)
		}
		if _, err := upstream.NewChain(nil).WithRoutes(upstream.Route{Domains: r.domains}); err != nil {
			return d.fail(n, "", "%s: %v", path, err)
		}
		out = append(out, r)
		return nil
	})
	if err == nil {
		*v.field = out
	}
	return err
}

func (v *routesValue) String() string {
	var out []string
	for _, r := range *v.field {
		out = append(out, strings.Join(r.domains, " ")+" via "+(&parentValue{field: &r.proxy}).String())
	}
	return "[" + strings.Join(out, ", ") + "]"
}

func (v *routesValue) schema() map[string]any {
	return map[string]any{"type": "array", "items": mappingSchema((&upstreamRoute{}).keys(), "domains", "proxy")}
}

// chain gives the parents of the settings; nil is none. It reads the files that the settings name.
func (u *upstreamSettings) chain() (*upstream.Chain, error) {
	if u.proxy == "off" && len(u.routes) == 0 {
		return nil, nil
	}
	c, err := u.base()
	if err != nil {
		return nil, err
	}
	bypass, err := upstream.ParseBypass(u.bypass...)
	if err != nil {
		return nil, fmt.Errorf("network.upstreamBypass: %w", err)
	}
	c = c.WithBypass(bypass)
	for _, r := range u.routes {
		route := upstream.Route{Domains: r.domains}
		if r.proxy != "off" {
			if route.Parent, err = u.parent(r.proxy); err != nil {
				return nil, err
			}
		}
		if c, err = c.WithRoutes(route); err != nil {
			return nil, fmt.Errorf("network.upstreamRoutes: %w", err)
		}
	}
	return c, nil
}

func (u *upstreamSettings) base() (*upstream.Chain, error) {
	switch u.proxy {
	case "off":
		return upstream.NewChain(nil), nil
	case "inherit":
		c, err := upstream.Inherit(os.LookupEnv)
		if err != nil {
			return nil, fmt.Errorf("network.upstreamProxy: inherit: %w", err)
		}
		return c, nil
	default:
		p, err := u.parent(u.proxy)
		return upstream.NewChain(p), err
	}
}

// parent makes a parent of its URL and of the files with credentials and authorities.
func (u *upstreamSettings) parent(text string) (*upstream.Parent, error) {
	p, err := upstream.ParseParent(text)
	if err != nil {
		return nil, fmt.Errorf("network.upstreamProxy: %w", err)
	}
	if u.credentialsFile != "" {
		secret, err := readToken(u.credentialsFile)
		if err != nil {
			return nil, fmt.Errorf("network.upstreamCredentialsFile: %w", err)
		}
		if p, err = p.WithCredentials(secret); err != nil {
			return nil, fmt.Errorf("network.upstreamCredentialsFile: %w", err)
		}
	}
	if u.caFile != "" {
		pool, err := readAuthorities(u.caFile)
		if err != nil {
			return nil, fmt.Errorf("network.upstreamCAFile: %w", err)
		}
		p.TLS = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return p, nil
}

// maxPEM bounds a file of certificates or keys, in bytes.
const maxPEM = 1 << 20

// readAuthorities reads certificates that are to be trusted, from a file that nobody else can change.
func readAuthorities(path string) (*x509.CertPool, error) {
	if err := live.CheckOwner(path); err != nil {
		return nil, err
	}
	text, err := live.ReadNamed(path, maxPEM)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s: no certificate in PEM", path)
	}
	return pool, nil
}
