package proxy

import (
	"net"
	"net/netip"

	"dshproxy/netrule"
	"dshproxy/resolve"
)

// maxOrigins is how many origin connections a client connection keeps.
const maxOrigins = 4

// originConn is a connection to an origin. It belongs to one client connection and dies with it.
type originConn struct {
	c      *net.TCPConn
	in     reader
	addr   netip.AddrPort
	policy *netrule.Policy // the policy generation under which it was dialled
	reused bool
}

func (o *originConn) close() {
	o.c.Close()
	o.in.release()
}

// takeOrigin gives a kept connection to one of the admitted addresses, of the same policy, that is still quiet: bytes
// that nobody asked for would become the answer to the next request.
func (c *conn) takeOrigin(dest resolve.Pinned, policy *netrule.Policy) *originConn {
	for i := 0; i < len(c.origins); i++ {
		o := c.origins[i]
		if o.policy != policy {
			c.dropOrigin(i)
			i--
			continue
		}
		if !dest.Contains(o.addr) {
			continue
		}
		c.origins = append(c.origins[:i], c.origins[i+1:]...)
		if !isQuiet(o.c) {
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

// newOrigin wraps a fresh connection.
func (c *conn) newOrigin(up *net.TCPConn, addr netip.AddrPort, policy *netrule.Policy) *originConn {
	o := &originConn{c: up, addr: addr, policy: policy}
	o.in.init(up, c.srv.pools, c.srv.Limits.HeadBytes, nil)
	return o
}
