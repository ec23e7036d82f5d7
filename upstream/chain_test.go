package upstream

import (
	"net/netip"
	"strings"
	"testing"
)

// TestBypass: the grammar of NO_PROXY on canonical targets (UPS-12).
func TestBypass(t *testing.T) {
	for _, tc := range []struct {
		list, hit, miss string // targets host:port; a literal in brackets or dotted
	}{
		{"*", "a.test:1 10.0.0.1:1 [2001:db8::1]:1", ""},
		{"*:80", "a.test:80 10.0.0.1:80", "a.test:443"},
		{"example.com", "example.com:1 a.example.com:1 a.b.example.com:1", "notexample.com:1 example.com.evil:1 10.0.0.1:1"},
		{"Example.COM.", "example.com:1", ""},
		{".example.com", "a.example.com:1", "example.com:1 notexample.com:1"},
		{"*.example.com", "a.example.com:1 a.b.example.com:1", "example.com:1 aexample.com:1"},
		{"=example.com", "example.com:1", "a.example.com:1"},
		{"example.com:8080", "example.com:8080 a.example.com:8080", "example.com:80"},
		{"10.0.0.5", "10.0.0.5:1", "10.0.0.6:1 a.test:1"},
		{"10.0.0.5:80", "10.0.0.5:80", "10.0.0.5:81"},
		{"10.0.0.0/8", "10.255.0.1:1", "11.0.0.1:1 a.test:1"},
		{"10.1.2.3/8", "10.255.0.1:1", "11.0.0.1:1"},
		{"10.0.0.0/8:80", "10.0.0.1:80", "10.0.0.1:81"},
		{"::ffff:10.0.0.5", "10.0.0.5:1", "10.0.0.6:1"},
		{"::ffff:10.0.0.0/104", "10.0.0.5:1", "11.0.0.1:1"},
		{"2001:db8::1", "[2001:db8::1]:1", "[2001:db8::2]:1"},
		{"[2001:db8::1]", "[2001:db8::1]:1", "[2001:db8::2]:1"},
		{"[2001:db8::1]:80", "[2001:db8::1]:80", "[2001:db8::1]:81"},
		{"fd00::/8", "[fd12::1]:1", "[2001:db8::1]:1"},
		{"[fd00::/8]:80", "[fd12::1]:80", "[fd12::1]:81"},
		{"a.test, b.test c.test,,\td.test,", "a.test:1 b.test:1 c.test:1 d.test:1", "e.test:1"},
		{"", "", "a.test:1 10.0.0.1:1"},
	} {
		b, err := ParseBypass(tc.list)
		if err != nil {
			t.Errorf("%s: %v", tc.list, err)
			continue
		}
		for want, targets := range map[bool]string{true: tc.hit, false: tc.miss} {
			for _, target := range strings.Fields(targets) {
				host, addr, port := targetOf(t, target)
				if got := b.Matches(host, addr, port); got != want {
					t.Errorf("%q matches %s: %v", tc.list, target, got)
				}
			}
		}
	}
}

func targetOf(t *testing.T, text string) (string, netip.Addr, uint16) {
	t.Helper()
	colon := strings.LastIndexByte(text, ':')
	host, addr, err := parseHost(text[:colon])
	if err != nil {
		t.Fatal(text, err)
	}
	port, err := parsePort(text[colon+1:])
	if err != nil {
		t.Fatal(text, err)
	}
	return host, addr, port
}

// TestBypassSpelling: what is not canonical is under no pattern, so a zone that ends in a bypassed domain does not bypass
// (UPS-12), and a literal is never matched by its text.
func TestBypassSpelling(t *testing.T) {
	b, err := ParseBypass("*.example.com", "example.com", "*")
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"", "::1%25.example.com", "::1%.example.com", "[::1%25.example.com]", "A.example.com", "a.example.com.", "a b.example.com", "127.1", "..example.com", "x/.example.com"} {
		if b.Matches(host, netip.Addr{}, 443) {
			t.Errorf("%q is bypassed", host)
		}
	}
	if b.Matches("a.example.com", netip.MustParseAddr("fe80::1%.example.com"), 443) {
		t.Error("an address with a zone is bypassed")
	}
	b, err = ParseBypass("example.com")
	if err != nil {
		t.Fatal(err)
	}
	if b.Matches("example.com", netip.MustParseAddr("192.0.2.1"), 443) {
		t.Error("a literal is bypassed by its text")
	}
	if b, err = ParseBypass("10.0.0.5"); err != nil || !b.Matches("", netip.MustParseAddr("::ffff:10.0.0.5"), 1) {
		t.Errorf("a mapped literal is not its IPv4 address: %v", err)
	}
	var none *Bypass
	if none.Matches("a.test", netip.Addr{}, 1) || (&Bypass{}).Matches("a.test", netip.Addr{}, 1) {
		t.Error("an empty bypass matches")
	}
}

func TestParseBypassRefuses(t *testing.T) {
	for _, bad := range []string{
		"http://a.test", "a.*.test", "127.*", "127.1", "a..test", ".", "*.", "=", "..a", "a.test:", "a.test:0", "a.test:99999", "a.test:http", "10.0.0.0/33",
		"10.0.0/8", "[10.0.0.5]", "[2001:db8::1", "[2001:db8::1]x", "[2001:db8::1]/64", "fe80::1%eth0", "2001:db8::x", "<local>", "-a", "ünicode.test", "::ffff:0:0/80", "[a:b]:1", "=*", "a.test/8",
	} {
		if b, err := ParseBypass("ok.test," + bad); err == nil || !strings.Contains(err.Error(), "bypass entry ") {
			t.Errorf("%q: %v %v", bad, b, err)
		}
	}
}

func TestChain(t *testing.T) {
	def, one, two := mustParent(t, "http://default:1"), mustParent(t, "http://one:1"), mustParent(t, "socks5://two:1")
	bypass, err := ParseBypass("skip.one.test")
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewChain(def).WithBypass(bypass).WithRoutes(
		Route{[]string{"=exact.test"}, one}, Route{[]string{"*.one.test", "two.test", "10.0.0.0/8"}, two},
		Route{[]string{"one.test"}, one}, Route{[]string{"direct.test"}, nil})
	if err != nil {
		t.Fatal(err)
	}
	for target, want := range map[string]*Parent{
		"a.test:443": def, "192.0.2.1:443": def, "exact.test:1": one, "a.exact.test:1": def, "one.test:1": one, "a.one.test:1": two,
		"two.test:1": two, "a.two.test:1": two, "10.0.0.1:1": two, "direct.test:1": nil, "skip.one.test:1": nil,
		"localhost:1": nil, "a.localhost:1": nil, "127.0.0.2:1": nil, "[::1]:1": nil,
	} {
		host, addr, port := targetOf(t, target)
		for _, scheme := range []string{"http", "https", ""} {
			if got := c.Select(host, addr, port, scheme); got != want {
				t.Errorf("%s %s: got %v, want %v", scheme, target, got, want)
			}
		}
	}
	if got := c.Select("::1%25.direct.test", netip.Addr{}, 1, "https"); got != def {
		t.Errorf("a host that is not canonical takes %v", got)
	}
	if got := c.Parents(); len(got) != 3 || got[0] != one || got[1] != two || got[2] != def {
		t.Errorf("%v", got)
	}
	for _, bad := range [][]string{nil, {"a.*.test"}, {""}, {"a.test", "b c"}} {
		if _, err := c.WithRoutes(Route{Domains: bad, Parent: one}); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	if got, _ := c.WithRoutes(Route{[]string{"a.test"}, one}); c.Select("a.test", netip.Addr{}, 1, "") != def || got.Select("a.test", netip.Addr{}, 1, "") != one {
		t.Error("a copy is not apart from its original")
	}
	var none *Chain
	if none.Select("a.test", netip.Addr{}, 1, "http") != nil || none.Parents() != nil || NewChain(nil).Parents() != nil || none.WithBypass(nil) == nil {
		t.Error("no chain selects a parent")
	}
}

// TestInherit: the variables and their order; NO_PROXY of the launch environment is the bypass (UPS-12).
func TestInherit(t *testing.T) {
	for _, tc := range []struct{ env, http, https string }{
		{"", "none", "none"},
		{"http_proxy= HTTP_PROXY=", "none", "none"},
		{"http_proxy=http://a:1", "http://a:1", "http://a:1"},
		{"HTTP_PROXY=b:1", "http://b:1", "http://b:1"},
		{"http_proxy=a:1 HTTP_PROXY=b:1", "http://a:1", "http://a:1"},
		{"http_proxy= HTTP_PROXY=b:1", "http://b:1", "http://b:1"},
		{"https_proxy=https://a", "none", "https://a:443"},
		{"https_proxy=https://a HTTPS_PROXY=b http_proxy=c", "http://c:80", "https://a:443"},
		{"ALL_PROXY=socks5h://s", "socks5://s:1080", "socks5://s:1080"},
		{"all_proxy=socks5://s ALL_PROXY=x", "socks5://s:1080", "socks5://s:1080"},
		{"ALL_PROXY=socks5://s http_proxy=a", "http://a:80", "socks5://s:1080"},
		{"HTTPS_PROXY=ann:sesame@a:1/", "none", "http://ann:***@a:1"},
	} {
		c, err := Inherit(environ(tc.env))
		if err != nil {
			t.Errorf("%s: %v", tc.env, err)
			continue
		}
		none := netip.Addr{}
		if http, https := c.Select("x.test", none, 80, "http").String(), c.Select("x.test", none, 443, "https").String(); http != tc.http || https != tc.https {
			t.Errorf("%s: got %s and %s", tc.env, http, https)
		}
	}
	c, err := Inherit(environ("http_proxy=a no_proxy=x.test,10.0.0.0/8 NO_PROXY=y.test"))
	if err != nil || c.Select("x.test", netip.Addr{}, 1, "http") != nil || c.Select("y.test", netip.Addr{}, 1, "http") == nil || len(c.Parents()) != 1 {
		t.Errorf("no_proxy: %v %v", c.Parents(), err)
	}
	for env, name := range map[string]string{
		"HTTP_PROXY=ftp://ann:sesame@a": "HTTP_PROXY", "https_proxy=http://ann:sesame@a/path": "https_proxy", "ALL_PROXY=ann:sesame": "ALL_PROXY",
		"NO_PROXY=a.*.test": "NO_PROXY", "http_proxy=\t": "http_proxy",
	} {
		if c, err := Inherit(environ(env)); err == nil || !strings.HasPrefix(err.Error(), name+": ") || strings.Contains(err.Error(), "sesame") {
			t.Errorf("%s: %v %v", env, c, err)
		}
	}
}

func environ(text string) func(string) (string, bool) {
	env := map[string]string{}
	for _, pair := range strings.Split(text, " ") {
		name, value, _ := strings.Cut(pair, "=")
		env[name] = value
	}
	return func(name string) (string, bool) { v, ok := env[name]; return v, ok }
}

// FuzzPattern: what is read matches a target that it names, and no target that is not canonical.
func FuzzPattern(f *testing.F) {
	for _, s := range []string{"*", "=a.b:1", "*.a", ".a", "10.0.0.0/8:1", "[fd00::/8]:1", "::1", "::ffff:1.2.3.4/120", "[::1%25a]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := parsePattern(text)
		if err != nil {
			return
		}
		s := subject{host: p.name, addr: p.prefix.Addr(), port: max(p.port, 1)}
		if p.kind == matchBelow {
			s.host = "x." + p.name
		}
		if p.kind == matchAll {
			s.host = "x"
		}
		if !p.matches(s) {
			t.Fatalf("%q is %+v, which does not match %+v", text, p, s)
		}
		if p.kind == matchNothing || p.kind != matchPrefix && p.matches(subject{host: "::1%25." + p.name + "x", port: s.port}) && p.kind != matchAll {
			t.Fatalf("%q is %+v", text, p)
		}
		if (&Bypass{[]pattern{p}}).Matches("::1%25."+p.name, p.prefix.Addr().WithZone("z"), s.port) && p.prefix.Addr().Is6() {
			t.Fatalf("%q bypasses an address with a zone", text)
		}
	})
}
