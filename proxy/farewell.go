package proxy

import (
	"net"
	"time"
)

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

// drain half-closes and reads what still comes, within bounds.
func drain(c net.Conn, pools *bufferPools) {
	half, ok := c.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	buf := pools.small.Get().(*[]byte)
	defer pools.small.Put(buf)
	for total := 0; total < lingerBytes; {
		n, err := c.Read(*buf)
		total += n
		if err != nil {
			return
		}
	}
}
