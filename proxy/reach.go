package proxy

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"dshproxy/netrule"
	"dshproxy/upstream"
)

// link is a connection to where a client is going.
type link struct {
	c     net.Conn
	early []byte         // came behind the answer of a parent, and goes first
	addr  netip.AddrPort // invalid where a parent has resolved the name
	// parent is set where the connection ends at it and takes requests in absolute-form.
	parent *upstream.Parent
}

// dial connects to the admitted destination. On failure the answer has been written.
func (c *conn) dial(q netrule.Query) (link, bool) {
	start := time.Now()
	l, code, err := c.dialWithin(c.goOnWaiting(), q.Target.Scheme == netrule.SchemeHTTP)
	c.endWait()
	c.record.DialTried, c.record.Dial = true, time.Since(start)
	if err == nil && c.overtaken(q, l.addr) {
		l.c.Close()
		code, err = netrule.CodeRevoked, errRevoked
	}
	if err != nil {
		c.notDialed(q.Target, code, err)
		return link{}, false
	}
	c.record.Dialed = l.addr
	return l, true
}

// overtaken reports that a reload came between, in the time that lookup and dial took, and forbids what was admitted.
func (c *conn) overtaken(q netrule.Query, dialed netip.AddrPort) bool {
	a := &c.verdict
	return !c.srv.Gate.isCurrent(a.Policy, a.Workspace) && !c.srv.Gate.StillAllowed(q, a.Dest, dialed, a.Workspace)
}

// notDialed answers a request that was admitted and got nowhere.
func (c *conn) notDialed(target netrule.Target, code netrule.Code, err error) {
	c.record.Code, c.record.Outcome, c.record.Cause = code, outcomeFailed, err.Error()
	if status := wireOf(code).status; status < 500 || code == netrule.CodeLoop {
		c.record.Outcome = outcomeRefused
	}
	c.sendRefusal(&refusal{code: code, target: target, decision: c.verdict.Decision})
}

var errRevoked = errors.New("the rules have changed since")

// dialWithin dials under the limit of the client. plain says that the request is one in clear, which a parent that speaks
// HTTP takes in absolute-form where it resolves the name.
func (c *conn) dialWithin(ctx context.Context, plain bool) (link, netrule.Code, error) {
	a := &c.verdict
	if !c.client.enterDial(ctx) {
		return link{}, netrule.CodeClientLimit, errors.New("too many dials of this client")
	}
	defer c.client.leaveDial()
	var l link
	var err error
	switch p := a.Dest.Parent(); {
	case p == nil:
		var tcp *net.TCPConn
		if tcp, l.addr, err = c.srv.Dialer.Dial(ctx, a.Dest); err == nil {
			l.c = tcp
		}
	case plain && a.Dest.IsNamed() && p.IsHTTP() && c.inside == nil:
		l.parent = p
		l.c, _, err = c.srv.Dialer.DialParent(ctx, p)
	default:
		l.c, l.early, l.addr, err = c.srv.Dialer.DialThrough(ctx, a.Dest, c.via())
	}
	if err != nil {
		return link{}, dialCode(err), err
	}
	return l, a.Code, nil
}

// via is what a parent is told about the way of a request: the proxies before this one, and this one, so that a loop shows
// itself at any of them.
func (c *conn) via() string {
	var b strings.Builder
	for _, f := range c.head.fields {
		if is(f.name, "via") && len(f.value) > 0 {
			b.Write(f.value)
			b.WriteString(", ")
		}
	}
	return b.String() + "1.1 " + c.srv.pseudonym
}

// dialAgain connects to the address of a tunnel once more, for inspected TLS.
func (s *Server) dialAgain(ctx context.Context, f *flight) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Limits.Answer)
	defer cancel()
	if f.dest.Parent() != nil {
		c, _, _, err := s.Dialer.DialThrough(ctx, f.dest, "1.1 "+s.pseudonym)
		return c, err
	}
	c, _, err := s.Dialer.Dial(ctx, f.dest.At(f.dialed))
	if err != nil {
		return nil, err
	}
	return c, nil
}

// dialCode tells what went wrong with a connection attempt.
func dialCode(err error) netrule.Code {
	var ne net.Error
	var pe *upstream.ParentError
	switch {
	case errors.Is(err, errOwnListener):
		return netrule.CodeLoop
	case errors.As(err, &pe):
		return netrule.CodeUpstreamProxyError
	case errors.Is(err, syscall.ECONNREFUSED):
		return netrule.CodeConnectionRefused
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.EADDRNOTAVAIL):
		return netrule.CodeDestinationIPUnroutable
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &ne) && ne.Timeout():
		return netrule.CodeConnectionTimeout
	case errors.Is(err, upstream.ErrNoCheck), errors.Is(err, upstream.ErrNoAddress):
		return netrule.CodeInternalError
	default:
		return netrule.CodeConnectionTerminated
	}
}
