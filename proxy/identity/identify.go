package identity

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"net/netip"
	"time"
)

// Facts are what is known of a client when it asks.
type Facts struct {
	// Listener is the name of the listener it came to.
	Listener string
	// Credential is what it presented, in Proxy-Authorization or as a SOCKS user with a password.
	Credential Credential
	// Presented says that it presented something, even what could not be read or is empty.
	Presented bool
	// Cert is its certificate, verified by TLS; nil without one.
	Cert *x509.Certificate
	// PeerUID is the user at the other end of a unix socket, where HasPeer.
	PeerUID int
	HasPeer bool
	// Source is where the connection came from; invalid where that has no address.
	Source netip.Addr
	// Now decides what has expired. Without it all that can expire has.
	Now time.Time
}

// Credential is a name with a token, or a token alone. The zero value is none.
type Credential struct {
	Name   string
	Token  string
	Bearer bool // there is no name
}

// Outcome is what became of a client's claim. The zero value refuses.
type Outcome uint8

// The outcomes.
const (
	Refused   Outcome = iota // answered 407, and Basic asked for
	Anonymous                // served, as nobody: it satisfies no agents of an allow rule
	Proved
)

func (o Outcome) String() string {
	return [...]string{"refused", "anonymous", "proved"}[min(o, Proved)]
}

// Identity is who a client is. The zero value is nobody. Agents are shared and must not be changed.
type Identity struct {
	Name      string
	Agents    []string
	Workspace string
	// Key is what limits are counted by: the entry that named the client, else its user, else its address (IPv6 by
	// /64), else its listener.
	Key string

	proof proof
}

// proof is what decided, so that it can be asked for again in another book.
type proof struct {
	by       kind
	digest   digest
	listener string
	cert     *x509.Certificate
	uid      int
	source   netip.Addr
}

type kind uint8

const (
	byNothing kind = iota
	byEntryOfCertificate
	byToken
	byPeer
	byListener
	bySource
	byCertificateAlone
)

// Identify tells who a client is. Certificate, token, peer, listener and source are tried in this order; the first that
// has an entry decides, and nothing is merged. Where tokens are configured, a client that presented a wrong one is
// refused whatever else it is; where none are, nobody looks at what it presented. A client without an entry is
// anonymous where that is allowed, and refused elsewhere; where neither tokens nor certificates have entries, a verified
// certificate is enough to be served, with its own name and no agents. An identity that comes with Refused or Anonymous
// has only its Key.
func (b *Book) Identify(f Facts) (Identity, Outcome) {
	nobody := Identity{Key: f.key()}
	if b == nil {
		return nobody, Refused
	}
	var digest digest
	if b.AsksForTokens() && f.presented() {
		t := b.presented(f.Credential)
		if !t.right(f.Listener, f.Now) {
			return nobody, Refused
		}
		digest = t.digest
	}
	p := proof{digest: digest, listener: f.Listener, cert: f.Cert, uid: f.PeerUID, source: plain(f.Source)}
	if id, ok := b.first(p, f.HasPeer, f.Now); ok {
		return id, Proved
	}
	if b.anonymous || !b.AsksForTokens() && b.local[f.Listener] {
		return nobody, Anonymous
	}
	return nobody, Refused
}

// AsksForTokens reports whether tokens are configured. Where they are not, nothing that is presented needs to be read,
// and SOCKS clients are not asked for a password.
func (b *Book) AsksForTokens() bool { return b != nil && len(b.tokens) > 0 }

// first gives the identity of the first kind of proof that has an entry.
func (b *Book) first(p proof, hasPeer bool, now time.Time) (Identity, bool) {
	for p.by = byEntryOfCertificate; p.by <= byCertificateAlone; p.by++ {
		if p.by == byPeer && !hasPeer {
			continue
		}
		if id, ok := b.find(p, now); ok {
			return id, true
		}
	}
	return Identity{}, false
}

// find gives the identity that a proof has in this book.
func (b *Book) find(p proof, now time.Time) (id Identity, ok bool) {
	switch p.by {
	case byEntryOfCertificate:
		id, ok = b.ofCertificate(p.cert, now)
	case byToken:
		t := b.ofDigest(p.digest)
		if ok = t.right(p.listener, now); ok {
			id = t.id
		}
	case byPeer:
		id, ok = b.peers[p.uid]
	case byListener:
		id, ok = b.listeners[p.listener]
	case bySource:
		id, ok = b.ofSource(p.source)
	case byCertificateAlone:
		if ok = !b.AsksForTokens() && len(b.certificates) == 0 && inTime(p.cert, now); ok {
			id = selfNamed(p.cert)
		}
	case byNothing:
	}
	id.proof = p
	return id, ok
}

// Renew tells who a client that was proved is now, for what is still in flight after a reload or a while: the same
// entry, with what it grants today. It is false when the entry is gone, has expired or no longer holds what the client
// proved, such as a token that was replaced: the client is then unknown. What it holds is still counted under the old
// Key.
func (b *Book) Renew(id Identity, now time.Time) (Identity, bool) {
	if b == nil {
		return Identity{}, false
	}
	again, ok := b.find(id.proof, now)
	if !ok || again.Key != id.Key {
		return Identity{}, false
	}
	return again, true
}

// presented gives the token that a client presented; nil when it is none of ours.
func (b *Book) presented(c Credential) *token {
	t := b.ofDigest(sha256.Sum256([]byte(c.Token)))
	if t == nil || !c.Bearer && c.Name != t.id.Name {
		return nil
	}
	return t
}

// ofDigest compares with every token, hash by hash and to the end, so that the time tells nothing about any of them.
func (b *Book) ofDigest(d digest) *token {
	var found *token
	for i := range b.tokens {
		if subtle.ConstantTimeCompare(b.tokens[i].digest[:], d[:]) == 1 {
			found = &b.tokens[i]
		}
	}
	return found
}

// right reports whether a token may be used here and now.
func (t *token) right(listener string, now time.Time) bool {
	return t != nil && (t.listener == "" || t.listener == listener) && (t.expires.IsZero() || !now.IsZero() && now.Before(t.expires))
}

func (b *Book) ofSource(addr netip.Addr) (Identity, bool) {
	for i := range b.sources {
		if b.sources[i].prefix.Contains(addr) {
			return b.sources[i].id, true
		}
	}
	return Identity{}, false
}

func (f *Facts) presented() bool { return f.Presented || f.Credential != Credential{} }

// key names a client that has no entry.
func (f *Facts) key() string {
	addr := plain(f.Source)
	switch {
	case f.HasPeer:
		return uidKey(f.PeerUID)
	case addr.Is4():
		return addr.String()
	case addr.IsValid():
		p, _ := addr.Prefix(64) // an IPv6 address has 64 bits
		return p.String()
	default:
		return listenerKey(f.Listener)
	}
}

// plain gives an address as prefixes know it.
func plain(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }
