package netrule

import (
	"net/netip"
	"strconv"
	"strings"

	"dshproxy/netrule/glob"
)

// AddrPattern is a compiled ips pattern: a prefix (a literal is one of full length) or a glob over the canonical text.
// The zero AddrPattern matches nothing.
type AddrPattern struct {
	text     string
	prefix   netip.Prefix
	glob     *glob.Glob
	special  bool // lies wholly in special-use space
	hostBits bool
}

// ParseAddrPattern reads a literal, a prefix of either family, or a glob such as 10.0.*.*. A mapped literal or prefix
// (::ffff:a.b.c.d) means the IPv4 one; bits below a prefix are masked. maxStars is as in glob.Options. Errors are of
// type *PatternError.
func ParseAddrPattern(pattern string, maxStars int) (AddrPattern, error) {
	text := lowerASCII(strings.TrimSpace(pattern))
	p := AddrPattern{text: pattern}
	switch {
	case text == "":
		return AddrPattern{}, &PatternError{pattern, "network ip patterns must be non-empty", ""}
	case strings.Contains(text, "/"):
		prefix, err := parsePrefix(text)
		if err != "" {
			return AddrPattern{}, &PatternError{pattern, err, ""}
		}
		p.prefix = prefix.Masked()
		p.hostBits = p.prefix != prefix
	case glob.HasMeta(text):
		text = strings.TrimPrefix(text, "::ffff:")
		g, err := compileAddrGlob(text, maxStars)
		if err != nil {
			return AddrPattern{}, &PatternError{pattern, whyGlob(err), ""}
		}
		p.glob = g
	default:
		addr, err := netip.ParseAddr(text)
		if err != nil || addr.Zone() != "" {
			return AddrPattern{}, &PatternError{pattern, "an ip pattern that is no address, prefix or glob of addresses", "names go into domains:"}
		}
		addr = addr.Unmap()
		p.prefix = netip.PrefixFrom(addr, addr.BitLen())
	}
	p.special = p.liesInSpecialUse(text)
	return p, nil
}

// parsePrefix reads ADDR/BITS. The text of the error is empty on success.
func parsePrefix(text string) (netip.Prefix, string) {
	host, length, _ := strings.Cut(text, "/")
	addr, err := netip.ParseAddr(host)
	if err != nil || addr.Zone() != "" {
		if strings.Count(host, ".") == 3 && strings.Trim(host, "0123456789.") == "" {
			return netip.Prefix{}, "an IPv4 prefix needs octets 0-255 without leading zeros"
		}
		return netip.Prefix{}, "a prefix of no address"
	}
	bits, err := strconv.Atoi(length)
	if err != nil || !digits(length) {
		return netip.Prefix{}, "a prefix length that is no number"
	}
	if addr.Is4In6() {
		// ::ffff:10.0.0.0/8 and /104 both mean 10.0.0.0/8.
		addr = addr.Unmap()
		if bits > 32 {
			bits -= 96
		}
	}
	if bits < 0 || bits > addr.BitLen() {
		if addr.Is4() {
			return netip.Prefix{}, "an IPv4 prefix needs octets 0-255 and prefix 0-32"
		}
		return netip.Prefix{}, "an IPv6 prefix needs prefix 0-128"
	}
	return netip.PrefixFrom(addr, bits), ""
}

func compileAddrGlob(text string, maxStars int) (*glob.Glob, error) {
	if strings.Trim(text, `0123456789abcdef:.*?[]!^-\`) != "" {
		return nil, hostError("an ip glob with a character that no address has")
	}
	return glob.Compile(text, glob.Options{Fold: true, MaxStars: maxStars})
}

// liesInSpecialUse reports whether every address that the pattern can match is special-use: a prefix inside one block,
// or a glob whose leading octets form one.
func (p AddrPattern) liesInSpecialUse(text string) bool {
	prefix := p.prefix
	if p.glob != nil {
		var ok bool
		if prefix, ok = globPrefix(text); !ok {
			return false
		}
	}
	if prefix.Bits() == prefix.Addr().BitLen() && (metadataAddrs[prefix.Addr()] || ClassifyAddr(prefix.Addr()) != ClassPublic) {
		return true
	}
	for _, b := range specialBlocks {
		if b.prefix.Bits() <= prefix.Bits() && b.prefix.Contains(prefix.Addr()) {
			return true
		}
	}
	// Space outside of what can be public is special as a whole.
	return prefix.Addr().Is6() && prefix.Bits() >= 3 && !globalIPv6.Contains(prefix.Addr()) && !overlapsCarrier(prefix)
}

// overlapsCarrier tells the prefixes that hold NAT64 addresses, which are public when their inner address is.
func overlapsCarrier(p netip.Prefix) bool { return p.Overlaps(nat64WellKnown) }

// globPrefix gives the prefix that the literal head of a glob fixes: whole octets of IPv4 ("10.0.*" gives 10.0.0.0/16),
// whole groups of IPv6 ("fd00:*" gives fd00::/16).
func globPrefix(text string) (netip.Prefix, bool) {
	head := text[:strings.IndexAny(text, `*?[\`)]
	if dot := strings.LastIndexByte(head, '.'); dot >= 0 && !strings.Contains(head, ":") {
		octets := strings.Split(head[:dot], ".")
		if len(octets) > 3 {
			return netip.Prefix{}, false
		}
		var b [4]byte
		for i, o := range octets {
			n, err := strconv.ParseUint(o, 10, 8)
			if err != nil {
				return netip.Prefix{}, false
			}
			b[i] = byte(n)
		}
		return netip.PrefixFrom(netip.AddrFrom4(b), 8*len(octets)), true
	}
	colon := strings.LastIndexByte(head, ':')
	if colon < 0 || strings.Contains(head, "::") || strings.HasPrefix(head, ":") {
		return netip.Prefix{}, false
	}
	groups := strings.Split(head[:colon], ":")
	if len(groups) > 7 {
		return netip.Prefix{}, false
	}
	var b [16]byte
	for i, g := range groups {
		n, err := strconv.ParseUint(g, 16, 16)
		if err != nil {
			return netip.Prefix{}, false
		}
		b[2*i], b[2*i+1] = byte(n>>8), byte(n)
	}
	return netip.PrefixFrom(netip.AddrFrom16(b), 16*len(groups)), true
}

// String returns the pattern as written.
func (p AddrPattern) String() string { return p.text }

// HostBits reports whether bits below the prefix were set and masked away.
func (p AddrPattern) HostBits() bool { return p.hostBits }

// Literal gives the address of a pattern that matches only one.
func (p AddrPattern) Literal() (netip.Addr, bool) {
	return p.prefix.Addr(), p.prefix.IsValid() && p.prefix.IsSingleIP()
}

// matches tests one form of an address.
func (p AddrPattern) matches(addr netip.Addr) bool {
	if p.glob == nil {
		return p.prefix.Contains(addr)
	}
	var buf [netipTextMax]byte
	return addr.IsValid() && p.glob.Match(string(addr.AppendTo(buf[:0])))
}

const netipTextMax = 40 // longest canonical text of an address without zone

// opens reports whether the pattern is permission for a special-use form: it must match it, lie wholly in special-use
// space (the operator's internal networks count), and be that very address where no range is enough.
func (p AddrPattern) opens(f Form, space Space) bool {
	if !p.matches(f.Addr) {
		return false
	}
	literal, isLiteral := p.Literal()
	exact := isLiteral && literal == f.Addr
	switch f.Class {
	case ClassSelf:
		return exact
	case ClassMetadata, ClassLinkLocal:
		return exact && p.special
	default:
		return p.special || p.within(space.Internal)
	}
}

func (p AddrPattern) within(prefixes []netip.Prefix) bool {
	for _, q := range prefixes {
		if p.glob == nil && q.Bits() <= p.prefix.Bits() && q.Contains(p.prefix.Addr()) {
			return true
		}
	}
	return false
}
