package proxy

import (
	"net"

	"dshproxy/proxy/decisionlog"
)

// scratch is what a connection needs while it serves requests, and no longer once it is a tunnel or has ended: the next
// connection gets it then.
type scratch struct {
	in      reader
	out     []byte // what is written
	scanner headScanner
	head    requestHead
	resp    responseHead
	record  decisionlog.Decision
}

// maxScratch is the largest buffer that the next connection is left, in bytes.
const maxScratch = 8 << 10

// newConn makes a connection, which gives its scratch back at its end.
func (s *Server) newConn(p *party, nc net.Conn) *conn {
	return &conn{party: p, srv: s, nc: nc, raw: nc, scratch: s.pools.scratch.Get().(*scratch)}
}

// giveBack hands the scratch on. Nothing of this connection is left in it.
func (c *conn) giveBack() {
	c.in.release()
	s := c.scratch
	c.scratch = nil
	out := s.out[:0]
	if cap(out) > maxScratch {
		out = nil
	}
	*s = scratch{out: out, head: s.head.empty(), resp: s.resp.empty()}
	c.srv.pools.scratch.Put(s)
}

// empty gives a head that keeps nothing but the room of this one.
func (h *requestHead) empty() requestHead {
	return requestHead{fields: emptied(h.fields), connection: emptied(h.connection)}
}

// empty gives a head that keeps nothing but the room of this one.
func (h *responseHead) empty() responseHead {
	return responseHead{fields: emptied(h.fields), connection: emptied(h.connection)}
}

func emptied[T any](s []T) []T {
	clear(s[:cap(s)])
	return s[:0]
}
