package proxy

import (
	"errors"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"dshproxy/netrule"
	"dshproxy/proxy/identity"
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
	patience    *patience // of the request that waits; nil for none
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
	c.endWait() // a panic may have left it running
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
	c.leaveScratch(p)
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

// admit asks the gate, whose verdict it keeps. On a refusal or failure the answer has been written and the result is
// false.
func (c *conn) admit(protocol string, q netrule.Query) bool {
	if c.inside != nil {
		fl := c.inside.tunnel.fl
		c.verdict = c.srv.Gate.AdmitAt(q, fl.workspace, fl.dest, fl.dialed)
	} else {
		c.verdict = c.srv.Gate.Admit(c.beginWait(), q, c.who.Workspace, c.client)
	}
	c.describe(protocol, q.Target)
	if !c.verdict.OK {
		c.endWait()
		c.refuseAdmission(q.Target)
	}
	return c.verdict.OK
}

const (
	outcomeOK      = "ok"
	outcomeRefused = "refused"
	outcomeFailed  = "failed"
)

// describe fills the record of a request that was judged.
func (c *conn) describe(protocol string, t netrule.Target) {
	a := &c.verdict
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

// observe gives the record its time and id, and hands it out.
func (c *conn) observe() {
	now := time.Now()
	r := &c.record
	r.Time = now
	if r.ID == "" {
		r.ID = newID(now)
	}
	c.srv.decided(r)
}
