package resolve

import "net/netip"

// Pinned are addresses that the policy admitted for one connection, with the port, in the order in which they are to be
// tried. Only these are dialled. The zero Pinned holds none. Pin makes one; nothing else can.
type Pinned struct{ addrs []netip.AddrPort }

// Pin fixes adjudicated addresses. It belongs to the place that adjudicates, proxy.Gate. A test keeps it there.
func Pin(addrs []netip.Addr, port uint16) Pinned {
	p := Pinned{make([]netip.AddrPort, len(addrs))}
	for i, a := range addrs {
		p.addrs[i] = netip.AddrPortFrom(a, port)
	}
	return p
}

// Len gives the number of addresses.
func (p Pinned) Len() int { return len(p.addrs) }

// At gives one address.
func (p Pinned) At(i int) netip.AddrPort { return p.addrs[i] }

// Contains reports whether an address is among them.
func (p Pinned) Contains(a netip.AddrPort) bool {
	for _, b := range p.addrs {
		if a == b {
			return true
		}
	}
	return false
}

// Only gives what is left with one address of them; the zero Pinned if it is none.
func (p Pinned) Only(a netip.AddrPort) Pinned {
	if !p.Contains(a) {
		return Pinned{}
	}
	return Pinned{[]netip.AddrPort{a}}
}
