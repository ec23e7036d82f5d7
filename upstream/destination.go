package upstream

import (
	"net/netip"

	"dshproxy/resolve"
)

// Destination is where a connection goes: directly to adjudicated addresses, or through a parent. The zero value goes
// nowhere.
type Destination struct {
	way    way
	pinned resolve.Pinned
	parent *Parent
	host   string // of a named one
	port   uint16
}

// way tells how a destination is reached. It is kept apart from the parent, so that a nil parent is an error and not a
// direct dial.
type way uint8

const (
	direct  way = iota
	named       // a parent resolves the name
	through     // a parent connects to an adjudicated address
)

// Direct makes a destination of adjudicated addresses.
func Direct(p resolve.Pinned) Destination { return Destination{pinned: p} }

// Named makes a destination of which a parent gets the canonical host and looks it up, so that no address of it was
// adjudicated. A literal host, without brackets, is sent as an address.
func Named(p *Parent, host string, port uint16) Destination {
	return Destination{way: named, parent: p, host: host, port: port}
}

// Through makes a destination of adjudicated addresses that a parent is to connect to.
func Through(p *Parent, pinned resolve.Pinned) Destination {
	return Destination{way: through, parent: p, pinned: pinned}
}

// At gives the destination narrowed to one of its addresses. An address that it does not have gives one that goes nowhere.
func (d Destination) At(addr netip.AddrPort) Destination {
	if d.way == named || !d.pinned.Contains(addr) {
		return Destination{way: d.way, parent: d.parent}
	}
	d.pinned = d.pinned.Only(addr)
	return d
}

// Pinned gives the addresses; a named destination has none.
func (d Destination) Pinned() resolve.Pinned { return d.pinned }

// Parent gives the proxy on the way, nil for a direct destination.
func (d Destination) Parent() *Parent { return d.parent }

// IsNamed reports whether the parent resolves the name.
func (d Destination) IsNamed() bool { return d.way == named }

// SameName reports whether both are one name behind one parent.
func (d Destination) SameName(other Destination) bool {
	return d.way == named && other.way == named && d.parent == other.parent && d.host == other.host && d.port == other.port
}

func (d Destination) addrs() []netip.AddrPort {
	out := make([]netip.AddrPort, d.pinned.Len())
	for i := range out {
		out[i] = d.pinned.At(i)
	}
	return out
}
