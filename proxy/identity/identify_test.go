package identity

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"testing"
	"time"
)

var now = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// cert is a certificate that TLS has verified, valid for a day around now.
func cert(cn string, dns ...string) *x509.Certificate {
	return &x509.Certificate{Raw: []byte(cn), Subject: pkix.Name{CommonName: cn}, DNSNames: dns, NotBefore: now.Add(-12 * time.Hour), NotAfter: now.Add(12 * time.Hour)}
}

// everything has an entry of each kind.
func everything() Config {
	return Config{
		Tokens: []Token{
			{Grant: Grant{"ci", []string{"build", "deploy"}, "/w/ci"}, Token: secretA},
			{Grant: named("brief"), Token: secretB, Expires: now, Listener: ""},
			{Grant: named("bound"), Token: "bound-to-a-listener", Listener: "inner"},
		},
		Certificates: []Certificate{{Grant: named("mesh", "mesh-agent"), SAN: "spiffe://x/mesh"}, {CN: "Old Style"}, {SAN: "Host.Example"}, {SAN: "a@b.c"}, {SAN: "192.0.2.7"}},
		Peers:        []Peer{{UID: 1000}, {Grant: named("worker"), UID: 1001}},
		Listeners:    []Listener{{Grant: named("", "l-agent"), Listener: "inner"}},
		Sources:      []Source{{Grant: named("rack"), Prefix: prefix("10.1.0.0/16")}, {Prefix: prefix("10.0.0.0/8")}, {Prefix: prefix("2001:db8::/32")}},
	}
}

func without(lists ...string) Config {
	c := everything()
	for _, l := range lists {
		switch l {
		case "tokens":
			c.Tokens = nil
		case "certificates":
			c.Certificates = nil
		case "sources":
			c.Sources = nil
		}
	}
	return c
}

func basic(name, token string) Credential { return Credential{Name: name, Token: token} }

func bearer(token string) Credential { return Credential{Token: token, Bearer: true} }

func TestIdentify(t *testing.T) {
	ten := netip.MustParseAddr("10.9.9.9")
	far := netip.MustParseAddr("203.0.113.5")
	mesh := cert("x", "y")
	mesh.URIs = []*url.URL{{Scheme: "spiffe", Host: "x", Path: "/mesh"}}
	mail := cert("x")
	mail.EmailAddresses = []string{"a@b.c"}
	mailCase := cert("x")
	mailCase.EmailAddresses = []string{"A@b.c"}
	ip := cert("x")
	ip.IPAddresses = []net.IP{net.IPv4(192, 0, 2, 7)}
	old := cert("Old Style")
	expired := cert("Old Style")
	expired.NotAfter = now.Add(-time.Second)
	early := cert("Old Style")
	early.NotBefore = now.Add(time.Second)
	anybody := everything()
	anybody.AllowAnonymous = true
	local := Config{Local: []string{"inner"}}
	localTokens := Config{Local: []string{"inner"}, Tokens: []Token{tok("ci", secretA)}}
	certsOnly := Config{}

	tests := []struct {
		name   string
		c      Config
		f      Facts
		want   Outcome
		agents string // joined by spaces; "-" where there are none
		key    string
	}{
		{"Basic", everything(), Facts{Credential: basic("ci", secretA), Source: far}, Proved, "build deploy", "token:ci"},
		{"Bearer", everything(), Facts{Credential: bearer(secretA), Source: far}, Proved, "build deploy", "token:ci"},
		{"the name is needed", everything(), Facts{Credential: basic("", secretA), Source: far}, Refused, "-", "203.0.113.5"},
		{"the name of another", everything(), Facts{Credential: basic("bound", secretA), Source: far}, Refused, "-", "203.0.113.5"},
		{"the case of the name", everything(), Facts{Credential: basic("CI", secretA), Source: far}, Refused, "-", "203.0.113.5"},
		{"a prefix of the token", everything(), Facts{Credential: basic("ci", secretA[:len(secretA)-1])}, Refused, "-", "listener:"},
		{"more than the token", everything(), Facts{Credential: basic("ci", secretA+"x")}, Refused, "-", "listener:"},
		{"no token", everything(), Facts{Credential: basic("ci", "")}, Refused, "-", "listener:"},
		{"an unknown bearer", everything(), Facts{Credential: bearer("unknown-to-everyone")}, Refused, "-", "listener:"},
		{"an empty bearer", everything(), Facts{Credential: bearer("")}, Refused, "-", "listener:"},
		{"something that could not be read", everything(), Facts{Presented: true, HasPeer: true, PeerUID: 1000}, Refused, "-", "uid:1000"},
		{"expired at this moment", everything(), Facts{Credential: basic("brief", secretB)}, Refused, "-", "listener:"},
		{"not yet expired", everything(), Facts{Credential: basic("brief", secretB), Now: now.Add(-1)}, Proved, "brief", "token:brief"},
		{"bound to this listener", everything(), Facts{Credential: basic("bound", "bound-to-a-listener"), Listener: "inner"}, Proved, "bound", "token:bound"},
		{"bound to another listener", everything(), Facts{Credential: basic("bound", "bound-to-a-listener"), Listener: "outer"}, Refused, "-", "listener:outer"},
		{"wrong token beside a certificate", everything(), Facts{Credential: basic("ci", "wrong"), Cert: old}, Refused, "-", "listener:"},
		{"wrong token beside all else", everything(), Facts{Credential: basic("ci", "wrong"), HasPeer: true, PeerUID: 1000, Listener: "inner", Source: ten}, Refused, "-", "uid:1000"},
		{"wrong token where anybody is served", anybody, Facts{Credential: basic("ci", "wrong")}, Refused, "-", "listener:"},
		{"no tokens: presented is not looked at", without("tokens"), Facts{Credential: basic("ci", "wrong"), Presented: true, Source: ten}, Proved, "10.0.0.0/8", "source:10.0.0.0/8"},

		{"certificate before token", everything(), Facts{Credential: basic("ci", secretA), Cert: mesh}, Proved, "mesh-agent", "cert:mesh"},
		{"certificate by its common name", everything(), Facts{Cert: old}, Proved, "Old Style", "cert:Old Style"},
		{"DNS names have no case", everything(), Facts{Cert: cert("", "other.example", "hOST.eXAMPLE")}, Proved, "Host.Example", "cert:Host.Example"},
		{"a wildcard is no host", everything(), Facts{Cert: cert("", "*.example")}, Refused, "-", "listener:"},
		{"a common name is no SAN", everything(), Facts{Cert: cert("Host.Example")}, Refused, "-", "listener:"},
		{"a SAN is no common name", everything(), Facts{Cert: cert("", "Old Style")}, Refused, "-", "listener:"},
		{"certificate by mail address", everything(), Facts{Cert: mail}, Proved, "a@b.c", "cert:a@b.c"},
		{"mail addresses have case", everything(), Facts{Cert: mailCase}, Refused, "-", "listener:"},
		{"certificate by address", everything(), Facts{Cert: ip}, Proved, "192.0.2.7", "cert:192.0.2.7"},
		{"expired certificate", everything(), Facts{Cert: expired}, Refused, "-", "listener:"},
		{"certificate from tomorrow", everything(), Facts{Cert: early}, Refused, "-", "listener:"},
		{"a certificate without an entry leaves the token", everything(), Facts{Cert: cert("z"), Credential: basic("ci", secretA)}, Proved, "build deploy", "token:ci"},
		{"a certificate without an entry is no entry", without("tokens"), Facts{Cert: cert("z"), Source: far}, Refused, "-", "203.0.113.5"},
		{"a certificate where tokens are wanted", Config{Tokens: []Token{tok("ci", secretA)}}, Facts{Cert: cert("z")}, Refused, "-", "listener:"},
		{"a certificate where nothing has entries", certsOnly, Facts{Cert: cert("z", "host.test")}, Proved, "-", "cert:host.test"},
		{"by its common name", certsOnly, Facts{Cert: cert("z z")}, Proved, "-", "cert:z z"},
		{"by its fingerprint", certsOnly, Facts{Cert: cert("\x1b]0;")}, Proved, "-", "cert:36f096e7a91fa318"},
		{"expired where nothing has entries", certsOnly, Facts{Cert: expired}, Refused, "-", "listener:"},

		{"token before peer", everything(), Facts{Credential: basic("ci", secretA), HasPeer: true, PeerUID: 1000}, Proved, "build deploy", "token:ci"},
		{"peer", everything(), Facts{HasPeer: true, PeerUID: 1000, Listener: "inner"}, Proved, "uid:1000", "uid:1000"},
		{"peer with a name", everything(), Facts{HasPeer: true, PeerUID: 1001, Listener: "inner"}, Proved, "worker", "uid:1001"},
		{"a peer of 0 is root only where there is one", Config{Peers: []Peer{{UID: 0}}}, Facts{Listener: "x"}, Refused, "-", "listener:x"},
		{"another peer: the listener", everything(), Facts{HasPeer: true, PeerUID: 1002, Listener: "inner", Source: ten}, Proved, "l-agent", "listener:inner"},
		{"another listener: the source", everything(), Facts{Listener: "outer", Source: ten}, Proved, "10.0.0.0/8", "source:10.0.0.0/8"},
		{"the first source", everything(), Facts{Source: netip.MustParseAddr("10.1.2.3")}, Proved, "rack", "source:10.1.0.0/16"},
		{"a mapped source", everything(), Facts{Source: netip.MustParseAddr("::ffff:10.1.2.3")}, Proved, "rack", "source:10.1.0.0/16"},
		{"a source with a zone", everything(), Facts{Source: netip.MustParseAddr("2001:db8::1%eth0")}, Proved, "2001:db8::/32", "source:2001:db8::/32"},
		{"no source matches", everything(), Facts{Source: far}, Refused, "-", "203.0.113.5"},

		{"nobody where anybody is served", anybody, Facts{Source: far}, Anonymous, "-", "203.0.113.5"},
		{"nobody on a local listener", local, Facts{Listener: "inner", Source: netip.MustParseAddr("::1")}, Anonymous, "-", "::/64"},
		{"nobody on a local unix listener", local, Facts{Listener: "inner", HasPeer: true, PeerUID: 5}, Anonymous, "-", "uid:5"},
		{"nobody on another listener", local, Facts{Listener: "outer"}, Refused, "-", "listener:outer"},
		{"nobody on a local listener with tokens", localTokens, Facts{Listener: "inner"}, Refused, "-", "listener:inner"},
		{"nobody in an empty book", Config{}, Facts{}, Refused, "-", "listener:"},
		{"an IPv6 client is its /64", local, Facts{Listener: "inner", Source: netip.MustParseAddr("2001:db8:1:2:3:4:5:6")}, Anonymous, "-", "2001:db8:1:2::/64"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := tt.f
			if f.Now.IsZero() {
				f.Now = now
			}
			id, got := mustBook(t, tt.c).Identify(f)
			agents := "-"
			if len(id.Agents) > 0 {
				agents = id.Agents[0]
				for _, a := range id.Agents[1:] {
					agents += " " + a
				}
			}
			if got != tt.want || agents != tt.agents || id.Key != tt.key {
				t.Errorf("%v, agents %s, key %s; want %v, %s, %s", got, agents, id.Key, tt.want, tt.agents, tt.key)
			}
			if got != Proved && (id.Name != "" || id.Workspace != "") {
				t.Errorf("%v has the name %q and the workspace %q", got, id.Name, id.Workspace)
			}
		})
	}
}

func TestIdentityOfAToken(t *testing.T) {
	id, _ := mustBook(t, everything()).Identify(Facts{Credential: basic("ci", secretA), Now: now})
	if id.Name != "ci" || id.Workspace != "/w/ci" || !slices.Equal(id.Agents, []string{"build", "deploy"}) {
		t.Errorf("identity %+v", id)
	}
}

// A nil book, a zero outcome and a missing clock refuse.
func TestZeroValuesRefuse(t *testing.T) {
	var b *Book
	id, got := b.Identify(Facts{Credential: basic("ci", secretA), HasPeer: true, PeerUID: 0, Now: now})
	if got != Refused || id.Name != "" || id.Agents != nil {
		t.Errorf("a nil book: %v %+v", got, id)
	}
	if _, ok := b.Renew(Identity{Name: "ci"}, now); ok {
		t.Error("a nil book renews")
	}
	var zero Outcome
	if zero != Refused || zero.String() != "refused" || Anonymous.String() != "anonymous" || Proved.String() != "proved" || Outcome(9).String() != "proved" {
		t.Errorf("outcomes %v %v %v", zero, Anonymous, Proved)
	}
	always := cert("Old Style")
	always.NotBefore = time.Time{}
	book := mustBook(t, everything())
	if b.AsksForTokens() || mustBook(t, without("tokens")).AsksForTokens() || !book.AsksForTokens() {
		t.Error("tokens are asked for where there are none, or are not where there are")
	}
	for name, f := range map[string]Facts{
		"a token that expires": {Credential: basic("brief", secretB)},
		"a certificate":        {Cert: cert("Old Style")},
		"one from all times":   {Cert: always},
	} {
		if _, got := book.Identify(f); got != Refused {
			t.Errorf("%s without a clock: %v", name, got)
		}
	}
}

// TestRenew: an identity in flight is what the new book says of the same proof.
func TestRenew(t *testing.T) {
	proofs := map[string]Facts{
		"token":       {Credential: basic("ci", secretA)},
		"brief":       {Credential: basic("brief", secretB)},
		"bound":       {Credential: basic("bound", "bound-to-a-listener"), Listener: "inner"},
		"certificate": {Cert: cert("Old Style")},
		"peer":        {HasPeer: true, PeerUID: 1001},
		"listener":    {Listener: "inner"},
		"source":      {Source: netip.MustParseAddr("10.1.2.3")},
		"nobody":      {Source: netip.MustParseAddr("203.0.113.5")},
	}
	change := func(f func(*Config)) Config {
		c := everything()
		f(&c)
		return c
	}
	tests := []struct {
		name, proof string
		c           Config
		now         time.Time
		want        string // the first agent; empty when the client is unknown
	}{
		{"the same", "token", everything(), now, "build"},
		{"the same certificate", "certificate", everything(), now, "Old Style"},
		{"the same peer", "peer", everything(), now, "worker"},
		{"the same listener", "listener", everything(), now, "l-agent"},
		{"the same source", "source", everything(), now, "rack"},
		{"never proved", "nobody", everything(), now, ""},
		{"other agents", "token", change(func(c *Config) { c.Tokens[0].Agents = []string{"only"} }), now, "only"},
		{"no agents but the name", "token", change(func(c *Config) { c.Tokens[0].Agents = nil }), now, "ci"},
		{"gone", "token", change(func(c *Config) { c.Tokens = c.Tokens[1:] }), now, ""},
		{"all gone", "token", without("tokens"), now, ""},
		{"replaced", "token", change(func(c *Config) { c.Tokens[0].Token = "another-secret-0003" }), now, ""},
		{"renamed", "token", change(func(c *Config) { c.Tokens[0].Name = "other" }), now, ""},
		{"not yet expired", "brief", everything(), now.Add(-1), "brief"},
		{"expired", "brief", everything(), now, ""},
		{"lives longer now", "brief", change(func(c *Config) { c.Tokens[1].Expires = now.Add(time.Hour) }), now, "brief"},
		{"bound elsewhere now", "bound", change(func(c *Config) { c.Tokens[2].Listener = "outer" }), now, ""},
		{"bound here", "bound", everything(), now, "bound"},
		{"certificate expired", "certificate", everything(), now.Add(24 * time.Hour), ""},
		{"certificate entry gone", "certificate", without("certificates"), now, ""},
		{"peer gone", "peer", change(func(c *Config) { c.Peers = nil }), now, ""},
		{"listener gone", "listener", change(func(c *Config) { c.Listeners = nil }), now, ""},
		{"source gone", "source", without("sources"), now, ""},
		{"another source entry holds it", "source", change(func(c *Config) { c.Sources = c.Sources[1:] }), now, ""},
		{"without a clock", "certificate", everything(), time.Time{}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := proofs[tt.proof]
			f.Now = now.Add(-time.Minute)
			id, got := mustBook(t, everything()).Identify(f)
			if (got == Proved) != (tt.proof != "nobody") {
				t.Fatalf("%s is %v at first", tt.proof, got)
			}
			again, ok := mustBook(t, tt.c).Renew(id, tt.now)
			first := ""
			if ok {
				first = again.Agents[0]
			}
			if ok != (tt.want != "") || first != tt.want || ok && again.Key != id.Key || !ok && again.Name != "" {
				t.Errorf("renewed %v as %+v, want %q", ok, again, tt.want)
			}
			if ok { // and again, from what Renew gave
				if third, ok := mustBook(t, tt.c).Renew(again, tt.now); !ok || third.Name != again.Name {
					t.Errorf("renewed twice: %v %+v", ok, third)
				}
			}
		})
	}
}

// A client known by a certificate alone is unknown once entries are wanted.
func TestRenewCertificateAlone(t *testing.T) {
	id, got := mustBook(t, Config{}).Identify(Facts{Cert: cert("", "host.test"), Now: now})
	if got != Proved || id.Name != "host.test" {
		t.Fatalf("%v %+v", got, id)
	}
	if again, ok := mustBook(t, Config{}).Renew(id, now); !ok || again.Name != "host.test" {
		t.Errorf("the same: %v %+v", ok, again)
	}
	for name, c := range map[string]Config{"tokens": {Tokens: []Token{tok("a", secretA)}}, "entries": {Certificates: []Certificate{{SAN: "host.test"}}}} {
		if again, ok := mustBook(t, c).Renew(id, now); ok {
			t.Errorf("with %s: %+v", name, again)
		}
	}
}

// Nobody's identity cannot be made up: without a proof nothing is renewed.
func TestRenewNeedsProof(t *testing.T) {
	b := mustBook(t, everything())
	for _, id := range []Identity{{}, {Name: "ci", Key: "token:ci", Agents: []string{"build"}}, {Key: "uid:1000"}} {
		if again, ok := b.Renew(id, now); ok {
			t.Errorf("%+v renewed as %+v", id, again)
		}
	}
}

func BenchmarkIdentify(b *testing.B) {
	book, err := NewBook(everything())
	if err != nil {
		b.Fatal(err)
	}
	f := Facts{Credential: basic("ci", secretA), Source: netip.MustParseAddr("203.0.113.5"), Now: now}
	for b.Loop() {
		if _, got := book.Identify(f); got != Proved {
			b.Fatal(got)
		}
	}
}
