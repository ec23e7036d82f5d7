package identity

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"
)

const (
	secretA = "aaaa-secret-of-a-0001"
	secretB = "bbbb-secret-of-b-0002"
)

func named(name string, agents ...string) Grant { return Grant{Name: name, Agents: agents} }

func tok(name, secret string) Token { return Token{Grant: named(name), Token: secret} }

func mustBook(t *testing.T, c Config) *Book {
	t.Helper()
	b, err := NewBook(c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// TestNewBookRefuses has every entry that a book cannot hold, and the words for it.
func TestNewBookRefuses(t *testing.T) {
	many := make([]string, maxAgents+1)
	for i := range many {
		many[i] = "a"
	}
	long := strings.Repeat("x", maxName+1)
	tests := []struct {
		name string
		c    Config
		want string
	}{
		{"token without a name", Config{Tokens: []Token{tok("", secretA)}}, `tokens[0] "": name: empty`},
		{"token name with a colon", Config{Tokens: []Token{tok("a:b", secretA)}}, `tokens[0] "a:b": name: a colon, which ends the name in Basic credentials`},
		{"long name", Config{Tokens: []Token{tok(long, secretA)}}, `tokens[0] "` + long + `": name: longer than 128 bytes`},
		{"control character", Config{Tokens: []Token{tok("a\x1b[31m", secretA)}}, `tokens[0] "a\x1b[31m": name: characters that cannot be printed`},
		{"no UTF-8", Config{Tokens: []Token{tok("a\xff", secretA)}}, `tokens[0] "a\xff": name: characters that cannot be printed`},
		{"no token", Config{Tokens: []Token{tok("a", "")}}, `tokens[0] "a": token: shorter than 16 bytes`},
		{"short token", Config{Tokens: []Token{tok("a", "fifteen-bytes--")}}, `tokens[0] "a": token: shorter than 16 bytes`},
		{"long token", Config{Tokens: []Token{tok("a", strings.Repeat("x", maxToken+1))}}, `tokens[0] "a": token: longer than 4096 bytes`},
		{"token with a space", Config{Tokens: []Token{tok("a", "sixteen bytes no")}}, `tokens[0] "a": token: not printable ASCII without spaces`},
		{"token with a line end", Config{Tokens: []Token{tok("a", "sixteen-bytes-no\n")}}, `tokens[0] "a": token: not printable ASCII without spaces`},
		{"token beyond ASCII", Config{Tokens: []Token{tok("a", "sixteen-bytes-nö")}}, `tokens[0] "a": token: not printable ASCII without spaces`},
		{"two of a name", Config{Tokens: []Token{tok("a", secretA), tok("a", secretB)}}, `tokens[1] "a": a second token of this name`},
		{"two of a token", Config{Tokens: []Token{tok("a", secretA), tok("b", secretA)}}, `tokens[1] "b": the same token as "a"`},
		{"many agents", Config{Tokens: []Token{{Grant: named("a", many...), Token: secretA}}}, `tokens[0] "a": agents: more than 64`},
		{"an empty agent", Config{Tokens: []Token{{Grant: named("a", "b", ""), Token: secretA}}}, `tokens[0] "a": agents: empty`},

		{"negative uid", Config{Peers: []Peer{{UID: -1}}}, `peers[0] "uid:-1": no user id`},
		{"large uid", Config{Peers: []Peer{{UID: 1<<32 - 1}}}, `peers[0] "uid:4294967295": no user id`},
		{"two of a uid", Config{Peers: []Peer{{UID: 7}, {Grant: named("x"), UID: 7}}}, `peers[1] "uid:7": a second entry for this user`},
		{"agents of a peer", Config{Peers: []Peer{{Grant: named("", "\n"), UID: 7}}}, `peers[0] "uid:7": agents: characters that cannot be printed`},

		{"certificate by nothing", Config{Certificates: []Certificate{{Grant: named("c")}}}, `certificates[0] "c": needs either a SAN or a CN`},
		{"certificate by both", Config{Certificates: []Certificate{{SAN: "s", CN: "c"}}}, `certificates[0] "sc": needs either a SAN or a CN`},
		{"two of a SAN", Config{Certificates: []Certificate{{SAN: "s"}, {CN: "s"}, {SAN: "s"}}}, `certificates[2] "s": a second entry for these certificates`},
		{"long SAN", Config{Certificates: []Certificate{{SAN: long}}}, `certificates[0] "` + long + `": name: longer than 128 bytes`},

		{"no prefix", Config{Sources: []Source{{}}}, `sources[0] "invalid Prefix": no network`},
		{"mapped prefix", Config{Sources: []Source{{Prefix: prefix("::ffff:10.0.0.0/104")}}}, `sources[0] "::ffff:10.0.0.0/104": an IPv4-mapped network; write it as IPv4`},
		{"bits below", Config{Sources: []Source{{Prefix: prefix("10.0.0.1/8")}}}, `sources[0] "10.0.0.1/8": bits below its length; write 10.0.0.0/8`},
		{"two of a prefix", Config{Sources: []Source{{Prefix: prefix("10.0.0.0/8")}, {Prefix: prefix("10.0.0.0/8")}}}, `sources[1] "10.0.0.0/8": never reached behind 10.0.0.0/8, which holds it`},
		{"never reached", Config{Sources: []Source{{Prefix: prefix("10.0.0.0/8")}, {Prefix: prefix("10.1.0.0/16")}}}, `sources[1] "10.1.0.0/16": never reached behind 10.0.0.0/8, which holds it`},

		{"no listener", Config{Listeners: []Listener{{}}}, `listeners[0] "": no listener`},
		{"two of a listener", Config{Listeners: []Listener{{Listener: "l"}, {Listener: "l"}}}, `listeners[1] "l": a second entry for this listener`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b, err := NewBook(tt.c)
			var ee *EntryError
			if b != nil || !errors.As(err, &ee) || err.Error() != tt.want {
				t.Errorf("book %v, error %v, want %s", b, err, tt.want)
			}
		})
	}
}

// What is at the edge is taken.
func TestNewBookTakes(t *testing.T) {
	mustBook(t, Config{
		Tokens: []Token{
			tok("a b", "sixteen-bytes-ok"), tok("ünï", strings.Repeat("~", maxToken)), tok(strings.Repeat("n", maxName), "!\"#$%&'()*+,-./:"),
		},
		Peers:        []Peer{{UID: 0}, {Grant: named("same"), UID: 1}, {Grant: named("same"), UID: 1<<32 - 2}},
		Certificates: []Certificate{{SAN: "s"}, {CN: "s"}, {Grant: named("s"), SAN: "t"}},
		Sources:      []Source{{Prefix: prefix("10.1.0.0/16")}, {Prefix: prefix("10.0.0.0/16")}, {Prefix: prefix("10.0.0.0/8")}, {Prefix: prefix("::/0")}, {Prefix: prefix("0.0.0.0/0")}},
	})
}

// A book is its own: what it was made of can be changed afterwards.
func TestBookIsImmutable(t *testing.T) {
	c := Config{Tokens: []Token{{Grant: named("a", "agent"), Token: secretA}}}
	b := mustBook(t, c)
	c.Tokens[0].Agents[0] = "root"
	c.Tokens[0].Expires = time.Unix(1, 0)
	id, got := b.Identify(Facts{Credential: Credential{Name: "a", Token: secretA}, Now: now})
	if got != Proved || id.Agents[0] != "agent" {
		t.Errorf("%v %v, want agent proved", id.Agents, got)
	}
}
