package proxy

import (
	"time"

	"dshproxy/netrule"
)

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
