package netrule

import (
	"net/netip"
	"strings"
)

// ParseURL reads a URL as a browser does (WHATWG URL), or a bare host or host:port. It serves tool calls and explain,
// where the text is what some other program will parse its own, lenient way; the wire has ParseConnect and
// ParseHTTPAuthority. The port of a bare host is 0, its scheme unknown. Errors are of type *TargetError.
func ParseURL(text string) (Target, error) {
	trimmed := strings.TrimFunc(text, func(r rune) bool { return r <= ' ' })
	if strings.ContainsAny(trimmed, " \t\r\n\f\v") {
		return Target{}, &TargetError{text, "white space inside"}
	}
	scheme, rest, ok := cutScheme(trimmed)
	if !ok {
		return parseBare(text, trimmed)
	}
	rest = strings.TrimLeft(rest, `/\`)
	if end := strings.IndexAny(rest, `/\?#`); end >= 0 {
		rest = rest[:end]
	}
	rest = rest[strings.LastIndexByte(rest, '@')+1:]
	return parseBrowserAuthority(text, rest, scheme)
}

// cutScheme takes "http:" or "https:" off, in any case.
func cutScheme(s string) (Scheme, string, bool) {
	colon := strings.IndexByte(s, ':')
	if colon < 0 {
		return SchemeUnknown, s, false
	}
	scheme, ok := ParseScheme(strings.ToLower(s[:colon]))
	return scheme, s[colon+1:], ok
}

func parseBrowserAuthority(input, authority string, scheme Scheme) (Target, error) {
	fail := func(why string) (Target, error) { return Target{}, &TargetError{input, why} }
	t := Target{Scheme: scheme, Port: scheme.defaultPort()}
	// An IPv6 address that lost its brackets is read as one, as the rule format has it.
	if addr, err := netip.ParseAddr(authority); err == nil && addr.Is6() && addr.Zone() == "" {
		t.Addr = addr.Unmap()
		t.Host = t.Addr.String()
		return t, nil
	}
	host, port, hasPort, err := splitPort(authority)
	if err != nil {
		return fail(err.Error())
	}
	if hasPort && port != "" {
		// A browser takes leading zeros in a port.
		if t.Port, err = parsePort(strings.TrimLeft(port, "0")); err != nil {
			return fail(err.Error())
		}
	}
	if inner, ok := strings.CutPrefix(host, "["); ok {
		if t.Addr, err = parseIPv6(strings.TrimSuffix(inner, "]")); err == nil {
			t.Host = t.Addr.String()
		}
	} else {
		t.Host, t.Addr, err = browserHost(host)
	}
	if err != nil {
		return fail(err.Error())
	}
	return t, nil
}

// parseBare reads host, host:port or an IPv6 address with or without brackets: no scheme, and no port unless given.
func parseBare(input, s string) (Target, error) {
	if s == "" {
		return Target{}, &TargetError{input, "empty"}
	}
	if strings.ContainsAny(s, `/\?#@`) {
		return Target{}, &TargetError{input, "neither an http(s) URL nor host:port"}
	}
	return parseBrowserAuthority(input, s, SchemeUnknown)
}
