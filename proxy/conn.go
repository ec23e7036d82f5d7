package proxy

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"dshproxy/netrule"
	"dshproxy/proxy/decisionlog"
	"dshproxy/upstream"
)

// conn is one client connection. Its owner goroutine reads every byte of it, until it ends or becomes a tunnel.
type conn struct {
	srv       *Server
	nc        net.Conn
	listener  string
	voice     *voice
	clientKey string
	client    *client

	in      reader
	out     []byte // scratch for what is written
	scanner headScanner
	head    requestHead
	record  decisionlog.Decision
	origins []*originConn
	idle    atomic.Bool // waits for the first byte of a head
	handed  bool        // the tunnel owns the connection now
}

// serve reads requests until the connection ends.
func (c *conn) serve() {
	defer c.finish()
	c.in.init(c.nc, c.srv.pools, c.srv.Limits.HeadBytes, &c.srv.budget)
	for first := true; ; first = false {
		n, err := c.readHead(first)
		if err != nil {
			c.refuseHead(err)
			return
		}
		if first {
			growStack()
		}
		if n == 0 || !c.handle(n) {
			return
		}
		c.in.shrink()
	}
}

// growStack makes the stack as large as a request needs in one step, while there is hardly anything on it to copy.
// Step by step it was 5 % of a tunnel's CPU time in a profile, so it is 1.5 %.
//
//go:noinline
func growStack() (sum byte) {
	var room [10 << 10]byte
	for i := 0; i < len(room); i += 4096 {
		sum += room[i]
	}
	return sum
}

// finish gives everything back, on every path out of serve.
func (c *conn) finish() {
	if p := recover(); p != nil {
		c.srv.Log.Error("internal error", "panic", p)
		if !c.handed {
			c.answer(&refusal{code: netrule.CodeInternalError})
		}
	}
	c.closeOrigins()
	c.in.release()
	if !c.handed {
		c.nc.Close()
		c.srv.clients.leave(c.client)
	}
	c.srv.conns.remove(c)
}

// wakeIdle ends the wait for a first byte, for a shutdown.
func (c *conn) wakeIdle() {
	if c.idle.Load() {
		_ = c.nc.SetReadDeadline(time.Unix(1, 0)) // an error means that it is closed already
	}
}

// readHead gives the length of a whole head in the buffer, 0 when the client went away or stayed silent before it sent
// a byte, or an error that is to be answered.
func (c *conn) readHead(first bool) (int, error) {
	l := &c.srv.Limits
	c.scanner = headScanner{}
	c.head = requestHead{fields: c.head.fields[:0], connection: c.head.connection[:0]} // an answer must not speak of the last one
	if len(c.in.bytes()) == 0 {
		wait := l.KeepAliveIdle
		if first {
			wait = l.HeadTimeout
		}
		_ = c.nc.SetReadDeadline(time.Now().Add(wait))
		c.idle.Store(true)
		if c.srv.draining.Load() {
			c.wakeIdle()
		}
		err := c.in.fill()
		c.idle.Store(false)
		if len(c.in.bytes()) == 0 {
			_ = err
			return 0, nil
		}
	}
	if first && c.notHTTP() {
		return 0, nil
	}
	if !first {
		_ = c.nc.SetReadDeadline(time.Now().Add(l.HeadTimeout))
	}
	for {
		n, err := c.scanner.scan(c.in.bytes())
		if err == nil {
			_ = c.nc.SetReadDeadline(time.Time{})
			return n, nil
		}
		if !errors.Is(err, errHeadMore) {
			return 0, err
		}
		switch err := c.in.fill(); {
		case err == nil:
		case errors.Is(err, errBufferFull) && len(c.in.bytes()) < l.HeadBytes:
			return 0, &headError{503, netrule.CodeServerLimit, "too many bytes are held"}
		case errors.Is(err, errBufferFull):
			return 0, &headError{431, netrule.CodeHeadTooLarge, "a head of over " + itoa(l.HeadBytes) + " bytes"}
		case errors.Is(err, os.ErrDeadlineExceeded):
			return 0, &headError{408, netrule.CodeHeadTimeout, "the request head took too long"}
		default:
			return 0, badHead("the connection ended inside the request head")
		}
	}
}

func itoa(n int) string { return strconv.Itoa(n) }

// notHTTP turns other protocols away by their first byte: TLS to a plain port, and SOCKS.
func (c *conn) notHTTP() bool {
	switch c.in.bytes()[0] {
	case 0x16:
		// Alert: fatal, unexpected_message. The user wrote https:// in HTTPS_PROXY.
		_, _ = c.nc.Write([]byte{0x15, 3, 1, 0, 2, 2, 10})
		c.srv.Log.Warn("a client speaks TLS to this plain listener; write http:// in HTTPS_PROXY", "listener", c.listener, "client", c.clientKey)
	case 0x04, 0x05:
		reply := []byte{5, 0xff} // no acceptable method
		if c.in.bytes()[0] == 4 {
			reply = []byte{0, 91, 0, 0, 0, 0, 0, 0}
		}
		_, _ = c.nc.Write(reply)
		c.srv.Log.Warn("a client speaks SOCKS to this listener, which serves HTTP", "listener", c.listener, "client", c.clientKey)
	default:
		return false
	}
	c.record = decisionlog.Decision{Code: netrule.CodeBadRequest, Outcome: outcomeRefused, Protocol: "unknown"}
	c.observe()
	c.linger()
	return true
}

// refuseHead answers a head that is no request.
func (c *conn) refuseHead(err error) {
	var he *headError
	if !errors.As(err, &he) {
		he = badHead("a malformed request")
	}
	c.refuse("unknown", &refusal{code: he.code, status: he.status, why: he.why})
}

// handle serves the request whose head is the first n bytes of the buffer, and reports whether the connection goes on.
func (c *conn) handle(n int) bool {
	err := c.head.parse(c.in.bytes()[:n], c.srv.Limits.HeadFields, c.srv.pseudonym)
	if err != nil {
		c.refuseHead(err)
		return false
	}
	if c.srv.draining.Load() {
		c.refuse("unknown", &refusal{code: netrule.CodeDraining})
		return false
	}
	c.in.discard(n)
	if string(c.head.method) == "CONNECT" {
		c.connect()
		return false
	}
	return c.forward()
}

// admit asks the gate and dials. On a refusal or failure the answer has been written and the result is false.
func (c *conn) admit(protocol string, q netrule.Query) (a Admission, ok bool) {
	ctx := c.srv.base
	if !q.Target.IsLiteral() && !q.Target.IsLocalhost() { // a lookup may take its time
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.srv.Limits.Answer)
		defer cancel()
		defer c.watch(cancel)()
	}
	a = c.srv.Gate.Admit(ctx, q, "", c.client)
	c.describe(protocol, q.Target, &a)
	if !a.OK {
		c.refuseAdmission(q.Target, &a)
		return a, false
	}
	return a, true
}

const (
	outcomeOK      = "ok"
	outcomeRefused = "refused"
	outcomeFailed  = "failed"
)

// describe fills the record of a request that was judged.
func (c *conn) describe(protocol string, t netrule.Target, a *Admission) {
	c.record = decisionlog.Decision{
		Protocol: protocol, Target: t, Judged: a.Judged, Decision: a.Decision, Code: a.Code, Outcome: outcomeOK,
		LookedUp: a.LookedUp, DNS: a.DNS, Decide: a.Decided,
	}
	if a.Cause != nil {
		c.record.Cause = a.Cause.Error()
	}
	if c.srv.PolicyHash != nil {
		c.record.Policy = c.srv.PolicyHash()
	}
}

func (c *conn) refuseAdmission(t netrule.Target, a *Admission) {
	c.record.Outcome = outcomeRefused
	if status := wireOf(a.Code).status; a.Judged && status >= 500 && a.Code != netrule.CodeLoop {
		c.record.Outcome = outcomeFailed
	}
	c.sendRefusal(&refusal{code: a.Code, target: t, decision: a.Decision, rcode: a.Rcode})
}

// refuse answers a request that no policy was asked about.
func (c *conn) refuse(protocol string, r *refusal) {
	c.record = decisionlog.Decision{Protocol: protocol, Target: r.target, Code: r.code, Outcome: outcomeRefused, Cause: r.why}
	c.sendRefusal(r)
}

// badTarget answers a target that no parser of the wire accepts: before any policy, lookup or dial.
func (c *conn) badTarget(protocol string, err error) {
	c.record = decisionlog.Decision{Protocol: protocol, RawTarget: authorityOf(string(c.head.target)), Code: netrule.CodeBadTarget, Outcome: outcomeRefused}
	var te *netrule.TargetError
	if errors.As(err, &te) {
		c.record.Cause = te.Why
	}
	c.sendRefusal(&refusal{code: netrule.CodeBadTarget, why: "malformed target"})
}

// sendRefusal writes the record and the answer, and lets the client read it.
func (c *conn) sendRefusal(r *refusal) {
	r.json = c.head.wantsJSON
	r.head = c.head.isHead
	c.observe()
	r.id = c.record.ID
	c.answer(r)
}

// observe gives the record its time and id, and hands it out.
func (c *conn) observe() {
	now := time.Now()
	r := &c.record
	r.Time, r.Listener, r.Client = now, c.listener, c.clientKey
	if r.ID == "" {
		r.ID = newID(now)
	}
	for _, o := range c.srv.Observers {
		o.Decided(r)
	}
}

// answer writes a refusal and closes in a way that lets the client read it.
func (c *conn) answer(r *refusal) {
	if r.id == "" {
		r.id = newID(time.Now())
	}
	_ = c.nc.SetWriteDeadline(time.Now().Add(lingerFor))
	c.out = r.append(c.out[:0], c.voice)
	if _, err := c.nc.Write(c.out); err == nil {
		c.linger()
	}
}

const (
	lingerFor   = 2 * time.Second
	lingerBytes = 64 << 20 // a client that sends its whole upload before it looks for an answer
)

// linger half-closes and reads what still comes, within bounds: a close with unread bytes would be a reset, which
// destroys the answer before it is read (RFC 9112 §9.6). The bytes are never parsed.
func (c *conn) linger() {
	half, ok := c.nc.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	_ = c.nc.SetReadDeadline(time.Now().Add(lingerFor))
	buf := c.srv.pools.small.Get().(*[]byte)
	defer c.srv.pools.small.Put(buf)
	for total := 0; total < lingerBytes; {
		n, err := c.nc.Read(*buf)
		total += n
		if err != nil {
			return
		}
	}
}

// turnAway answers a connection that got no slot, after its first bytes: some clients retry at once when they are
// closed without an answer.
func (c *conn) turnAway(code netrule.Code) {
	defer c.nc.Close()
	c.in.init(c.nc, c.srv.pools, firstBuffer, nil)
	defer c.in.release()
	_ = c.nc.SetReadDeadline(time.Now().Add(lingerFor))
	if c.in.fill() != nil {
		return
	}
	c.refuse("unknown", &refusal{code: code})
}

// authorityOf keeps what a record may show of a target that no parser accepts: no user name or password, no path, no
// query.
func authorityOf(raw string) string {
	if _, rest, ok := strings.Cut(raw, "://"); ok {
		raw = rest
	}
	if end := strings.IndexAny(raw, "/?#"); end >= 0 {
		raw = raw[:end]
	}
	return raw[strings.LastIndexByte(raw, '@')+1:]
}

// turnAwayAtOnce answers without waiting for a byte, for a client that holds all that it may.
func (c *conn) turnAwayAtOnce(code netrule.Code) {
	defer c.nc.Close()
	c.record = decisionlog.Decision{Protocol: "unknown", Code: code, Outcome: outcomeRefused}
	c.observe()
	_ = c.nc.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	r := refusal{code: code, id: c.record.ID}
	_, _ = c.nc.Write(r.append(nil, c.voice)) // it may not arrive; the limit is the client's own
}

// dial connects to an admitted destination. On failure the answer has been written.
func (c *conn) dial(a *Admission, t netrule.Target) (*net.TCPConn, netip.AddrPort, bool) {
	ctx, cancel := context.WithTimeout(c.srv.base, max(c.srv.Limits.Answer-a.DNS, 0))
	defer cancel()
	defer c.watch(cancel)()
	start := time.Now()
	up, addr, code, err := c.dialWithin(ctx, a)
	c.record.DialTried, c.record.Dial = true, time.Since(start)
	if err == nil && !c.stillAllowed(a, t, addr) {
		up.Close()
		code, err = netrule.CodeRevoked, errRevoked
	}
	if err == nil {
		c.record.Dialed = addr
		return up, addr, true
	}
	c.record.Code, c.record.Outcome, c.record.Cause = code, outcomeFailed, err.Error()
	if status := wireOf(code).status; status < 500 || code == netrule.CodeLoop {
		c.record.Outcome = outcomeRefused
	}
	c.sendRefusal(&refusal{code: code, target: t, decision: a.Decision})
	return nil, netip.AddrPort{}, false
}

var errRevoked = errors.New("the rules have changed since")

// stillAllowed looks once more after the time that lookup and dial took: a reload may have come between.
func (c *conn) stillAllowed(a *Admission, t netrule.Target, addr netip.AddrPort) bool {
	g := c.srv.Gate
	return g.isCurrent(a.Policy, "") || g.StillAllowed(netrule.Query{Target: t}, addr.Addr(), "")
}

func (c *conn) dialWithin(ctx context.Context, a *Admission) (*net.TCPConn, netip.AddrPort, netrule.Code, error) {
	if !c.client.enterDial(ctx) {
		return nil, netip.AddrPort{}, netrule.CodeClientLimit, errors.New("too many dials of this client")
	}
	defer c.client.leaveDial()
	up, addr, err := c.srv.Dialer.Dial(ctx, a.Dest)
	if err != nil {
		return nil, addr, dialCode(err), err
	}
	return up, addr, a.Code, nil
}

// dialCode tells what went wrong with a connection attempt.
func dialCode(err error) netrule.Code {
	var ne net.Error
	switch {
	case errors.Is(err, errOwnListener):
		return netrule.CodeLoop
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

// hostOf reads the host of a Host field and whether it has a port.
func hostOf(host []byte) (name []byte, port []byte) {
	colon := bytes.LastIndexByte(host, ':')
	if colon < 0 || bytes.IndexByte(host[colon:], ']') >= 0 {
		return host, nil
	}
	return host[:colon], host[colon+1:]
}
