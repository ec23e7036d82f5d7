package netrule

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Scheme is what a target is spoken to with. The zero value is unknown.
type Scheme uint8

const (
	// SchemeUnknown is a bare host: no schemes dimension matches it.
	SchemeUnknown Scheme = iota
	// SchemeHTTP is a request in absolute-form, in clear.
	SchemeHTTP
	// SchemeHTTPS is a TLS connection.
	SchemeHTTPS
	// SchemeTunnel is a CONNECT or SOCKS tunnel before its first byte. It is presumed to be https; an allow rule for http
	// alone matches too, and then the bytes must be HTTP.
	SchemeTunnel
	// SchemeOther is a tunnel that carries neither: no schemes dimension matches it.
	SchemeOther
)

// String returns "http", "https", "other" or "". A tunnel is called by its presumption, https.
func (s Scheme) String() string {
	switch s {
	case SchemeHTTP:
		return "http"
	case SchemeHTTPS, SchemeTunnel:
		return "https"
	case SchemeOther:
		return "other"
	default:
		return ""
	}
}

// ParseScheme reads "http" or "https", in lower case; anything else gives SchemeUnknown and false.
func ParseScheme(s string) (Scheme, bool) {
	switch s {
	case "http":
		return SchemeHTTP, true
	case "https":
		return SchemeHTTPS, true
	default:
		return SchemeUnknown, false
	}
}

func (s Scheme) defaultPort() uint16 {
	switch s {
	case SchemeHTTP:
		return 80
	case SchemeHTTPS, SchemeTunnel:
		return 443
	default:
		return 0
	}
}

// Target is where a connection wants to go, in canonical form. It is comparable; the zero Target is invalid and no rule
// allows it. Make one with a Parse function.
type Target struct {
	// Scheme is unknown for a bare host.
	Scheme Scheme
	// Host is a lower-case name without its root dot, or the canonical text of Addr, never with brackets.
	Host string
	// Addr is valid when the host is a literal address; a mapped one is in its IPv4 form.
	Addr netip.Addr
	// Port is 0 when it is not known, as for a bare host in a tool call.
	Port uint16
}

// IsLiteral reports whether the host is an address.
func (t Target) IsLiteral() bool { return t.Addr.IsValid() }

// IsLocalhost reports whether the host is localhost or a name under it, which are loopback and never looked up
// (RFC 6761 §6.3).
func (t Target) IsLocalhost() bool { return !t.IsLiteral() && isLocalhost(t.Host) }

// Authority gives host:port with brackets around IPv6, or the host alone when the port is unknown (RFC 3986 §3.2).
func (t Target) Authority() string {
	host := t.Host
	if t.Addr.Is6() {
		host = "[" + host + "]"
	}
	if t.Port == 0 {
		return host
	}
	return host + ":" + strconv.Itoa(int(t.Port))
}

// String gives the authority, behind the scheme where it is plain HTTP.
func (t Target) String() string {
	if t.Scheme == SchemeHTTP {
		return "http://" + t.Authority()
	}
	return t.Authority()
}

// TargetError is a target that is refused before anything is looked up.
type TargetError struct {
	Input string // as it was given, raw: escape it before printing
	Why   string
}

func (e *TargetError) Error() string { return fmt.Sprintf("bad target %.80q: %s", e.Input, e.Why) }

// ParseConnect reads the authority-form of CONNECT, host:port (RFC 9112 §3.2.3). The port is required; the scheme
// is SchemeTunnel. Errors are of type *TargetError.
func ParseConnect(authority string) (Target, error) {
	return parseAuthority(authority, authority, SchemeTunnel, false)
}

// ParseHTTPAuthority reads what stands between "http://" and the next "/", "?" or "#" of an absolute-form request
// (RFC 9112 §3.2.2). A missing or empty port means 80; user-info is refused. Errors are of type *TargetError.
func ParseHTTPAuthority(authority string) (Target, error) {
	return parseAuthority(authority, authority, SchemeHTTP, true)
}

// ParseAbsolute reads the absolute-form of a request, scheme://authority with whatever follows (RFC 9112 §3.2.2), and
// gives the rest behind the authority as it stands. Scheme and host are case-insensitive (RFC 3986 §6.2.2.1); schemes
// other than http and https, a missing "//" and an empty authority are errors, of type *TargetError.
func ParseAbsolute(uri string) (t Target, rest string, err error) {
	colon := strings.Index(uri, "://")
	if colon < 0 {
		return Target{}, "", &TargetError{uri, "no absolute http:// URL"}
	}
	scheme, ok := ParseScheme(lowerASCII(uri[:colon]))
	if !ok {
		return Target{}, "", &TargetError{uri, "a scheme other than http"}
	}
	authority := uri[colon+len("://"):]
	if end := strings.IndexAny(authority, "/?#"); end >= 0 {
		authority, rest = authority[:end], authority[end:]
	}
	t, err = parseAuthority(uri, authority, scheme, true)
	return t, rest, err
}

// TargetFromName makes the target of a name, as SOCKS5 gives it. The text of an address is that address. Errors are of
// type *TargetError.
func TargetFromName(name string, port uint16) (Target, error) {
	if port == 0 {
		return Target{}, &TargetError{name, "no port"}
	}
	host, addr, err := canonicalHost(name)
	if err != nil {
		return Target{}, &TargetError{name, err.Error()}
	}
	return Target{Scheme: SchemeTunnel, Host: host, Addr: addr, Port: port}, nil
}

// TargetFromAddr makes the target of a literal address, as SOCKS5 gives it. Mapped addresses become their IPv4 form.
func TargetFromAddr(addr netip.Addr, port uint16) (Target, error) {
	if !addr.IsValid() || addr.Zone() != "" || port == 0 {
		return Target{}, &TargetError{addr.String(), "no address with a port"}
	}
	addr = addr.Unmap()
	return Target{Scheme: SchemeTunnel, Host: addr.String(), Addr: addr, Port: port}, nil
}

// parseAuthority is the one parser of the wire. input is what errors quote.
func parseAuthority(input, authority string, scheme Scheme, portOptional bool) (Target, error) {
	fail := func(why string) (Target, error) { return Target{}, &TargetError{input, why} }
	host, port, hasPort, err := splitPort(authority)
	if err != nil {
		return fail(err.Error())
	}
	t := Target{Scheme: scheme}
	switch {
	case hasPort && (port != "" || !portOptional):
		if t.Port, err = parsePort(port); err != nil {
			return fail(err.Error())
		}
	case !portOptional:
		return fail("a port is required, as in host:443")
	default:
		t.Port = scheme.defaultPort()
	}
	if inner, ok := strings.CutPrefix(host, "["); ok {
		if t.Addr, err = parseIPv6(strings.TrimSuffix(inner, "]")); err == nil {
			t.Host = t.Addr.String()
		}
	} else {
		t.Host, t.Addr, err = canonicalHost(host)
	}
	if err != nil {
		return fail(err.Error())
	}
	return t, nil
}

// splitPort cuts host and port. The host keeps its brackets; outside of them at most one colon may occur.
func splitPort(authority string) (host, port string, hasPort bool, err error) {
	rest := authority
	if strings.HasPrefix(authority, "[") {
		end := strings.IndexByte(authority, ']')
		if end < 0 {
			return "", "", false, hostError("an unclosed bracket")
		}
		host, rest = authority[:end+1], authority[end+1:]
		if rest != "" && rest[0] != ':' {
			return "", "", false, hostError("text behind a bracket")
		}
	}
	colon := strings.IndexByte(rest, ':')
	if colon < 0 {
		return host + rest, "", false, nil
	}
	if strings.IndexByte(rest[colon+1:], ':') >= 0 {
		return "", "", false, hostError("more than one colon (an IPv6 address needs brackets)")
	}
	return host + rest[:colon], rest[colon+1:], true, nil
}

// parsePort takes decimal digits without sign or leading zero, 1 to 65535.
func parsePort(s string) (uint16, error) {
	if !digits(s) || s[0] == '0' {
		return 0, hostError("a port that is no number from 1 to 65535")
	}
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil {
		return 0, hostError("a port that is no number from 1 to 65535")
	}
	return uint16(n), nil
}
