package netrule

import (
	"net/netip"
	"strings"

	"golang.org/x/net/idna"
)

const (
	maxName  = 253 // octets of a name without its root dot, RFC 1035 §2.3.4
	maxLabel = 63
)

// hostError says what is wrong with a host, without naming it: callers quote the input once.
type hostError string

func (e hostError) Error() string { return string(e) }

// canonicalHost reads a host as it stands on the wire, without brackets. It gives the canonical name, or the address
// when the host is a strict IPv4 literal. Only ASCII letters, digits, "-", "_" and "." may occur.
func canonicalHost(host string) (string, netip.Addr, error) {
	none := netip.Addr{}
	for i := 0; i < len(host); i++ {
		if !isHostByte(host[i]) {
			return "", none, hostError("a byte that no host name has")
		}
	}
	host = lowerASCII(host)
	name := strings.TrimSuffix(host, ".")
	if err := checkName(name); err != nil {
		return "", none, err
	}
	if endsInNumber(name) {
		addr, err := netip.ParseAddr(host)
		if err != nil || !addr.Is4() {
			return "", none, hostError("a last label that is a number, but no dotted quad")
		}
		return addr.String(), addr, nil
	}
	return name, none, nil
}

func isHostByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.'
}

func lowerASCII(s string) string {
	for i := 0; i < len(s); i++ {
		if 'A' <= s[i] && s[i] <= 'Z' {
			return strings.ToLower(s) // only ASCII gets here
		}
	}
	return s
}

// checkName tests the labels of a lower-case name whose root dot is gone (RFC 1035 §2.3.1 with "_", RFC 5890).
func checkName(name string) error {
	if name == "" {
		return hostError("an empty host")
	}
	if len(name) > maxName {
		return hostError("a name of over 253 bytes")
	}
	for rest, more := name, true; more; {
		var label string
		label, rest, more = strings.Cut(rest, ".")
		switch {
		case label == "":
			return hostError("an empty label")
		case len(label) > maxLabel:
			return hostError("a label of over 63 bytes")
		case label[0] == '-' || label[len(label)-1] == '-':
			return hostError("a label that starts or ends with -")
		case strings.HasPrefix(label, "xn--") && !roundTrips(label):
			return hostError("an xn-- label that is no valid IDNA")
		}
	}
	return nil
}

// endsInNumber tells the names that an IPv4 parser somewhere would take for an address (WHATWG URL, "ends in a number").
func endsInNumber(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	if digits(last) {
		return true
	}
	hex, ok := strings.CutPrefix(last, "0x")
	return ok && strings.Trim(hex, "0123456789abcdef") == ""
}

func digits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// labelIDNA is IDNA 2008 non-transitional, as browsers use it, for one label. The whole-name call of x/net/idna fails
// on "_" and lets empty labels pass, so names are cut into labels first.
func labelIDNA() *idna.Profile {
	return idna.New(idna.MapForLookup(), idna.Transitional(false), idna.BidiRule(), idna.CheckJoiners(true),
		idna.CheckHyphens(false), idna.StrictDomainName(false), idna.VerifyDNSLength(false))
}

func roundTrips(label string) bool {
	p := labelIDNA()
	unicode, err := p.ToUnicode(label)
	if err != nil || isASCII(unicode) {
		return false
	}
	again, err := p.ToASCII(unicode)
	return err == nil && again == label
}

func isASCII(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

// browserHost reads a host as a browser does (WHATWG URL, host parser): percent-decoding, IDNA mapping, full-width
// folding and the number forms of IPv4; the result then passes the checks of the wire. Brackets are the caller's.
func browserHost(host string) (string, netip.Addr, error) {
	none := netip.Addr{}
	host, err := percentDecode(host)
	if err != nil {
		return "", none, err
	}
	if host, err = mapLabels(host); err != nil {
		return "", none, err
	}
	// However many root dots a text has, whoever reads it leniently drops them all.
	host = strings.TrimRight(host, ".")
	if name := host; name != "" && endsInNumber(name) {
		addr, ok := parseNumberIPv4(name)
		if !ok {
			return "", none, hostError("a last label that is a number, but no IPv4 address")
		}
		return addr.String(), addr, nil
	}
	return canonicalHost(host)
}

func percentDecode(s string) (string, error) {
	if strings.IndexByte(s, '%') < 0 {
		return s, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b.WriteByte(s[i])
			continue
		}
		if i+2 >= len(s) {
			return "", hostError("a cut percent-escape")
		}
		hi, lo := unhex(s[i+1]), unhex(s[i+2])
		if hi < 0 || lo < 0 {
			return "", hostError("a broken percent-escape")
		}
		b.WriteByte(byte(hi<<4 | lo))
		i += 2
	}
	return b.String(), nil
}

func unhex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// mapLabels brings a name to ASCII, label by label.
func mapLabels(host string) (string, error) {
	if isASCII(host) {
		return lowerASCII(host), nil
	}
	host = strings.NewReplacer("\u3002", ".", "\uff0e", ".", "\uff61", ".").Replace(host)
	labels := strings.Split(host, ".")
	p := labelIDNA()
	for i, label := range labels {
		if isASCII(label) {
			labels[i] = lowerASCII(label)
			continue
		}
		mapped, err := p.ToASCII(label)
		if err != nil {
			return "", hostError("a label that IDNA refuses")
		}
		labels[i] = mapped
	}
	return strings.Join(labels, "."), nil
}

// parseNumberIPv4 reads the number forms that browsers and inet_aton take: up to four parts, each decimal, octal (0…)
// or hexadecimal (0x…), the last one filling the bytes that are left.
func parseNumberIPv4(name string) (netip.Addr, bool) {
	parts := strings.Split(name, ".")
	if len(parts) > 4 {
		return netip.Addr{}, false
	}
	var value uint64
	for i, part := range parts {
		n, ok := parseNumber(part)
		last := i == len(parts)-1
		switch {
		case !ok, !last && n > 255:
			return netip.Addr{}, false
		case last:
			left := 8 * (4 - i)
			if n >= 1<<left {
				return netip.Addr{}, false
			}
			value = value<<left | n
		default:
			value = value<<8 | n
		}
	}
	return netip.AddrFrom4([4]byte{byte(value >> 24), byte(value >> 16), byte(value >> 8), byte(value)}), true
}

func parseNumber(s string) (uint64, bool) {
	if s == "" {
		return 0, false
	}
	base := uint64(10)
	if rest, ok := strings.CutPrefix(s, "0x"); ok {
		s, base = rest, 16
	} else if len(s) > 1 && s[0] == '0' {
		s, base = s[1:], 8
	}
	var n uint64
	for i := 0; i < len(s); i++ {
		d := unhex(s[i])
		if d < 0 || uint64(d) >= base {
			return 0, false
		}
		if n = n*base + uint64(d); n > 1<<32 {
			return 0, false
		}
	}
	return n, true
}

// parseIPv6 reads the inside of brackets. A zone is refused; a mapped address becomes its IPv4 form (RFC 4291 §2.5.5.2).
func parseIPv6(s string) (netip.Addr, error) {
	addr, err := netip.ParseAddr(s)
	if err != nil || addr.Zone() != "" || !addr.Is6() {
		return netip.Addr{}, hostError("brackets around what is no IPv6 address")
	}
	return addr.Unmap(), nil
}

// isLocalhost tells the names of RFC 6761 §6.3: localhost and everything under it.
func isLocalhost(name string) bool {
	return name == "localhost" || strings.HasSuffix(name, ".localhost")
}
