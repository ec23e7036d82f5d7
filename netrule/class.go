package netrule

import "net/netip"

// Class says what kind of address an address is. Everything but ClassPublic needs a rule that opens it. The zero value
// is ClassUnknown, which nothing opens. Classes are ordered from the least to the most dangerous.
type Class uint8

// The classes, from the least to the most dangerous.
const (
	ClassUnknown     Class = iota // no address at all
	ClassPublic                   // global unicast
	ClassUnspecified              // 0.0.0.0 and ::, which connect to loopback
	ClassReserved                 // this-network, documentation, benchmarking, relics, whatever is not otherwise known
	ClassMulticast
	ClassCGNAT   // 100.64.0.0/10, RFC 6598
	ClassPrivate // RFC 1918, RFC 4193, site-local, and what the operator calls internal
	ClassLinkLocal
	ClassSelf // an address of an own interface; only the caller of the guard knows these
	ClassLoopback
	ClassMetadata // serves credentials of a cloud
)

var classNames = [...]string{"unknown", "public", "unspecified", "reserved", "multicast", "cgnat", "private", "linklocal", "self", "loopback", "metadata"}

// String returns the name that records and metrics use.
func (c Class) String() string {
	if int(c) < len(classNames) {
		return classNames[c]
	}
	return classNames[0]
}

// Classes lists all classes that an address can have.
func Classes() []Class {
	out := make([]Class, 0, len(classNames)-1)
	for c := ClassPublic; int(c) < len(classNames); c++ {
		out = append(out, c)
	}
	return out
}

// Space is what the operator says of the networks around the proxy. The zero value is the world as IANA has it.
type Space struct {
	// Internal makes prefixes private that look public.
	Internal []netip.Prefix
	// NAT64 lists the operator's translation prefixes, of the lengths of RFC 6052 §2.2.
	NAT64 []netip.Prefix
}

// Form is one reading of an address: the address itself, or the IPv4 address embedded in it.
type Form struct {
	Addr  netip.Addr
	Class Class
}

// Classify gives the class of an address, the worst of its own and that of an embedded IPv4 address, and the one or two
// forms that it was judged in. The second form is invalid where nothing is embedded.
func (s Space) Classify(addr netip.Addr) (Class, [2]Form) {
	addr = addr.Unmap().WithZone("")
	forms := [2]Form{{addr, s.classOf(addr)}}
	inner, transparent, ok := s.embedded(addr)
	if !ok {
		return forms[0].Class, forms
	}
	if transparent && forms[0].Class != ClassMetadata {
		forms[0].Class = ClassPublic
	} else {
		forms[0].Class = max(forms[0].Class, ClassReserved)
	}
	forms[1] = Form{inner, s.classOf(inner)}
	return max(forms[0].Class, forms[1].Class), forms
}

// ClassifyAddr is Classify for the zero Space: the class of an address by IANA's tables alone.
func ClassifyAddr(addr netip.Addr) Class {
	class, _ := Space{}.Classify(addr)
	return class
}

// classOf looks at one form only.
func (s Space) classOf(addr netip.Addr) Class {
	if !addr.IsValid() {
		return ClassUnknown
	}
	if metadataAddrs[addr] {
		return ClassMetadata
	}
	for _, b := range specialBlocks {
		if b.prefix.Contains(addr) {
			return b.class
		}
	}
	if inAny(s.Internal, addr) {
		return ClassPrivate
	}
	if addr.Is6() && !globalIPv6.Contains(addr) {
		return ClassReserved
	}
	return ClassPublic
}

func inAny(prefixes []netip.Prefix, addr netip.Addr) bool {
	for _, p := range prefixes {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// embedded finds the IPv4 address that an IPv6 address carries. transparent is true for NAT64, where the outer address
// is nothing but a way to write the inner one.
func (s Space) embedded(addr netip.Addr) (inner netip.Addr, transparent, ok bool) {
	if !addr.Is6() {
		return netip.Addr{}, false, false
	}
	b := addr.As16()
	v4 := func(i int) netip.Addr { return netip.AddrFrom4([4]byte(b[i : i+4])) }
	for _, p := range s.NAT64 {
		if p.Contains(addr) {
			return nat64Inner(b, p.Bits()), true, true
		}
	}
	switch {
	case nat64WellKnown.Contains(addr):
		return v4(12), true, true
	case b[0] == 0x20 && b[1] == 0x02: // 6to4, RFC 3056
		return v4(2), false, true
	case b[0] == 0x20 && b[1] == 0x01 && b[2] == 0 && b[3] == 0: // Teredo, RFC 4380: the worse of server and client
		server := v4(4)
		client := netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]})
		if s.classOf(server) > s.classOf(client) {
			return server, false, true
		}
		return client, false, true
	case isZero(b[:12]): // compatible, RFC 4291 §2.5.5.1; :: and ::1 are no carriers
		if isZero(b[12:15]) && b[15] <= 1 {
			return netip.Addr{}, false, false
		}
		return v4(12), false, true
	case isZero(b[:8]) && b[8] == 0xff && b[9] == 0xff && b[10] == 0 && b[11] == 0: // translated, RFC 2765
		return v4(12), false, true
	case (b[8] == 0 || b[8] == 2) && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe: // ISATAP, RFC 5214
		return v4(12), false, true
	}
	return netip.Addr{}, false, false
}

// nat64Inner cuts the address out behind a prefix, skipping octet 8, which RFC 6052 §2.2 keeps zero.
func nat64Inner(b [16]byte, bits int) netip.Addr {
	var out [4]byte
	at := bits / 8
	for i := range out {
		if at == 8 {
			at++
		}
		out[i] = b[at]
		at++
	}
	return netip.AddrFrom4(out)
}

func isZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// ValidNAT64 reports whether a prefix has a length that RFC 6052 §2.2 defines.
func ValidNAT64(p netip.Prefix) bool {
	switch p.Bits() {
	case 32, 40, 48, 56, 64, 96:
		return p.Addr().Is6() && !p.Addr().Is4In6()
	default:
		return false
	}
}

// TargetClass gives the class that a target has before anything is looked up: that of a literal, "loopback" for
// localhost names, "metadata" for the names of metadata services, and "name" for every other name.
func TargetClass(t Target) string {
	switch {
	case t.IsLiteral():
		return ClassifyAddr(t.Addr).String()
	case t.IsLocalhost():
		return ClassLoopback.String()
	case metadataNames[t.Host]:
		return ClassMetadata.String()
	default:
		return "name"
	}
}
