package proxy

import (
	"bytes"
	"time"

	"dshproxy/netrule"
)

var established = []byte("HTTP/1.1 200 Connection Established\r\n\r\n")

// connect serves CONNECT (RFC 9110 §9.3.6): judge, dial, answer 200, and then move bytes. Whatever the client sent
// behind its head goes first, and only after the verdict; behind a refusal it is never looked at.
func (c *conn) connect() {
	h := &c.head
	if h.framing == byChunks || h.framing == byLength && h.length > 0 {
		c.refuse("connect", &refusal{code: netrule.CodeBadRequest, why: "CONNECT takes no body"})
		return
	}
	target, err := netrule.ParseConnect(string(h.target))
	if err != nil {
		c.badTarget("connect", err)
		return
	}
	why := ""
	if !bytes.Equal(h.host, h.target) { // most clients send the same text twice
		why = authorityMismatch(h, target)
	}
	if why != "" {
		c.refuse("connect", &refusal{code: netrule.CodeAuthorityMismatch, target: target, why: why})
		return
	}
	if c.loops(target) {
		return
	}
	c.open("connect", target, established)
}

// open judges, dials, says so to the client and hands both connections to a tunnel.
func (c *conn) open(protocol string, target netrule.Target, granted []byte) {
	q := c.query(target)
	if !c.admit(protocol, q) {
		return
	}
	l, ok := c.dial(q)
	if !ok {
		return
	}
	c.observe()
	c.tunnel(l, granted, q)
}

// loops refuses a request that has passed through this process already, or through too many proxies.
func (c *conn) loops(target netrule.Target) bool {
	if !c.head.ownVia && c.head.viaEntries <= maxVia {
		return false
	}
	c.refuse("unknown", &refusal{code: netrule.CodeLoop, target: target})
	return true
}

const maxVia = 20

// authorityMismatch compares the Host field of a CONNECT with its target. A missing Host and one without a port are
// common (http.client, undici) and accepted; another host or port is not.
func authorityMismatch(h *requestHead, t netrule.Target) string {
	if !h.hasHost || len(h.host) == 0 {
		return ""
	}
	name, port := hostOf(h.host)
	if port != nil && string(port) != itoa(int(t.Port)) {
		return "the port of Host differs from the target"
	}
	host, err := netrule.ParseHTTPAuthority(string(name))
	if err != nil || host.Host != t.Host {
		return "Host differs from the target"
	}
	return ""
}

// tunnel says so to the client, hands both connections to two goroutines and returns: the stack that the dial has grown
// is not held. What the client sends first is looked at.
func (c *conn) tunnel(l link, head []byte, q netrule.Query) {
	t := c.newTunnel(l, head, q)
	t.open = true
	t.start()
}

// newTunnel makes a tunnel of both connections, which it owns from now on, as it does head.
func (c *conn) newTunnel(l link, head []byte, q netrule.Query) *tunnel {
	a := &c.verdict
	t := &tunnel{party: c.party, srv: c.srv, client: c.nc, target: l.c, slot: c.client}
	t.fl = &flight{
		party: c.party, id: c.record.ID, protocol: c.record.Protocol, query: q, workspace: a.Workspace, dest: a.Dest, dialed: l.addr, policy: a.Policy,
		start: time.Now(), limit: c.srv.Limits.TunnelBytes, end: t.close,
	}
	t.fl.keepAlive = func() { setKeepAlive(t.client, t.target) }
	t.toTarget = bytes.Clone(c.in.bytes())
	t.toClient, t.headLen = head, len(head)
	if len(l.early) > 0 {
		t.toClient = append(bytes.Clone(head), l.early...)
	}
	c.handed = true
	return t
}

// hostOf reads the host of a Host field and whether it has a port.
func hostOf(host []byte) (name []byte, port []byte) {
	colon := bytes.LastIndexByte(host, ':')
	if colon < 0 || bytes.IndexByte(host[colon:], ']') >= 0 {
		return host, nil
	}
	return host[:colon], host[colon+1:]
}
