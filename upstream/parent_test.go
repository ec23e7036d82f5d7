package upstream

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
)

func TestParseParent(t *testing.T) {
	for _, tc := range []struct{ in, scheme, host, text string }{
		{"http://proxy.corp", "http", "proxy.corp", "http://proxy.corp:80"},
		{"HTTP://Proxy.Corp.:3128/", "http", "proxy.corp", "http://proxy.corp:3128"},
		{"https://proxy.corp", "https", "proxy.corp", "https://proxy.corp:443"},
		{"socks5://10.0.0.5", "socks5", "10.0.0.5", "socks5://10.0.0.5:1080"},
		{"socks5h://proxy_1:9", "socks5", "proxy_1", "socks5://proxy_1:9"},
		{"http://[2001:DB8::1]", "http", "2001:db8::1", "http://[2001:db8::1]:80"},
		{"http://[::ffff:10.0.0.5]:1", "http", "10.0.0.5", "http://10.0.0.5:1"},
		{"http://ann:sesame@proxy:1", "http", "proxy", "http://ann:***@proxy:1"},
		{"http://a%20b:p%40%2F@proxy:1", "http", "proxy", "http://a%20b:***@proxy:1"},
		{"http://ann:se@same@proxy:1", "http", "proxy", "http://ann:***@proxy:1"},
		{"http://token@proxy:1", "http", "proxy", "http://***@proxy:1"},
		{"http://:sesame@proxy:1", "http", "proxy", "http://:***@proxy:1"},
	} {
		p, err := ParseParent(tc.in)
		if err != nil {
			t.Errorf("%s: %v", tc.in, err)
			continue
		}
		if p.Scheme() != tc.scheme || p.Host() != tc.host || p.String() != tc.text || p.Port() == 0 {
			t.Errorf("%s: got %s %s %v", tc.in, p.Scheme(), p.Host(), p)
		}
	}
}

func TestParseParentRefuses(t *testing.T) {
	for _, tc := range []struct{ in, why string }{
		{"", "empty"},
		{"proxy:3128", "no scheme"},
		{"ftp://proxy", "unknown scheme"},
		{"socks4://proxy", "unknown scheme"},
		{"://proxy", "unknown scheme"},
		{"http://", "empty host"},
		{"http:///", "empty host"},
		{"http://ann:sesame@", "empty host"},
		{"http://proxy/path", "path"},
		{"http://proxy//", "path"},
		{"http://proxy?x", "query"},
		{"http://proxy#x", "fragment"},
		{`http://proxy\x`, "path"},
		{"http://ann:ses/ame@proxy", "percent-encoded"},
		{" http://proxy", "blank"},
		{"http://proxy\n", "control"},
		{"http://pröxy", "ASCII"},
		{"http://proxy:", "port"},
		{"http://proxy:0", "port"},
		{"http://proxy:080", "port"},
		{"http://proxy:+80", "port"},
		{"http://proxy:65536", "port"},
		{"http://proxy:sesame", "port"},
		{"http://2001:db8::1", "brackets"},
		{"http://[proxy]:80", "bracket"},
		{"http://[2001:db8::1", "bracket"},
		{"http://[fe80::1%25eth0]", "bracket"},
		{"http://[2001:db8::1]x:80", "bracket"},
		{"http://127.1", "number"},
		{"http://0x7f000001", "number"},
		{"http://10.0.0.5.", "number"},
		{"http://a..b", "malformed host"},
		{"http://-a", "malformed host"},
		{"http://a%41", "no host name"},
		{"http://" + strings.Repeat("a", 64), "malformed host"},
		{"http://" + strings.Repeat("a.", 127) + "b", "253"},
		{"http://" + strings.Repeat("a", 5000), "4096"},
		{"http://@proxy", "without a user"},
		{"socks5://:sesame@proxy", "without a user"},
		{"http://a%3Ab:sesame@proxy", "colon in the user"},
		{"http://ann:ses%zzame@proxy", "percent-escape"},
		{"http://ann:ses%0d%0aame@proxy", "control byte in"},
		{"socks5://ann:" + strings.Repeat("s", 256) + "@proxy", "255"},
	} {
		p, err := ParseParent(tc.in)
		if err == nil || !strings.Contains(err.Error(), tc.why) {
			t.Errorf("%.80q: got %v, %v; want an error about %q", tc.in, p, err, tc.why)
		} else if strings.Contains(err.Error(), "sesame") || strings.Contains(err.Error(), "ame@") {
			t.Errorf("%q: the error shows the password: %v", tc.in, err)
		}
	}
}

func TestWithCredentials(t *testing.T) {
	p := mustParent(t, "http://old:older@proxy:1")
	q, err := p.WithCredentials("ann:ses:ame%41\r\n")
	if err != nil || q.Authorization() != "Basic YW5uOnNlczphbWUlNDE=" {
		t.Fatalf("%v %v", q.Authorization(), err)
	}
	if p.Authorization() != "Basic b2xkOm9sZGVy" {
		t.Errorf("the original changed: %s", p.Authorization())
	}
	for _, bad := range []string{"", "\n", "sesame", ":", "ann:ses\name", "ann:sesame\n\n", "ann:ses\x00ame", "ann:" + strings.Repeat("sesame", 1000)} {
		if q, err := p.WithCredentials(bad); err == nil || strings.Contains(err.Error(), "ses") {
			t.Errorf("%.20q: %v %v", bad, q, err)
		}
	}
	s := mustParent(t, "socks5://proxy")
	if _, err := s.WithCredentials("ann:" + strings.Repeat("s", 256)); err == nil {
		t.Error("a SOCKS password of 256 bytes is taken")
	}
	if s, err = s.WithCredentials("ann:" + strings.Repeat("s", 255)); err != nil || s.Authorization() != "" {
		t.Errorf("%v", err)
	}
}

// TestPasswordIsNotShown: no way of printing a parent shows its secrets.
func TestPasswordIsNotShown(t *testing.T) {
	p := mustParent(t, "http://ann:sesame@proxy:1")
	var out strings.Builder
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&out, verb+verb+verb+"\n", p, *p, struct{ P *Parent }{p})
		fmt.Fprintf(&out, verb, struct{ d Destination }{Named(p, "a.test", 1)})
	}
	slog.New(slog.NewTextHandler(&out, nil)).Info("text", "parent", p)
	slog.New(slog.NewJSONHandler(&out, nil)).Info("json", "parent", p)
	j, err := json.Marshal(map[string]any{"p": p})
	if err != nil {
		t.Fatal(err)
	}
	out.Write(j)
	for _, secret := range []string{"sesame", fmt.Sprintf("%x", "sesame"), "YW5uOnNlc2FtZQ"} {
		if strings.Contains(out.String(), secret) {
			t.Errorf("%q is shown in %s", secret, &out)
		}
	}
	if !strings.Contains(string(j), `"http://ann:***@proxy:1"`) {
		t.Errorf("%s", j)
	}
}

// TestParentAsTarget: a target that is the parent itself can be told (UPS-17).
func TestParentAsTarget(t *testing.T) {
	none := netip.Addr{}
	addr := netip.MustParseAddr
	for _, tc := range []struct {
		parent, host string
		addr         netip.Addr
		port         uint16
		want         bool
	}{
		{"http://proxy.corp:3128", "proxy.corp", none, 3128, true},
		{"http://proxy.corp:3128", "proxy.corp", none, 443, false},
		{"http://proxy.corp:3128", "a.proxy.corp", none, 3128, false},
		{"http://10.0.0.5:3128", "10.0.0.5", addr("10.0.0.5"), 3128, true},
		{"http://10.0.0.5:3128", "", addr("::ffff:10.0.0.5"), 3128, true},
		{"http://10.0.0.5:3128", "10.0.0.6", addr("10.0.0.6"), 3128, false},
		{"http://localhost:3128", "127.0.0.1", addr("127.0.0.1"), 3128, true},
		{"http://localhost:3128", "a.localhost", none, 3128, true},
		{"http://127.0.0.1:3128", "localhost", none, 3128, true},
		{"http://10.0.0.5:3128", "localhost", none, 3128, false},
	} {
		if got := mustParent(t, tc.parent).Is(tc.host, tc.addr, tc.port); got != tc.want {
			t.Errorf("%s is %s %v:%d: %v", tc.parent, tc.host, tc.addr, tc.port, got)
		}
	}
}

func mustParent(t testing.TB, text string) *Parent {
	t.Helper()
	p, err := ParseParent(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func FuzzParseParent(f *testing.F) {
	for _, s := range []string{"http://proxy", "https://ann:s%41@[::1]:8/", "socks5h://a_b.c:1080", "http://1.2.3", "http://a@b@c:1", "x://", "http://[::1%25a]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		// No message has this word, so one that shows it quotes the text.
		const word = "Zq9"
		if _, err := ParseParent(strings.ReplaceAll(text, "a", word)); err != nil && strings.Contains(err.Error(), word) {
			t.Fatalf("%q is quoted: %v", text, err)
		}
		p, err := ParseParent(text)
		if err != nil {
			return
		}
		if p.Port() == 0 || p.Host() == "" || strings.ContainsAny(p.Host(), "@/?#% []") {
			t.Fatalf("%q gives host %q port %d", text, p.Host(), p.Port())
		}
		if hasControl(p.String()) || hasControl(p.Authorization()) {
			t.Fatalf("%q prints control bytes: %q", text, p)
		}
		if _, err := newEndpoint(p.Host(), p.Port()); err != nil {
			t.Fatalf("%q gives the host %q, which is not canonical", text, p.Host())
		}
		p.login = nil
		again, err := ParseParent(p.String())
		if err != nil || again.String() != p.String() {
			t.Fatalf("%q: %v reads back as %v, %v", text, p, again, err)
		}
	})
}
