package upstream

import (
	"net/netip"
	"strings"
)

// pattern is one entry of NO_PROXY, or of the domains of a route. The zero value matches nothing.
type pattern struct {
	kind   patternKind
	name   string
	prefix netip.Prefix
	port   uint16 // 0 is every port
}

type patternKind uint8

const (
	matchNothing patternKind = iota
	matchAll                 // *
	matchExact               // =name
	matchDomain              // name: itself and its subdomains
	matchBelow               // *.name or .name: its subdomains only
	matchPrefix              // an address or CIDR: literal targets in it
)

// parsePattern reads *, =name, name, *.name, .name, an address or a CIDR, each with :port behind it or without. An IPv6
// address or CIDR with a port stands in brackets.
func parsePattern(text string) (pattern, error) {
	host, port, err := cutPatternPort(text)
	if err != nil {
		return pattern{}, err
	}
	p := pattern{port: port}
	if host == "*" {
		p.kind = matchAll
		return p, nil
	}
	if prefix, ok, err := parsePrefix(host); ok || err != nil {
		p.kind, p.prefix = matchPrefix, prefix
		return p, err
	}
	p.kind = matchDomain
	for _, form := range []struct {
		before string
		kind   patternKind
	}{{"=", matchExact}, {"*.", matchBelow}, {".", matchBelow}} {
		if rest, ok := strings.CutPrefix(host, form.before); ok {
			host, p.kind = rest, form.kind
			break
		}
	}
	p.name, err = canonicalName(host)
	return p, err
}

// cutPatternPort takes brackets and the port away. Two colons without brackets are an IPv6 address.
func cutPatternPort(text string) (host string, port uint16, err error) {
	host = text
	if inner, ok := strings.CutPrefix(text, "["); ok {
		inner, rest, closed := strings.Cut(inner, "]")
		if !closed || !strings.Contains(inner, ":") || rest != "" && rest[0] != ':' {
			return "", 0, textError("a bracket without an IPv6 address")
		}
		host, text = inner, rest
	} else if strings.Count(text, ":") != 1 {
		return host, 0, nil
	}
	if colon := strings.IndexByte(text, ':'); colon >= 0 {
		if text == host {
			host = host[:colon]
		}
		port, err = parsePort(text[colon+1:])
	}
	return host, port, err
}

// parsePrefix reads an address or a CIDR; ok is false for what is neither. Bits behind the length are masked, and the
// mapped form of IPv4 becomes IPv4.
func parsePrefix(text string) (p netip.Prefix, ok bool, err error) {
	if !strings.Contains(text, "/") {
		addr, err := parseAddr(text)
		if err != nil && strings.Contains(text, ":") {
			return p, false, textError("no IPv6 address")
		}
		return netip.PrefixFrom(addr, addr.BitLen()), err == nil, nil
	}
	p, err = netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, false, textError("no CIDR")
	}
	if p.Addr().Is4In6() {
		if p.Bits() < 96 {
			return netip.Prefix{}, false, textError("a mapped CIDR that is shorter than /96")
		}
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked(), true, nil
}

// subject is a target that patterns are held against: an address without zone, or a canonical name.
type subject struct {
	host string
	addr netip.Addr
	port uint16
}

// newSubject refuses what is not canonical, which no pattern may match: a host like "::1%25.example.com" is not under
// example.com.
func newSubject(host string, addr netip.Addr, port uint16) (subject, bool) {
	if addr.IsValid() {
		return subject{addr: addr.Unmap(), port: port}, addr.Zone() == ""
	}
	name, err := canonicalName(host)
	return subject{host: host, port: port}, err == nil && name == host
}

func (s subject) isLoopback() bool { return s.addr.IsLoopback() || isLocalhost(s.host) }

func (p *pattern) matches(s subject) bool {
	if p.port != 0 && p.port != s.port {
		return false
	}
	switch p.kind {
	case matchAll:
		return true
	case matchPrefix:
		return p.prefix.Contains(s.addr)
	case matchExact:
		return s.host == p.name
	case matchDomain:
		return s.host == p.name || isBelow(s.host, p.name)
	case matchBelow:
		return isBelow(s.host, p.name)
	default:
		return false
	}
}

func isBelow(host, name string) bool {
	rest, ok := strings.CutSuffix(host, name)
	return ok && strings.HasSuffix(rest, ".")
}
