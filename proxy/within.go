package proxy

import (
	"strings"

	"dshproxy/netrule"
)

// inside is what a connection knows that serves requests inside a tunnel: where all of them go, whatever they say.
type inside struct {
	target netrule.Target
	tunnel *tunnel
}

// within makes the connection that serves clear HTTP in a tunnel. It begins with what the client has sent already, and
// with the connection that the tunnel has to its target.
func (t *tunnel) within(target netrule.Target) *conn {
	c := t.srv.newConn(t.party, t.client)
	c.client, c.inside = t.slot, &inside{target, t}
	c.in.init(c.nc, c.srv.pools, c.srv.Limits.HeadBytes, &c.srv.budget)
	c.in.preload(t.opening.held)
	o := &originConn{c: t.target, addr: t.fl.dialed, dest: t.fl.dest, policy: t.fl.policy}
	o.in.init(t.target, c.srv.pools, c.srv.Limits.HeadBytes, nil)
	c.keepOrigin(o)
	c.srv.conns.add(c)
	return c
}

// serveWithin reads requests until the client's side ends.
func (c *conn) serveWithin() {
	for {
		n, err := c.readHead(false)
		if err != nil {
			c.refuseHead(err)
			return
		}
		if n == 0 || !c.handle(n) {
			return
		}
		c.in.shrink()
	}
}

// leave ends the connection inside a tunnel. The tunnel closes the client's side and gives back its slot, unless that has
// become a tunnel of another kind.
func (c *conn) leave(t *tunnel) {
	p := recover()
	c.endWait() // a panic may have left it running
	if p != nil {
		c.srv.Log.Error("internal error", "panic", p)
		c.handed = false
	}
	c.closeOrigins()
	c.leaveScratch(p)
	t.left = c.handed
	t.slot = c.client
	t.fl.note("client", "eof")
	c.srv.conns.remove(c)
}

// targetWithin reads the target of a request inside a tunnel, or answers it: it must name the tunnel's own, in Host and in
// absolute-form alike (RFC 9112 §3.2).
func (c *conn) targetWithin() (t netrule.Target, rest string, ok bool) {
	h, want := &c.head, c.inside.target
	raw := string(h.target)
	foreign := func(why string) (netrule.Target, string, bool) {
		c.refuse("http", &refusal{code: netrule.CodeHostMismatch, target: want, why: why})
		return want, "", false
	}
	if why := authorityMismatch(h, want); why != "" {
		return foreign(why)
	}
	switch {
	case string(h.method) == "TRACE":
		c.refuse("http", &refusal{code: netrule.CodeBadRequest, status: 405, target: want, why: "TRACE is not served"})
		return want, "", false
	case !h.hasHost && h.minor > 0: // RFC 9112 §3.2
		c.refuse("http", &refusal{code: netrule.CodeBadRequest, target: want, why: "no Host field"})
		return want, "", false
	case raw == "*" && string(h.method) == "OPTIONS":
		return want, "", true
	case strings.HasPrefix(raw, "/") && !strings.Contains(raw, "#"):
		return want, raw, true
	}
	t, rest, err := netrule.ParseAbsolute(raw)
	if err != nil || strings.Contains(rest, "#") {
		c.refuse("http", &refusal{code: netrule.CodeBadRequest, target: want, why: "a malformed request target"})
		return want, "", false
	}
	if t.Host != want.Host || t.Port != want.Port || t.Scheme != netrule.SchemeHTTP {
		return foreign("the request target differs from that of the tunnel")
	}
	return want, rest, true
}
