package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"dshproxy/proxy/identity"
	"dshproxy/rules/tree"
)

var testNow = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

const fileToken = "0123456789abcdef"

// mustLoad loads settings that are right.
func mustLoad(t *testing.T, text string) *settings {
	t.Helper()
	s, err := loadSettings(t, text)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return s
}

func mustBook(t *testing.T, s *settings) *identity.Book {
	t.Helper()
	b, err := s.identityBook()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestIdentityRefuse has what stops the start: position, words and hint.
func TestIdentityRefuse(t *testing.T) {
	const (
		tokens = "an entry has a name, and a token or a tokenFile"
		tok    = "identity: {tokens: [{name: a, token: 0123456789abcdefg}, "
		agents = "names for the agents of rules; without them the entry's name"
	)
	tests := []struct{ name, text, want, hint string }{
		{"tokens are no list", "identity: {tokens: {a: b}}\n", "1:20: identity.tokens: want a list, not a mapping", tokens},
		{"tokens are null", "identity:\n  tokens:\n", "2:10: identity.tokens: want a list, not null", tokens},
		{"a token is no mapping", "identity: {tokens: [ci]}\n", "1:21: identity.tokens[0]: want a mapping, not a string", "it has the keys token, tokenFile, expires, listener, name, agents, workspace"},
		{"unknown key", tok + "{name: b, tokne: x}]}\n", `1:68: unknown key "identity.tokens[1].tokne"`, `did you mean "token"?`},
		{"key of another list", tok + "{uid: 7}]}\n", `1:59: unknown key "identity.tokens[1].uid"`, "known here: token, tokenFile, expires, listener, name, agents, workspace"},
		{"duplicate key", "identity: {tokens: [{name: a, name: b}]}\n", `1:31: duplicate key "name"`, ""},
		{"no name", "identity:\n  tokens:\n    - token: 0123456789abcdefg\n", "3:7: identity.tokens[0]: needs a name", tokens},
		{"an empty name", "identity: {tokens: [{name: '', token: 0123456789abcdefg}]}\n", "1:28: identity.tokens[0].name: want a name", "what the client is called in records"},
		{"both", "identity: {tokens: [{name: a, token: 0123456789abcdefg, tokenFile: /t}]}\n", "1:21: identity.tokens[0]: has both token and tokenFile", tokens},
		{"neither", "identity: {tokens: [{name: a}]}\n", "1:21: identity.tokens[0]: has neither token nor tokenFile", tokens},
		{"a number for a token", "identity: {tokens: [{name: a, token: 1234567890123456}]}\n", "1:38: identity.tokens[0].token: a number where text is wanted; quote it", "the secret, of at least 16 bytes"},
		{"a short token", "identity: {tokens: [{name: a, token: short}]}\n", "1:21: identity.tokens[0]: token: shorter than 16 bytes", ""},
		{"a token with spaces", "identity: {tokens: [{name: a, token: correct horse battery}]}\n", "1:21: identity.tokens[0]: token: not printable ASCII without spaces", ""},
		{"two of a name", tok + "{name: a, tokenFile: /none}]}\n", "1:58: identity.tokens[1]: a second token of this name", ""},
		{"two of a token", tok + "{name: b, token: 0123456789abcdefg}]}\n", `1:58: identity.tokens[1]: the same token as "a"`, ""},
		{"a colon in a name", "identity: {tokens: [{name: 'a:b', tokenFile: /t}]}\n", "1:21: identity.tokens[0]: name: a colon, which ends the name in Basic credentials", ""},
		{"no agents", "identity: {tokens: [{name: a, tokenFile: /t, agents: []}]}\n", "1:54: identity.tokens[0].agents: an empty list; leave the key out instead", agents},
		{"a number for an agent", "identity: {tokens: [{name: a, tokenFile: /t, agents: [1.10]}]}\n", "1:54: identity.tokens[0].agents: a list item that is no text", agents},
		{"an empty workspace", "identity: {tokens: [{name: a, tokenFile: /t, workspace: ''}]}\n", "1:57: identity.tokens[0].workspace: want a path", "folder whose rules judge the client"},
		{"a day for a time", "identity: {tokens: [{name: a, tokenFile: /t, expires: 2027-01-31}]}\n", "1:55: identity.tokens[0].expires: want a time such as 2027-01-31T18:00:00Z", "when it stops to work"},
		{"a time without a zone", "identity: {tokens: [{name: a, tokenFile: /t, expires: 2027-01-31T18:00:00}]}\n", "1:55: identity.tokens[0].expires: want a time such as 2027-01-31T18:00:00Z", "when it stops to work"},
		{"a number for a time", "identity: {tokens: [{name: a, tokenFile: /t, expires: 1800000000}]}\n", "1:55: identity.tokens[0].expires: a number where text is wanted; quote it", "when it stops to work"},
		{"a duration for a time", "identity: {tokens: [{name: a, tokenFile: /t, expires: 24h}]}\n", "1:55: identity.tokens[0].expires: want a time such as 2027-01-31T18:00:00Z", "when it stops to work"},
		{"no such listener", tok + "{name: b, tokenFile: /t, listener: proxi}]}\n", `1:58: identity.tokens[1].listener: no listener is called "proxi"`, `did you mean "proxy"?`},

		{"peer without a uid", "identity: {peers: [{name: a}]}\n", "1:20: identity.peers[0]: needs a uid", "an entry has a uid"},
		{"peer by name", "identity: {peers: [{uid: root}]}\n", "1:26: identity.peers[0].uid: want a number, unquoted", "number of a user"},
		{"a negative uid", "identity: {peers: [{uid: -1}]}\n", "1:26: identity.peers[0].uid: want a number of 0 or more", "number of a user"},
		{"a large uid", "identity: {peers: [{uid: 4294967295}]}\n", "1:20: identity.peers[0]: no user id", ""},
		{"two of a uid", "identity:\n  peers:\n    - uid: 7\n    - uid: 7\n", "4:7: identity.peers[1]: a second entry for this user", ""},

		{"certificate by nothing", "identity: {certificates: [{name: a}]}\n", "1:27: identity.certificates[0]: has neither san nor cn", "an entry has a san or a cn"},
		{"certificate by both", "identity: {certificates: [{san: a, cn: b}]}\n", "1:27: identity.certificates[0]: has both san and cn", "an entry has a san or a cn"},
		{"two of a SAN", "identity: {certificates: [{san: a}, {san: a}]}\n", "1:37: identity.certificates[1]: a second entry for these certificates", ""},

		{"source without a prefix", "identity: {sources: [{name: a}]}\n", "1:22: identity.sources[0]: needs a prefix", "an entry has a prefix"},
		{"source by address", "identity: {sources: [{prefix: 10.0.0.1}]}\n", `1:31: identity.sources[0].prefix: want a network such as 10.0.0.0/8, not "10.0.0.1"`, "a network such as 10.0.0.0/8"},
		{"source with bits below", "identity: {sources: [{prefix: 10.0.0.1/8}]}\n", "1:31: identity.sources[0].prefix: 10.0.0.1/8 has bits below its length; write 10.0.0.0/8", "a network such as 10.0.0.0/8"},
		{"a mapped source", "identity: {sources: [{prefix: '::ffff:10.0.0.0/104'}]}\n", "1:22: identity.sources[0]: an IPv4-mapped network; write it as IPv4", ""},
		{"a source never reached", "identity: {sources: [{prefix: 10.0.0.0/8}, {prefix: 10.1.0.0/16}]}\n", "1:44: identity.sources[1]: never reached behind 10.0.0.0/8, which holds it", ""},

		{"listener without a listener", "identity: {listeners: [{name: a}]}\n", "1:24: identity.listeners[0]: needs a listener", "an entry has a listener"},
		{"listener that is none", "identity: {listeners: [{listener: prxy}]}\n", `1:24: identity.listeners[0].listener: no listener is called "prxy"`, `did you mean "proxy"?`},
		{"two of a listener", "identity: {listeners: [{listener: proxy}, {listener: proxy}]}\n", "1:43: identity.listeners[1]: a second entry for this listener", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := loadSettings(t, tt.text)
			var te *tree.Error
			if !errors.As(err, &te) {
				t.Fatalf("%q: error %T %v, want one with a position", tt.text, err, err)
			}
			_, got, _ := strings.Cut(err.Error(), "proxy.yaml:")
			if got != tt.want || te.Hint != tt.hint {
				t.Errorf("%q\ngot:  %s (hint %q)\nwant: %s (hint %q)", tt.text, got, te.Hint, tt.want, tt.hint)
			}
		})
	}
}

// No variable and no flag sets who clients are: others can read the environment and the arguments of a process.
func TestIdentityOnlyInTheFile(t *testing.T) {
	for _, key := range []string{"tokens", "peers", "certificates", "sources", "listeners"} {
		bareEnvironment(t)
		name := "DSHPROXY_IDENTITY_" + strings.ToUpper(key)
		t.Setenv(name, "[]")
		var s settings
		err := s.load("", nil)
		var ee *exitError
		if !errors.As(err, &ee) || ee.code != exitUsage || err.Error() != name+": can only be set in the settings file" {
			t.Errorf("%s: %v", name, err)
		}
		t.Setenv(name, "")
		if err := s.load("", map[string]string{"identity." + key: "[]"}); err == nil || err.Error() != "flag for identity."+key+": can only be set in the settings file" {
			t.Errorf("flag for %s: %v", key, err)
		}
	}
}

// TestIdentityBook reads every key and shows it; what is shown has no secret.
func TestIdentityBook(t *testing.T) {
	bareEnvironment(t)
	path := settingsFile(t, `
listen: [{name: in, address: 'unix:/s'}, {name: out, address: '127.0.0.1:1'}]
identity:
  tokens:
    - {name: ci, token: 'ci-secret-0123456', agents: [build, deploy], workspace: work/ci, listener: out}
    - name: brief
      tokenFile: secrets/brief
      expires: 2026-05-01T14:00:00+02:00
      workspace: /w
  peers: [{uid: 1000, agents: [me]}, {uid: 0, name: admin, workspace: w}]
  certificates: [{san: a.test, agents: [mesh]}, {cn: Old Style, name: old}]
  sources: [{prefix: 10.0.0.0/8, agents: rack, workspace: /r}]
  listeners: [{listener: in, agents: [inner]}]
`)
	dir := filepath.Dir(path)
	placeFile(t, filepath.Join(dir, "secrets/brief"), "brief-secret-0123\n")
	var s settings
	if err := s.load(path, nil); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"identity.tokens": "[ci (hidden), brief (in " + dir + "/secrets/brief)]", "identity.peers": "[1000, 0=admin]", "identity.certificates": "[a.test, Old Style=old]",
		"identity.sources": "[10.0.0.0/8]", "identity.listeners": "[in]",
	} {
		if got := shown(&s, key); got != want {
			t.Errorf("%s is shown as %s, want %s", key, got, want)
		}
	}
	if got, want := s.origins["identity.tokens"], path+":4"; got != want {
		t.Errorf("origin %s, want %s", got, want)
	}
	b := mustBook(t, &s)
	tests := []struct {
		name      string
		f         identity.Facts
		agents    []string // nil: refused
		workspace string
	}{
		{"token", identity.Facts{Listener: "out", Credential: identity.Credential{Name: "ci", Token: "ci-secret-0123456"}}, []string{"build", "deploy"}, dir + "/work/ci"},
		{"token on another listener", identity.Facts{Listener: "in", Credential: identity.Credential{Name: "ci", Token: "ci-secret-0123456"}}, nil, ""},
		{"token of a file", identity.Facts{Credential: identity.Credential{Name: "brief", Token: "brief-secret-0123"}, Now: testNow.Add(-1)}, []string{"brief"}, "/w"},
		{"token that has expired", identity.Facts{Credential: identity.Credential{Name: "brief", Token: "brief-secret-0123"}}, nil, ""},
		{"peer", identity.Facts{HasPeer: true, PeerUID: 1000}, []string{"me"}, ""},
		{"root", identity.Facts{HasPeer: true, PeerUID: 0}, []string{"admin"}, dir + "/w"},
		{"source", identity.Facts{Listener: "out", Source: netip.MustParseAddr("10.2.3.4")}, []string{"rack"}, "/r"},
		{"listener", identity.Facts{Listener: "in"}, []string{"inner"}, ""},
		{"nobody", identity.Facts{Listener: "out"}, nil, ""},
	}
	for _, tt := range tests {
		if tt.f.Now.IsZero() {
			tt.f.Now = testNow
		}
		id, outcome := b.Identify(tt.f)
		if (outcome == identity.Proved) != (tt.agents != nil) || !slices.Equal(id.Agents, tt.agents) || id.Workspace != tt.workspace {
			t.Errorf("%s: %v %v in %q, want %v in %q", tt.name, outcome, id.Agents, id.Workspace, tt.agents, tt.workspace)
		}
	}
}

// The token is not in any error about the file that holds it.
func TestIdentityErrorsHideTokens(t *testing.T) {
	const secret = "very-secret-indeed-0042"
	for _, text := range []string{
		"identity: {tokens: [{name: a, token: " + secret + "}, {name: b, token: " + secret + "}]}\n",
		"identity: {tokens: [{name: a, token: '" + secret + " '}]}\n",
		"identity: {tokens: [{name: a, token: [" + secret + "]}]}\n",
		"identity: {tokens: [{name: a, token: {" + secret + ": 1}}]}\n",
		"identity: {tokens: [{name: a, token: " + secret + ", listener: none}]}\n",
		"identity: {tokens: " + secret + "}\n",
		"identity: {tokens: [" + secret + "]}\n",
	} {
		_, err := loadSettings(t, text)
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestIdentityAnonymous: clients may be nobody on listeners that only this machine reaches, while there are no tokens.
func TestIdentityAnonymous(t *testing.T) {
	const listen = "listen: [{name: tcp, address: '127.0.0.1:1'}, {name: unix, address: 'unix:/s'}, {name: lb, address: '127.0.0.1:2', proxyProtocol: [127.0.0.1/32]}, {name: far, address: '0.0.0.0:3'}, {name: mtls, address: '127.0.0.1:4', tls: {cert: c, key: k, clientCA: a}}]\n"
	tests := []struct {
		identity string
		want     string // the listeners where nobody is served
	}{
		{"{sources: [{prefix: 10.0.0.0/8}]}", "tcp unix"},
		{"{certificates: [{cn: a}]}", "tcp unix"},
		{"{tokens: [{name: a, token: 0123456789abcdefg}]}", ""},
		{"{allowAnonymous: true}", "tcp unix lb far mtls"},
		{"{allowAnonymous: true, tokens: [{name: a, token: 0123456789abcdefg}]}", "tcp unix lb far mtls"},
	}
	for _, tt := range tests {
		s := mustLoad(t, listen+"identity: "+tt.identity+"\n")
		b := mustBook(t, s)
		var served []string
		for _, l := range s.listeners() {
			if _, outcome := b.Identify(identity.Facts{Listener: l.name, Now: testNow}); outcome == identity.Anonymous {
				served = append(served, l.name)
			}
		}
		if got := strings.Join(served, " "); got != tt.want {
			t.Errorf("%s: nobody is served on %q, want %q", tt.identity, got, tt.want)
		}
	}
}

// TestIdentityOpensListeners: what lets a listener beyond loopback start.
func TestIdentityOpensListeners(t *testing.T) {
	const refused = "listen: 0.0.0.0:1 is reachable from other machines and nobody is asked who they are"
	tests := []struct {
		listener, identity string
		refused            bool
	}{
		{"address: '0.0.0.0:1'", "{}", true},
		{"address: '0.0.0.0:1'", "{peers: [{uid: 7}]}", true},
		{"address: '0.0.0.0:1'", "{listeners: [{listener: proxy}]}", true},
		{"address: '0.0.0.0:1', tls: {cert: c, key: k}", "{}", true},
		{"address: '0.0.0.0:1', tls: {cert: c, key: k, clientCA: a}", "{}", false},
		{"address: '0.0.0.0:1'", "{tokens: [{name: a, tokenFile: /none}]}", false},
		{"address: '0.0.0.0:1'", "{sources: [{prefix: 10.0.0.0/8}]}", false},
		{"address: '0.0.0.0:1'", "{certificates: [{cn: a}]}", false},
		{"address: '0.0.0.0:1'", "{allowAnonymous: true}", false},
	}
	for _, tt := range tests {
		_, err := loadSettings(t, "listen: [{"+tt.listener+"}]\nidentity: "+tt.identity+"\n")
		if tt.refused && (err == nil || err.Error() != refused) || !tt.refused && err != nil {
			t.Errorf("%s with %s: %v, want refused %v", tt.listener, tt.identity, err, tt.refused)
		}
	}
	if _, err := loadSettings(t, "listen: [{address: '127.0.0.1:1', proxyProtocol: [10.0.0.0/8]}]\n"); err == nil {
		t.Error("a load balancer's clients are served unasked")
	}
}

// TestIdentitySecrecy: a token stands only where others cannot read it.
func TestIdentitySecrecy(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("mode bits tell nothing here")
	}
	const hint = "take the right to read from group and others, or put the token into a tokenFile"
	for mode, refused := range map[os.FileMode]bool{0o600: false, 0o400: false, 0o640: true, 0o604: true, 0o644: true} {
		bareEnvironment(t)
		path := settingsFile(t, "identity:\n  tokens:\n    - {name: f, tokenFile: /none}\n    - {name: a, token: 0123456789abcdefg}\n")
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		var s settings
		err := s.load(path, nil)
		var te *tree.Error
		want := fmt.Sprintf("%s:4:7: identity.tokens[1].token: stands in a file that others can read (mode %04o)", path, mode)
		if refused && (!errors.As(err, &te) || err.Error() != want || te.Hint != hint) || !refused && err != nil {
			t.Errorf("%04o: %v, want refused %v", mode, err, refused)
		}
	}
	bareEnvironment(t)
	path := settingsFile(t, "identity: {tokens: [{name: f, tokenFile: /none}]}\n")
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	var s settings
	if err := s.load(path, nil); err != nil {
		t.Errorf("without a token in it: %v", err)
	}
}

// TestIdentityTokenFile: what a token file may be, and that it is read anew for each book.
func TestIdentityTokenFile(t *testing.T) {
	tests := []struct {
		name, text string
		mode       os.FileMode
		want       string // the error behind "identity.tokens[0]", with PATH for the file; empty: it is taken
	}{
		{"bare", fileToken, 0o600, ""},
		{"with a line end", fileToken + "\n", 0o600, ""},
		{"with a line end of Windows", fileToken + "\r\n", 0o600, ""},
		{"read by a group", fileToken, 0o640, ""},
		{"read by others", fileToken, 0o644, ".tokenFile: PATH: is readable by others (mode 0644)"},
		{"read by others alone", fileToken, 0o604, ".tokenFile: PATH: is readable by others (mode 0604)"},
		{"written by a group", fileToken, 0o620, ".tokenFile: PATH: is writable by others (mode 0620)"},
		{"two line ends", fileToken + "\n\n", 0o600, ": token: not printable ASCII without spaces"},
		{"two lines", fileToken + "\n" + fileToken, 0o600, ": token: not printable ASCII without spaces"},
		{"a space at its end", fileToken + " ", 0o600, ": token: not printable ASCII without spaces"},
		{"a byte-order mark", "\ufeff" + fileToken, 0o600, ": token: not printable ASCII without spaces"},
		{"15 bytes", fileToken[1:] + "\n", 0o600, ": token: shorter than 16 bytes"},
		{"empty", "", 0o600, ": token: shorter than 16 bytes"},
		{"large", strings.Repeat("x", maxTokenFile+1), 0o600, ".tokenFile: PATH: larger than 8192 bytes"},
		{"longer than a token", strings.Repeat("x", maxTokenFile), 0o600, ": token: longer than 4096 bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if runtime.GOOS == "windows" && tt.mode != 0o600 {
				t.Skip("mode bits tell nothing here")
			}
			bareEnvironment(t)
			path := settingsFile(t, "identity: {tokens: [{name: f, tokenFile: t}]}\n")
			file := filepath.Join(filepath.Dir(path), "t")
			placeFile(t, file, tt.text)
			if err := os.Chmod(file, tt.mode); err != nil {
				t.Fatal(err)
			}
			var s settings
			if err := s.load(path, nil); err != nil {
				t.Fatal(err)
			}
			b, err := s.identityBook()
			if tt.want != "" {
				want := path + ":1:21: identity.tokens[0]" + strings.ReplaceAll(tt.want, "PATH", file)
				if err == nil || err.Error() != want || b != nil {
					t.Errorf("error %v, want %s", err, want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			right := identity.Facts{Credential: identity.Credential{Token: fileToken, Bearer: true}, Now: testNow}
			if _, outcome := b.Identify(right); outcome != identity.Proved {
				t.Errorf("the token is %v", outcome)
			}
		})
	}
}

// A token file is read anew for each book, and a book whose file is gone is an error: the old one stays.
func TestIdentityReload(t *testing.T) {
	bareEnvironment(t)
	path := settingsFile(t, "identity: {tokens: [{name: f, tokenFile: t}, {name: g, tokenFile: u}]}\n")
	dir := filepath.Dir(path)
	placeFile(t, filepath.Join(dir, "t"), fileToken)
	placeFile(t, filepath.Join(dir, "u"), fileToken+"u")
	var s settings
	if err := s.load(path, nil); err != nil {
		t.Fatal(err)
	}
	facts := identity.Facts{Credential: identity.Credential{Name: "f", Token: fileToken}, Now: testNow}
	id, outcome := mustBook(t, &s).Identify(facts)
	if outcome != identity.Proved {
		t.Fatalf("at first %v", outcome)
	}
	placeFile(t, filepath.Join(dir, "t"), "another-0123456789")
	changed := mustBook(t, &s)
	if _, outcome := changed.Identify(facts); outcome != identity.Refused {
		t.Errorf("the old token is %v", outcome)
	}
	if _, ok := changed.Renew(id, testNow); ok {
		t.Error("who came with the old token is still known")
	}
	placeFile(t, filepath.Join(dir, "t"), fileToken+"u")
	if _, err := s.identityBook(); err == nil || !strings.HasSuffix(err.Error(), `:1:46: identity.tokens[1]: the same token as "f"`) {
		t.Errorf("two files with one token: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "t")); err != nil {
		t.Fatal(err)
	}
	var te *tree.Error
	if _, err := s.identityBook(); !errors.As(err, &te) || !strings.Contains(err.Error(), "identity.tokens[0].tokenFile: ") || te.Hint == "" {
		t.Errorf("without the file: %v", err)
	}
}

func TestSettingsListenExtras(t *testing.T) {
	bareEnvironment(t)
	path := settingsFile(t, `
identity: {allowAnonymous: true}
listen:
  - {name: a, address: '0.0.0.0:1', protocols: [socks5], tls: {cert: c.pem, key: /k.pem, clientCA: ca/c.pem}, proxyProtocol: [10.0.0.0/8, 'fd00::/8']}
  - {address: 'unix:/s', group: agents, mode: '0660', protocols: [socks5, http], tls: {cert: /c, key: /k}}
  - {address: 'unix:/t', group: 1000, protocols: http, proxyProtocol: []}
`)
	dir := filepath.Dir(path)
	var s settings
	if err := s.load(path, nil); err != nil {
		t.Fatal(err)
	}
	want := []listenAddr{
		{name: "a", address: "0.0.0.0:1", mode: 0o600, protocols: []string{"socks5"}, tls: &listenTLS{dir + "/c.pem", "/k.pem", dir + "/ca/c.pem"}, proxyProtocol: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}},
		{name: "proxy2", address: "unix:/s", mode: 0o660, group: "agents", protocols: []string{"socks5", "http"}, tls: &listenTLS{"/c", "/k", ""}},
		{name: "proxy3", address: "unix:/t", mode: 0o600, group: "1000", protocols: []string{"http"}},
	}
	if got := s.listeners(); !reflect.DeepEqual(got, want) {
		t.Errorf("listeners %+v, want %+v", got, want)
	}
	const text = "[a=0.0.0.0:1 socks5 tls clientCA proxyProtocol, proxy2=unix:/s socks5+http tls, proxy3=unix:/t http]"
	if got := shown(&s, "listen"); got != text {
		t.Errorf("shown as %s, want %s", got, text)
	}
}

func TestSettingsWarnings(t *testing.T) {
	const (
		token  = "tokens: [{name: a, token: 0123456789abcdefg}]"
		plain  = "listener proxy takes tokens without TLS: whoever sees the traffic to 0.0.0.0:1 can use them"
		beyond = "listen: ['0.0.0.0:1']\n"
		over   = "listen: [{address: '0.0.0.0:1', tls: {cert: c, key: k}}]\n"
	)
	tests := []struct {
		text string
		want []string
	}{
		{"", nil},
		{"identity: {" + token + "}\n", nil},
		{"listen: ['unix:/s']\nidentity: {" + token + ", peers: [{uid: 7}], listeners: [{listener: proxy}]}\n", nil},
		{beyond + "identity: {" + token + "}\n", []string{plain}},
		{over + "identity: {" + token + "}\n", nil},
		{beyond + "identity: {allowAnonymous: true}\n", nil},
		{beyond + "identity: {allowAnonymous: true, " + token + "}\n", []string{plain, "identity.allowAnonymous is true: clients that prove nothing are served too"}},
		{over + "identity: {" + token + ", listeners: [{listener: proxy}]}\n", []string{"everybody who reaches listener proxy is served without a token, by its entry in identity.listeners"}},
		{"identity: {peers: [{uid: 7}]}\n", []string{"identity.peers is of no use: no listener is a unix socket"}},
		{over + "identity: {certificates: [{cn: a}]}\n", []string{"identity.certificates is of no use: no listener has tls.clientCA"}},
		{"identity: {tokens: [{name: a, tokenFile: /t, expires: '2026-05-01T12:00:00Z'}, {name: b, tokenFile: /u, expires: '2026-05-01T12:00:01Z'}]}\n", []string{"token a has expired"}},
		{beyond + "identity: {sources: [{prefix: 10.0.0.0/8}, {prefix: 0.0.0.0/0}]}\n", []string{"identity.sources lets everybody in with 0.0.0.0/0"}},
	}
	for _, tt := range tests {
		if got := mustLoad(t, tt.text).warnings(testNow); !slices.Equal(got, tt.want) && (runtime.GOOS == "linux" || !strings.Contains(tt.text, "peers")) {
			t.Errorf("%q:\ngot:  %q\nwant: %q", tt.text, got, tt.want)
		}
	}
}
