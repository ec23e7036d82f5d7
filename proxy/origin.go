package proxy

import (
	"net"
	"net/netip"

	"dshproxy/netrule"
	"dshproxy/upstream"
)

// maxOrigins is how many origin connections a client connection keeps.
const maxOrigins = 4

// originConn is a connection to an origin. It belongs to one client connection and dies with it.
type originConn struct {
	c    net.Conn
	in   reader
	addr netip.AddrPort
	dest upstream.Destination
	// parent gets requests in absolute-form; nil where the connection reaches the origin itself.
	parent *upstream.Parent
	policy *netrule.Policy // the policy generation under which it was dialled
	reused bool
}

func (o *originConn) close() {
	o.c.Close()
	o.in.release()
}

// takeOrigin gives a kept connection to one of the admitted addresses, of the same policy, that is still quiet: bytes
// that nobody asked for would become the answer to the next request.
func (c *conn) takeOrigin(dest upstream.Destination, policy *netrule.Policy) *originConn {
	for i := 0; i < len(c.origins); i++ {
		o := c.origins[i]
		if o.policy != policy {
			c.dropOrigin(i)
			i--
			continue
		}
		if !o.reaches(dest) {
			continue
		}
		c.origins = append(c.origins[:i], c.origins[i+1:]...)
		if tcp, ok := o.c.(*net.TCPConn); !ok || !isQuiet(tcp) {
			o.close()
			return nil
		}
		o.reused = true
		return o
	}
	return nil
}

func (c *conn) keepOrigin(o *originConn) {
	if len(c.origins) == maxOrigins {
		c.dropOrigin(0)
	}
	c.origins = append(c.origins, o)
}

func (c *conn) dropOrigin(i int) {
	c.origins[i].close()
	c.origins = append(c.origins[:i], c.origins[i+1:]...)
}

func (c *conn) closeOrigins() {
	for _, o := range c.origins {
		o.close()
	}
	c.origins = nil
}

// reaches reports whether the connection is one to a destination: to one of its addresses, or to its name behind the same
// parent.
func (o *originConn) reaches(dest upstream.Destination) bool {
	if o.dest.IsNamed() || dest.IsNamed() {
		return o.dest.SameName(dest)
	}
	return o.dest.Parent() == dest.Parent() && dest.Pinned().Contains(o.addr)
}

// newOrigin wraps a fresh connection.
func (c *conn) newOrigin(l link, dest upstream.Destination, policy *netrule.Policy) *originConn {
	o := &originConn{c: l.c, addr: l.addr, dest: dest, parent: l.parent, policy: policy}
	o.in.init(l.c, c.srv.pools, c.srv.Limits.HeadBytes, nil)
	o.in.preload(l.early)
	return o
}
