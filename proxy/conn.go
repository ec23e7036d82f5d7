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
	"dshproxy/proxy/identity"
	"dshproxy/upstream"
)

// conn is one client connection. Its owner goroutine reads every byte of it, until it ends or becomes a tunnel.
type conn struct {
	*party
	srv    *Server
	nc     net.Conn // of the owner goroutine alone: TLS may take the place of raw
	raw    net.Conn
	early  []byte // of it, read before the first byte of a request
	facts  identity.Facts
	client *client
	nobody *identity.Book // by it the connection alone, with nothing presented, proves nothing but is served
	inside *inside        // a tunnel that the connection serves requests in

	*scratch
	origins []*originConn
	idle    atomic.Bool // waits for the first byte of a head
	handed  bool        // the tunnel owns the connection now

	place       place[*conn]
	patience    patience
	speaksSOCKS bool
	hint        string // for the record
}

func (c *conn) where() *place[*conn] { return &c.place }

// serve reads requests until the connection ends.
func (c *conn) serve() {
	defer c.finish()
	if !c.greet() {
		return
	}
	c.in.init(c.nc, c.srv.pools, c.srv.Limits.HeadBytes, &c.srv.budget)
	c.in.preload(c.early)
	c.early = nil
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

// growStack makes the stack as large as a request needs, 8 KiB, in one step, while there is hardly anything on it to
// copy.
//
//go:noinline
func growStack() (sum byte) {
	var room [5 << 10]byte
	for i := 0; i < len(room); i += 4096 {
		sum += room[i]
	}
	return sum
}

// finish gives everything back, on every path out of serve.
func (c *conn) finish() {
	p := recover()
	if p != nil {
		c.srv.Log.Error("internal error", "panic", p)
		if !c.handed {
			c.answer(&refusal{code: netrule.CodeInternalError})
		}
	}
	c.closeOrigins()
	if !c.handed {
		c.nc.Close()
		c.srv.clients.leave(c.client)
	}
	if p == nil { // else somebody may still hold some of it
		c.giveBack()
	}
	c.srv.conns.remove(c)
}

// wakeIdle ends the wait for a first byte, for a shutdown.
func (c *conn) wakeIdle() {
	if c.idle.Load() {
		_ = c.raw.SetReadDeadline(time.Unix(1, 0)) // an error means that it is closed already
	}
}

// readHead gives the length of a whole head in the buffer, 0 when the client went away or stayed silent before it sent
// a byte, or an error that is to be answered.
func (c *conn) readHead(first bool) (int, error) {
	l := &c.srv.Limits
	c.scanner = headScanner{}
	c.head.reset() // an answer must not speak of the last one
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
		if errors.Is(err, os.ErrDeadlineExceeded) {
			// A byte that has arrived by now is owed an answer, though nobody has read it.
			_ = c.nc.SetReadDeadline(time.Now().Add(lastLook))
			_ = c.in.fill() // its error says no more than the first
			_ = c.nc.SetReadDeadline(time.Now().Add(l.HeadTimeout))
		}
		if len(c.in.bytes()) == 0 {
			return 0, nil
		}
	}
	if first && c.notHTTP() {
		return 0, nil
	}
	for timed := first; ; timed = true {
		n, err := c.scanner.scan(c.in.bytes())
		if err == nil {
			_ = c.nc.SetReadDeadline(time.Time{})
			return n, nil
		}
		if !errors.Is(err, errHeadMore) {
			return 0, err
		}
		if !timed {
			_ = c.nc.SetReadDeadline(time.Now().Add(l.HeadTimeout))
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

// lastLook is how long a connection is looked at once more before it is closed without a word.
const lastLook = time.Millisecond

func itoa(n int) string { return strconv.Itoa(n) }

// notHTTP serves SOCKS5, and turns other protocols away by their first byte: TLS to a plain listener, SOCKS4, and what the
// listener leaves out.
func (c *conn) notHTTP() bool {
	first := c.in.bytes()[0]
	switch {
	case first == socksVersion && !c.front.NoSOCKS:
		c.socks()
		return true
	case first == recordHandshake:
		// Alert: fatal, unexpected_message. The user wrote https:// in HTTPS_PROXY.
		_, _ = c.nc.Write([]byte{0x15, 3, 1, 0, 2, 2, 10})
		c.srv.Log.Warn("a client speaks TLS to this plain listener; write http:// in HTTPS_PROXY", "listener", c.front.name, "client", c.key)
	case first == 4:
		_, _ = c.nc.Write([]byte{0, 91, 0, 0, 0, 0, 0, 0})
		c.srv.Log.Warn("a client speaks SOCKS4; SOCKS5 is served here", "listener", c.front.name, "client", c.key)
	case first == socksVersion:
		_, _ = c.nc.Write([]byte{socksVersion, methodNoneGood})
		c.srv.Log.Warn("a client speaks SOCKS to this listener, which serves HTTP", "listener", c.front.name, "client", c.key)
	case c.front.NoHTTP:
		c.srv.Log.Warn("a client speaks HTTP to this listener, which serves SOCKS5", "listener", c.front.name, "client", c.key)
	default:
		return false
	}
	c.recordRefused("unknown", netrule.CodeBadRequest, "")
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
	r := &refusal{code: he.code, status: he.status, why: he.why}
	if c.inside != nil {
		r.target = c.inside.target
	}
	c.refuse("unknown", r)
}

// handle serves the request whose head is the first n bytes of the buffer, and reports whether the connection goes on.
func (c *conn) handle(n int) bool {
	err := c.head.parse(c.in.bytes()[:n], c.srv.Limits.HeadFields, c.srv.pseudonym)
	if err != nil {
		c.refuseHead(err)
		return false
	}
	if code, shut := c.srv.shut(); shut {
		c.refuse("unknown", &refusal{code: code})
		return false
	}
	c.in.discard(n)
	if c.inside == nil {
		if code, ok := c.identify(c.credential()); !ok {
			return c.unidentified(code)
		}
	}
	if string(c.head.method) != "CONNECT" {
		return c.forward()
	}
	if c.inside != nil {
		c.refuse("http", &refusal{code: netrule.CodeBadRequest, target: c.inside.target, why: "CONNECT inside a tunnel"})
		return false
	}
	c.connect()
	return false
}

// unidentified answers a client that did not prove who it is, and reports whether the connection goes on: a challenge to a
// request without body keeps it, for the same request with credentials.
func (c *conn) unidentified(code netrule.Code) bool {
	keep := code == netrule.CodeAuthRequired && c.head.framing == noBody && !c.head.close && len(c.in.bytes()) == 0
	c.recordRefused("unknown", code, "")
	c.sendRefusal(&refusal{code: code, keep: keep})
	return keep
}

// admit asks the gate, whose verdict it keeps. On a refusal or failure the answer has been written and the result is
// false.
func (c *conn) admit(protocol string, q netrule.Query) bool {
	if c.inside != nil {
		fl := c.inside.tunnel.fl
		c.verdict = c.srv.Gate.AdmitAt(q, fl.workspace, fl.dest, fl.dialed)
	} else {
		c.patience.begin(c)
		c.verdict = c.srv.Gate.Admit(&c.patience, q, c.who.Workspace, c.client)
	}
	c.describe(protocol, q.Target, &c.verdict)
	if !c.verdict.OK {
		c.patience.end()
		c.refuseAdmission(q.Target, &c.verdict)
	}
	return c.verdict.OK
}

const (
	outcomeOK      = "ok"
	outcomeRefused = "refused"
	outcomeFailed  = "failed"
)

// describe fills the record of a request that was judged.
func (c *conn) describe(protocol string, t netrule.Target, a *Admission) {
	c.begin(&c.record)
	c.record.Protocol, c.record.Target, c.record.Judged, c.record.Decision, c.record.Code, c.record.Outcome = protocol, t, a.Judged, a.Decision, a.Code, outcomeOK
	c.record.LookedUp, c.record.DNS, c.record.Decide = a.LookedUp, a.DNS, a.Decided
	if p := a.Dest.Parent(); p != nil {
		c.record.Upstream, c.record.Delegated = p.String(), a.Dest.IsNamed()
	}
	if c.inside != nil {
		c.record.Stage, c.record.ID = stageTunnel, c.inside.tunnel.fl.id
	}
	c.record.Cause = c.hint
	if a.Cause != nil {
		c.record.Cause = a.Cause.Error()
	}
	if c.srv.PolicyHash != nil {
		c.record.Policy = c.srv.PolicyHash(a.Workspace)
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
	c.recordRefused(protocol, r.code, r.why)
	c.record.Target = r.target
	if c.inside != nil {
		c.record.Stage, c.record.ID = stageTunnel, c.inside.tunnel.fl.id
	}
	c.sendRefusal(r)
}

// badTarget answers a target that no parser of the wire accepts: before any policy, lookup or dial.
func (c *conn) badTarget(protocol string, err error) {
	c.recordRefused(protocol, netrule.CodeBadTarget, whyNoTarget(err))
	c.record.RawTarget = authorityOf(string(c.head.target))
	c.sendRefusal(&refusal{code: netrule.CodeBadTarget, why: "malformed target"})
}

// whyNoTarget is what a parser of targets says.
func whyNoTarget(err error) string {
	var te *netrule.TargetError
	if errors.As(err, &te) {
		return te.Why
	}
	return ""
}

// recordRefused starts the record of what is refused before any policy is asked.
func (c *conn) recordRefused(protocol string, code netrule.Code, cause string) {
	c.begin(&c.record)
	c.record.Protocol, c.record.Code, c.record.Outcome, c.record.Cause = protocol, code, outcomeRefused, cause
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
	r.Time = now
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
	err := c.say(r)
	switch {
	case err != nil:
	case r.keep:
		_ = c.nc.SetWriteDeadline(time.Time{}) // a closed connection shows itself in the next read
	default:
		c.linger()
	}
}

// say writes a refusal in the words of the protocol.
func (c *conn) say(r *refusal) error {
	buf := c.srv.pools.small.Get().(*[]byte)
	defer c.srv.pools.small.Put(buf)
	b := (*buf)[:0]
	if c.speaksSOCKS {
		b = append(b, socksReply(r.code)...)
	} else {
		b = r.append(b, c.front.voice)
	}
	if r.keep {
		_, err := c.nc.Write(b)
		return err
	}
	return writeLast(c.nc, b)
}

const (
	lingerFor   = 2 * time.Second
	lingerBytes = 64 << 20 // a client that sends its whole upload before it looks for an answer
)

// linger half-closes and reads what still comes, within bounds: a close with unread bytes would be a reset, which
// destroys the answer before it is read (RFC 9112 §9.6). The bytes are never parsed.
func (c *conn) linger() {
	_ = c.nc.SetReadDeadline(time.Now().Add(lingerFor)) // a closed connection has nothing to say any more
	drain(c.nc, c.srv.pools)
}

// turnAway answers a connection that got no slot, after its first bytes: some clients retry at once when they are
// closed without an answer.
func (c *conn) turnAway(code netrule.Code) {
	defer c.nc.Close()
	c.in.init(c.nc, c.srv.pools, firstBuffer, nil)
	defer c.giveBack()
	_ = c.nc.SetReadDeadline(time.Now().Add(lingerFor))
	if c.in.fill() != nil {
		return
	}
	switch first := c.in.bytes()[0]; {
	case c.front.TLS != nil, fromAny(c.front.ProxyProtocol, c.facts.Source), isRecord(first):
		c.turnAwayAtOnce(code) // nothing in clear can be read there
	case first == socksVersion:
		c.recordTurned("socks5", code)
		_, _ = c.nc.Write([]byte{socksVersion, methodNoneGood}) // as far as it gets
		c.linger()
	default:
		c.refuse("unknown", &refusal{code: code})
	}
}

// recordTurned records a connection that got no slot.
func (c *conn) recordTurned(protocol string, code netrule.Code) {
	c.recordRefused(protocol, code, "")
	c.observe()
	_ = c.nc.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)) // it need not arrive; the limit is the client's own
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

// turnAwayAtOnce answers without waiting for a byte, for a client that holds all that it may. Where HTTP in clear comes
// first is no more than a guess, so it says nothing there.
func (c *conn) turnAwayAtOnce(code netrule.Code) {
	defer c.nc.Close()
	c.recordTurned("unknown", code)
	if c.front.TLS != nil || c.front.NoHTTP || len(c.in.bytes()) > 0 {
		return
	}
	r := refusal{code: code, id: c.record.ID}
	_, _ = c.nc.Write(r.append(nil, c.front.voice)) // as far as it gets
}

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
	a := &c.verdict
	if c.inside != nil {
		c.patience.begin(c)
	}
	start := time.Now()
	l, code, err := c.dialWithin(&c.patience, a, q.Target.Scheme == netrule.SchemeHTTP)
	c.patience.end()
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
func (c *conn) dialWithin(ctx context.Context, a *Admission, plain bool) (link, netrule.Code, error) {
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

// hostOf reads the host of a Host field and whether it has a port.
func hostOf(host []byte) (name []byte, port []byte) {
	colon := bytes.LastIndexByte(host, ':')
	if colon < 0 || bytes.IndexByte(host[colon:], ']') >= 0 {
		return host, nil
	}
	return host[:colon], host[colon+1:]
}
