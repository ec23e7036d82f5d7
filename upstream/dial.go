// Package upstream makes connections to destinations that were adjudicated, and to nothing else.
//
// A Destination holds pinned addresses, or a name that is left to a parent proxy; there is no way to dial a name
// directly. Addresses are raced as RFC 8305 §5 has it, and each is checked once more right before the connect, a
// parent's too. A destination behind a parent is never dialled directly, whatever becomes of the parent. A Chain says
// which parent a target takes. The package knows no rules.
package upstream

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// Dialer dials destinations.
type Dialer struct {
	// Check is asked about each address right before the connect; its error refuses the address. Nil refuses all.
	Check func(netip.AddrPort) error
	// Stagger is the delay before the next address is tried beside one that has not answered; 0 means 250 ms.
	Stagger time.Duration
	// KeepAlive is the interval of TCP keep-alive probes; 0 is Go's default, a negative one switches them off.
	KeepAlive time.Duration
	// Lookup resolves the names of parents, never those of targets; nil means that only literals are known.
	Lookup func(ctx context.Context, name string) ([]netip.Addr, error)
}

// ErrNoCheck is the error of a Dialer without Check; ErrNoAddress of a Destination without addresses; ErrChained of a
// direct dial of a Destination behind a parent.
var (
	ErrNoCheck   = errors.New("upstream: no check, so nothing may be dialled")
	ErrNoAddress = errors.New("upstream: no adjudicated address")
	ErrChained   = errors.New("upstream: the destination is behind a parent and is not dialled directly")
)

const defaultStagger = 250 * time.Millisecond

// Dial connects to the first address that answers and gives it with the connection. The error is that of the first
// address that failed, or the context's; ErrChained for a destination behind a parent.
func (d *Dialer) Dial(ctx context.Context, dest Destination) (*net.TCPConn, netip.AddrPort, error) {
	if dest.way != direct {
		return nil, netip.AddrPort{}, ErrChained
	}
	return d.connect(ctx, dest.addrs())
}

// connect dials addresses that may be dialled.
func (d *Dialer) connect(ctx context.Context, addrs []netip.AddrPort) (*net.TCPConn, netip.AddrPort, error) {
	if d.Check == nil {
		return nil, netip.AddrPort{}, ErrNoCheck
	}
	switch len(addrs) {
	case 0:
		return nil, netip.AddrPort{}, ErrNoAddress
	case 1:
		c, err := d.one(ctx, addrs[0])
		return c, addrs[0], err
	default:
		return d.race(ctx, interleave(addrs))
	}
}

// one connects to one address. The check sits in the control function, on the very address of the socket.
func (d *Dialer) one(ctx context.Context, addr netip.AddrPort) (*net.TCPConn, error) {
	dialer := net.Dialer{
		KeepAlive: d.KeepAlive,
		Control: func(_, address string, _ syscall.RawConn) error {
			actual, err := netip.ParseAddrPort(address)
			if err != nil {
				return err
			}
			return d.Check(netip.AddrPortFrom(actual.Addr().Unmap(), actual.Port()))
		},
	}
	// Not Dialer.DialTCP: with no local address it binds to port 0 first, which searches for a port that no connection
	// uses at all, and fails when there are many.
	c, err := dialer.DialContext(ctx, "tcp", addr.String())
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}

// interleave alternates the families, beginning with that of the first address (RFC 8305 §4).
func interleave(addrs []netip.AddrPort) []netip.AddrPort {
	var first, second []netip.AddrPort
	for _, a := range addrs {
		if a.Addr().Is4() == addrs[0].Addr().Is4() {
			first = append(first, a)
		} else {
			second = append(second, a)
		}
	}
	out := make([]netip.AddrPort, 0, len(addrs))
	for i := range max(len(first), len(second)) {
		if i < len(first) {
			out = append(out, first[i])
		}
		if i < len(second) {
			out = append(out, second[i])
		}
	}
	return out
}

type attempt struct {
	conn *net.TCPConn
	addr netip.AddrPort
	err  error
}

// race starts the addresses one after another, the next one when one fails or the stagger has passed. The first
// connection wins; the others are closed.
func (d *Dialer) race(ctx context.Context, addrs []netip.AddrPort) (*net.TCPConn, netip.AddrPort, error) {
	stagger := d.Stagger
	if stagger == 0 {
		stagger = defaultStagger
	}
	ctx, cancel := context.WithCancel(ctx)
	results := make(chan attempt, len(addrs))
	started, pending := 0, 0
	start := func() {
		addr := addrs[started]
		started++
		pending++
		go func() {
			c, err := d.one(ctx, addr)
			results <- attempt{c, addr, err}
		}()
	}
	defer func() {
		cancel()
		go closeLosers(results, pending)
	}()
	start()
	timer := time.NewTimer(stagger)
	defer timer.Stop()
	var failed error
	for pending > 0 {
		select {
		case a := <-results:
			pending--
			if a.err == nil {
				return a.conn, a.addr, nil
			}
			if failed == nil {
				failed = a.err
			}
			if started < len(addrs) {
				start()
				timer.Reset(stagger)
			}
		case <-timer.C:
			if started < len(addrs) {
				start()
				timer.Reset(stagger)
			}
		}
	}
	return nil, netip.AddrPort{}, failed
}

func closeLosers(results <-chan attempt, pending int) {
	for range pending {
		if a := <-results; a.conn != nil {
			a.conn.Close()
		}
	}
}
