package proxy

import (
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"time"

	"dshproxy/netrule"
	"dshproxy/proxy/identity"
)

// Listener is a listening socket with what belongs to it.
type Listener struct {
	net.Listener
	// Name stands in records and metrics.
	Name string
	// Explain makes denials name file, line and the command that allows; for clients on the same machine.
	Explain bool
	// TLS, if not nil, is spoken before anything else. It is asked for its certificates with each handshake, so that they
	// may change. Verified client certificates identify.
	TLS *tls.Config
	// ProxyProtocol are the networks whose connections must begin with a PROXY header, which tells the client's address.
	ProxyProtocol []netip.Prefix
	// NoHTTP and NoSOCKS leave a protocol out.
	NoHTTP, NoSOCKS bool
}

// front is a listener as its connections know it.
type front struct {
	*Listener
	name  string
	voice *voice
}

// greet does what comes before the first byte of a request: the PROXY header and TLS. It is done by the connection's own
// goroutine, within the time of a head.
func (c *conn) greet() bool {
	if fromAny(c.front.ProxyProtocol, c.facts.Source) && !c.readProxyHeader() {
		return false
	}
	if c.front.TLS == nil {
		return true
	}
	_ = c.nc.SetDeadline(time.Now().Add(c.srv.Limits.HeadTimeout)) // a closed connection fails in the handshake
	raw := net.Conn(&earlyConn{Conn: c.nc, early: c.early})
	secure := tls.Server(raw, c.front.TLS)
	if err := secure.HandshakeContext(c.srv.base); err != nil {
		c.srv.Log.Debug("a TLS handshake failed", "listener", c.front.name, "client", c.key, "err", err)
		return false
	}
	_ = c.nc.SetDeadline(time.Time{}) // as above
	c.early = nil
	if chains := secure.ConnectionState().VerifiedChains; len(chains) > 0 {
		c.facts.Cert = chains[0][0]
	}
	c.nc = secure
	return true
}

// maxProxyHeader bounds a PROXY header and what has come behind it, in bytes.
const maxProxyHeader = 4 << 10

// readProxyHeader learns the client's address from the load balancer. Its bytes behind the header are kept.
func (c *conn) readProxyHeader() bool {
	_ = c.nc.SetReadDeadline(time.Now().Add(c.srv.Limits.HeadTimeout)) // a closed connection fails in the read
	buf := make([]byte, 0, maxProxyHeader)
	for {
		addr, n, err := identity.ParseProxyHeader(buf)
		if err == nil {
			c.early = buf[n:]
			if addr.IsValid() {
				c.facts.Source = addr.Addr().Unmap().WithZone("")
				if !c.moveTo(clientKey(&c.facts)) {
					c.recordRefused("unknown", netrule.CodeClientLimit, "")
					c.observe()
					return false
				}
			}
			return true
		}
		if !errors.Is(err, identity.ErrMore) || len(buf) == cap(buf) {
			c.srv.Log.Warn("a connection without the PROXY header that its network must send", "listener", c.front.name, "client", c.key)
			return false
		}
		got, err := c.nc.Read(buf[len(buf):cap(buf)])
		if got == 0 && err != nil {
			return false
		}
		buf = buf[:len(buf)+got]
	}
}

// moveTo counts the connection under another client, if that may have one more.
func (c *conn) moveTo(key string) bool {
	one, ok := c.srv.clients.move(c.client, key)
	if ok {
		c.client = one
		next := *c.party
		next.key = key
		c.party = &next
	}
	return ok
}

// earlyConn gives bytes that were read before the TLS hello once more.
type earlyConn struct {
	net.Conn
	early []byte
}

func (c *earlyConn) Read(b []byte) (int, error) {
	if len(c.early) > 0 {
		n := copy(b, c.early)
		c.early = c.early[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}
