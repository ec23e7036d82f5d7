package upstream

import (
	"net/netip"
	"strconv"
	"strings"
)

// textError is what is wrong with a setting. It never quotes the text: a parent's URL may hold a password anywhere.
type textError string

func (e textError) Error() string { return string(e) }

const (
	maxName  = 253 // octets of a name without its root dot, RFC 1035 §2.3.4
	maxLabel = 63
)

// parseHost reads the host of a setting: a name, an IPv4 literal, or an IPv6 literal in brackets.
func parseHost(s string) (string, netip.Addr, error) {
	if inner, ok := strings.CutPrefix(s, "["); ok {
		inner, closed := strings.CutSuffix(inner, "]")
		addr, err := parseAddr(inner)
		if err != nil || !closed || !strings.Contains(inner, ":") {
			return "", netip.Addr{}, textError("a bracket without an IPv6 address")
		}
		return addr.String(), addr, nil
	}
	if addr, err := parseAddr(s); err == nil && !strings.Contains(s, ":") {
		return addr.String(), addr, nil
	}
	name, err := canonicalName(s)
	return name, netip.Addr{}, err
}

// parseAddr reads a literal without brackets. A zone is refused, a mapped address becomes its IPv4 form.
func parseAddr(s string) (netip.Addr, error) {
	addr, err := netip.ParseAddr(s)
	if err != nil || addr.Zone() != "" {
		return netip.Addr{}, textError("no address")
	}
	return addr.Unmap(), nil
}

// canonicalName folds a name to lower case and takes its root dot away. What an IPv4 parser somewhere would read as an
// address is no name.
func canonicalName(s string) (string, error) {
	name := strings.TrimSuffix(s, ".")
	switch {
	case name == "":
		return "", textError("an empty host")
	case len(name) > maxName:
		return "", textError("a name of over 253 bytes")
	}
	for i := range len(name) {
		if !isNameByte(name[i]) {
			return "", textError("a byte that no host name has (write international names in their xn-- form)")
		}
	}
	name = strings.ToLower(name)
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > maxLabel || label[0] == '-' || label[len(label)-1] == '-' {
			return "", textError("a malformed host name")
		}
	}
	if endsInNumber(name) {
		return "", textError("a last label that is a number, but no IPv4 address")
	}
	return name, nil
}

func isNameByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.'
}

func endsInNumber(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	if strings.Trim(last, "0123456789") == "" {
		return true
	}
	hex, ok := strings.CutPrefix(last, "0x")
	return ok && strings.Trim(hex, "0123456789abcdef") == ""
}

func isLocalhost(host string) bool {
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// parsePort takes decimal digits without sign or leading zero, 1 to 65535.
func parsePort(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 || s[0] == '0' || s[0] == '+' {
		return 0, textError("the port is no number from 1 to 65535")
	}
	return uint16(n), nil
}

// endpoint is what a parent is asked to connect to: an address, or a canonical name when addr is invalid.
type endpoint struct {
	host string
	addr netip.Addr
	port uint16
}

// newEndpoint refuses whatever is not canonical, for it becomes part of a message to the parent.
func newEndpoint(host string, port uint16) (endpoint, error) {
	if port == 0 {
		return endpoint{}, textError("a target without a port")
	}
	if addr, err := parseAddr(host); err == nil {
		return endpoint{addr: addr, port: port}, nil
	}
	name, err := canonicalName(host)
	if err != nil || name != host {
		return endpoint{}, textError("a target that is not canonical")
	}
	return endpoint{host: host, port: port}, nil
}

// authority gives host:port, with brackets around IPv6 (RFC 9110 §9.3.6).
func (e endpoint) authority() string {
	if e.addr.IsValid() {
		return netip.AddrPortFrom(e.addr, e.port).String()
	}
	return e.host + ":" + strconv.Itoa(int(e.port))
}
