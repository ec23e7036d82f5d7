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
	verdict Admission // of the request
}

// maxScratch is the largest buffer that the next connection is left, in bytes.
const maxScratch = 8 << 10

// newConn makes a connection, which gives its scratch back at its end.
func (s *Server) newConn(p *party, nc net.Conn) *conn {
	return &conn{party: p, srv: s, nc: nc, raw: nc, scratch: s.pools.scratch.Get().(*scratch)}
}

// leaveScratch ends the use of the scratch, with what the connection panicked with.
func (c *conn) leaveScratch(panicked any) {
	if panicked != nil {
		c.in.abandon() // somebody may still hold some of it
		return
	}
	c.giveBack()
}

// giveBack hands the scratch on. Nothing of this connection is left in it.
func (c *conn) giveBack() {
	s := c.scratch
	c.scratch = nil
	s.in.release()
	s.in, s.scanner = reader{}, headScanner{}
	s.record, s.verdict = decisionlog.Decision{}, Admission{}
	if s.out = s.out[:0]; cap(s.out) > maxScratch {
		s.out = nil
	}
	s.head.forget()
	s.resp.forget()
	s.head.reset()
	s.resp.reset()
	c.srv.pools.scratch.Put(s)
}
