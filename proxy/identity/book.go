package identity

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"
)

// Book knows every client that has a name. It does not change: a reload makes a new one. A nil Book refuses everybody.
type Book struct {
	tokens       []token
	certificates []certificate
	peers        map[int]Identity
	listeners    map[string]Identity
	sources      []source
	local        map[string]bool
	anonymous    bool
}

type digest = [sha256.Size]byte

type token struct {
	id       Identity
	digest   digest
	expires  time.Time
	listener string
}

type certificate struct {
	id      Identity
	san, cn string
}

type source struct {
	id     Identity
	prefix netip.Prefix
}

// NewBook makes a book. The error is an *EntryError about the first entry that is wrong.
func NewBook(c Config) (*Book, error) {
	b := &Book{peers: map[int]Identity{}, listeners: map[string]Identity{}, local: map[string]bool{}, anonymous: c.AllowAnonymous}
	for _, name := range c.Local {
		b.local[name] = true
	}
	err := cmp.Or(
		each("tokens", c.Tokens, b.addToken),
		each("peers", c.Peers, b.addPeer),
		each("certificates", c.Certificates, b.addCertificate),
		each("sources", c.Sources, b.addSource),
		each("listeners", c.Listeners, b.addListener),
	)
	if err != nil {
		return nil, err
	}
	return b, nil
}

// each adds the entries of a list and says which one is wrong. add also tells what to call an entry.
func each[E any](list string, entries []E, add func(*E) (string, error)) error {
	for i := range entries {
		if name, err := add(&entries[i]); err != nil {
			return &EntryError{List: list, Index: i, Name: name, What: err.Error()}
		}
	}
	return nil
}

func (b *Book) addToken(t *Token) (string, error) {
	id, err := t.identity("token:", "")
	if err = cmp.Or(err, checkToken(t)); err != nil {
		return t.Name, err
	}
	d := sha256.Sum256([]byte(t.Token))
	for i := range b.tokens {
		switch other := &b.tokens[i]; {
		case other.id.Name == t.Name:
			return t.Name, errors.New("a second token of this name")
		case other.digest == d:
			return t.Name, fmt.Errorf("the same token as %q", other.id.Name)
		}
	}
	b.tokens = append(b.tokens, token{id, d, t.Expires, t.Listener})
	return t.Name, nil
}

func (b *Book) addPeer(p *Peer) (string, error) {
	key := uidKey(p.UID)
	if p.UID < 0 || int64(p.UID) > maxUID {
		return key, errors.New("no user id")
	}
	if _, twice := b.peers[p.UID]; twice {
		return key, errors.New("a second entry for this user")
	}
	id, err := p.identity("", key)
	id.Key = key // as the user would be counted without an entry
	b.peers[p.UID] = id
	return key, err
}

func (b *Book) addCertificate(c *Certificate) (string, error) {
	match := c.SAN + c.CN
	if (c.SAN == "") == (c.CN == "") {
		return cmp.Or(c.Name, match), errors.New("needs either a SAN or a CN")
	}
	if slices.ContainsFunc(b.certificates, func(o certificate) bool { return o.san == c.SAN && o.cn == c.CN }) {
		return match, errors.New("a second entry for these certificates")
	}
	id, err := c.identity("cert:", match)
	b.certificates = append(b.certificates, certificate{id, c.SAN, c.CN})
	return match, err
}

func (b *Book) addSource(s *Source) (string, error) {
	text := s.Prefix.String()
	if err := checkPrefix(s.Prefix); err != nil {
		return text, err
	}
	for _, o := range b.sources {
		if o.prefix.Bits() <= s.Prefix.Bits() && o.prefix.Contains(s.Prefix.Addr()) {
			return text, fmt.Errorf("never reached behind %s, which holds it", o.prefix)
		}
	}
	id, err := s.identity("source:", text)
	id.Key = "source:" + text
	b.sources = append(b.sources, source{id, s.Prefix})
	return text, err
}

func (b *Book) addListener(l *Listener) (string, error) {
	if l.Listener == "" {
		return "", errors.New("no listener")
	}
	if _, twice := b.listeners[l.Listener]; twice {
		return l.Listener, errors.New("a second entry for this listener")
	}
	id, err := l.identity("", l.Listener)
	id.Key = listenerKey(l.Listener)
	b.listeners[l.Listener] = id
	return l.Listener, err
}

// identity makes what an entry proves. The name is the entry's or the one given.
func (g *Grant) identity(kind, name string) (Identity, error) {
	whole := Grant{Name: cmp.Or(g.Name, name), Agents: slices.Clone(g.Agents), Workspace: g.Workspace}
	if len(whole.Agents) == 0 {
		whole.Agents = []string{whole.Name}
	}
	id := Identity{Name: whole.Name, Agents: whole.Agents, Workspace: whole.Workspace, Key: kind + whole.Name}
	return id, checkGrant(&whole)
}

func uidKey(uid int) string { return "uid:" + strconv.Itoa(uid) }

func listenerKey(name string) string { return "listener:" + name }
