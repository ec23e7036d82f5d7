package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"time"
)

const (
	handshakeLimit = 10 * time.Second // of a whole dial through a parent, where the context has no earlier deadline
	maxParentAddrs = 32
	maxTargets     = 4 // adjudicated addresses that one dial asks a parent for
)

var (
	errNoParent  = errors.New("no parent")
	errNoLookup  = errors.New("no resolver for the names of parents")
	errNotHTTP   = errors.New("plain requests cannot be forwarded to a SOCKS parent")
	errNotBehind = errors.New("the destination is not behind a parent")
)

// DialParent connects to a parent, to forward requests to it in absolute-form, and gives its address. An https parent is
// spoken to in TLS, which is done. The connection is a *net.TCPConn or a *tls.Conn, without deadlines. A SOCKS parent is
// refused. Errors are of type *ParentError.
func (d *Dialer) DialParent(ctx context.Context, p *Parent) (net.Conn, netip.AddrPort, error) {
	switch {
	case p == nil:
		return nil, netip.AddrPort{}, failure(ctx, p, OpTarget, errNoParent)
	case !p.IsHTTP():
		return nil, netip.AddrPort{}, failure(ctx, p, OpTarget, errNotHTTP)
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeLimit)
	defer cancel()
	return d.dialParent(ctx, p)
}

// DialThrough connects to a destination behind its parent, by CONNECT (RFC 9110 §9.3.6) or SOCKS5 (RFC 1928), and never
// in another way. The connection is a *net.TCPConn or a *tls.Conn, without deadlines; early are the bytes that came
// behind the parent's answer and precede what is read from it. addr is the adjudicated address that the parent connected
// to, invalid for a named destination; the parent's own is the RemoteAddr of the connection. Up to four adjudicated
// addresses are tried, the next one when the parent says that it did not reach one. via is the value of Via on CONNECT
// (RFC 9110 §7.6.3): the proxies that the request has passed, and this one; empty sends none. Errors are of type
// *ParentError.
func (d *Dialer) DialThrough(ctx context.Context, dest Destination, via string) (c net.Conn, early []byte, addr netip.AddrPort, err error) {
	p := dest.parent
	switch {
	case dest.way == direct:
		return nil, nil, addr, failure(ctx, p, OpTarget, errNotBehind)
	case p == nil:
		return nil, nil, addr, failure(ctx, p, OpTarget, errNoParent)
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeLimit)
	defer cancel()
	if dest.way == named {
		target, err := newEndpoint(dest.host, dest.port)
		if err != nil {
			return nil, nil, addr, failure(ctx, p, OpTarget, err)
		}
		c, early, err = d.ask(ctx, p, target, via)
		return c, early, addr, err
	}
	err = failure(ctx, p, OpTarget, ErrNoAddress)
	addrs := interleave(dest.addrs())
	for _, addr := range addrs[:min(len(addrs), maxTargets)] {
		c, early, err = d.ask(ctx, p, endpoint{addr: addr.Addr().Unmap(), port: addr.Port()}, via)
		if err == nil {
			return c, early, addr, nil
		}
		var pe *ParentError
		if !errors.As(err, &pe) || !pe.isUnreached() {
			break
		}
	}
	return nil, nil, addr, err
}

// ask connects to the parent and has it connect to the target. Nothing but the request is sent before its answer.
func (d *Dialer) ask(ctx context.Context, p *Parent, target endpoint, via string) (net.Conn, []byte, error) {
	c, _, err := d.dialParent(ctx, p)
	if err != nil {
		return nil, nil, err
	}
	// The only thing that ends a wait is the context, so an error after its end is the context's.
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	var early []byte
	var status int
	op := OpConnect
	if p.IsHTTP() {
		early, status, err = connect(c, p, target, via)
	} else {
		op = OpSOCKS
		status, err = socks(c, p.login, target)
	}
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		c.Close()
		e := failure(ctx, p, op, err)
		e.Status = status
		return nil, nil, e
	}
	return c, early, nil
}

// dialParent connects and does what TLS needs.
func (d *Dialer) dialParent(ctx context.Context, p *Parent) (net.Conn, netip.AddrPort, error) {
	addrs, err := d.ParentAddrs(ctx, p)
	if err != nil {
		return nil, netip.AddrPort{}, err
	}
	c, addr, err := d.connect(ctx, addrs)
	if err != nil {
		return nil, addr, failure(ctx, p, OpDial, err)
	}
	if p.scheme != schemeHTTPS {
		return c, addr, nil
	}
	secure := tls.Client(c, p.tlsConfig())
	if err := secure.HandshakeContext(ctx); err != nil {
		c.Close()
		return nil, addr, failure(ctx, p, OpTLS, err)
	}
	return secure, addr, nil
}

// ParentAddrs gives the addresses of a parent now, with its port: what no client may be let to. A name is looked up,
// localhost is both loopback addresses (RFC 6761 §6.3). Errors are of type *ParentError.
func (d *Dialer) ParentAddrs(ctx context.Context, p *Parent) ([]netip.AddrPort, error) {
	var addrs []netip.Addr
	var err error
	switch {
	case p == nil:
		err = errNoParent
	case p.addr.IsValid():
		addrs = []netip.Addr{p.addr}
	case isLocalhost(p.host):
		addrs = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
	case d.Lookup == nil:
		err = errNoLookup
	default:
		addrs, err = d.Lookup(ctx, p.host)
	}
	if err == nil && len(addrs) == 0 {
		err = errors.New("no address")
	}
	if err != nil {
		return nil, failure(ctx, p, OpLookup, err)
	}
	out := make([]netip.AddrPort, min(len(addrs), maxParentAddrs))
	for i := range out {
		out[i] = netip.AddrPortFrom(addrs[i].Unmap().WithZone(""), p.port)
	}
	return out, nil
}

// failure makes an error of a parent, of the context's where that is why.
func failure(ctx context.Context, p *Parent, op string, err error) *ParentError {
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return &ParentError{Parent: p.String(), Op: op, Err: err}
}
