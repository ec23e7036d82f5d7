package proxy

import (
	"net"
	"net/netip"
	"time"

	"dshproxy/netrule"
	"dshproxy/proxy/decisionlog"
	"dshproxy/proxy/identity"
)

// party is a client as everything that it causes knows it: where it came in, what it is counted by and who it is. It is
// shared, so it never changes: a client that proves something else is another party.
type party struct {
	front  *front
	key    string
	who    identity.Identity
	proved bool
}

// begin starts a record about the client.
func (p *party) begin(r *decisionlog.Decision) {
	*r = decisionlog.Decision{}
	r.Listener, r.Client, r.Identity = p.front.name, p.key, p.who.Name
}

// query makes the question that the rules are asked.
func (p *party) query(t netrule.Target) netrule.Query {
	return netrule.Query{Target: t, Agents: p.who.Agents}
}

// identify finds out who the client is, from what it presents with this request. The first proof that applies decides;
// what is counted by client is counted under its name from now on. The code is that of a refusal.
func (c *conn) identify(credential identity.Credential, presented bool) (netrule.Code, bool) {
	book := c.srv.book()
	if !presented && c.nobody != nil && c.nobody == book {
		return 0, true
	}
	f := c.facts
	f.Credential, f.Presented, f.Now = credential, presented, time.Now()
	who, outcome := book.Identify(f)
	if outcome == identity.Refused {
		c.party = &party{front: c.front, key: c.key}
		return netrule.CodeAuthRequired, false
	}
	if who.Key != c.key && !c.moveTo(who.Key) {
		return netrule.CodeClientLimit, false
	}
	c.nobody = nil
	if outcome == identity.Anonymous && !presented {
		c.nobody = book
	}
	if outcome == identity.Proved || c.proved {
		c.party = &party{c.front, c.key, who, outcome == identity.Proved}
	}
	return 0, true
}

// credential reads what a request presents. Where no tokens are configured it is not even looked at.
func (c *conn) credential() (credential identity.Credential, presented bool) {
	h := &c.head
	if !h.hasProxyAuth || !c.srv.book().AsksForTokens() {
		return credential, false
	}
	credential, err := identity.ParseAuthorization(h.proxyAuth)
	if err != nil {
		return identity.Credential{}, true // and it is wrong
	}
	return credential, true
}

// factsOf is what the connection itself tells of a client.
func factsOf(nc net.Conn, listener string) identity.Facts {
	f := identity.Facts{Listener: listener}
	switch a := nc.RemoteAddr().(type) {
	case *net.TCPAddr:
		f.Source = a.AddrPort().Addr().Unmap().WithZone("")
	case *net.UnixAddr:
		f.PeerUID, f.HasPeer = identity.PeerUID(nc)
	}
	return f
}

// fromAny reports an address inside one of the networks.
func fromAny(networks []netip.Prefix, addr netip.Addr) bool {
	for _, n := range networks {
		if n.Contains(addr) {
			return true
		}
	}
	return false
}
