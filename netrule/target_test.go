package netrule

import (
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"
)

type targetVector struct {
	ID, Target, Form, Expect, Host, IP, Class string
	Port                                      uint16
}

func targetVectors(t testing.TB) []targetVector {
	t.Helper()
	data, err := os.ReadFile("../testdata/vectors/targets.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Vectors []targetVector }
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	return file.Vectors
}

// TestWireForms has spellings beyond the vector file, each a way some parser disagrees with another one.
func TestWireForms(t *testing.T) {
	good := map[string]string{
		"example.com:443":                "example.com:443",
		"EXAMPLE.com.:443":               "example.com:443",
		"_dmarc.example.com:1":           "_dmarc.example.com:1",
		"r3---sn-abcd.example.com:443":   "r3---sn-abcd.example.com:443", // HST-12
		"[::ffff:1.2.3.4]:80":            "1.2.3.4:80",
		"[2001:DB8::1]:65535":            "[2001:db8::1]:65535",
		"1.2.3.4:80":                     "1.2.3.4:80",
		"xn--80ak6aa92e.com:443":         "xn--80ak6aa92e.com:443",
		strings.Repeat("a", 63) + ":443": strings.Repeat("a", 63) + ":443",
	}
	for in, want := range good {
		got, err := ParseConnect(in)
		if err != nil || got.Authority() != want {
			t.Errorf("ParseConnect(%q) = %v, %v; want %s", in, got.Authority(), err, want)
		}
	}
	bad := []string{
		"", ":", ":443", "a", "a:", "a:0", "a:65536", "a:65616", "a:99999999999999999999", "a:00443", "a:0443", "a:+443", "a:-1", "a: 443", "a:443 ", "a:4_43", "a:443:80", "a::443", "a:443/", "a:443/path",
		"user@a:443", "a:443@b:443", "a?b:443", "a#b:443", "http://a:443", "/x:443", "//a:443", "*:443",
		"a..b:443", ".a:443", "a.b..:443", "-a:443", "a-:443", "a.-b:443",
		"[a]:443", "[[a]]:443", "[a]x:443", "[::1]x:443", "[::1", "[::1]", "[]:443", "::1:443", "[::1%lo]:443", "[::1%25.a.com]:443", "[1.2.3.4]:80", "[::ffff:1.2.3.04]:80",
		"0x7f000001:80", "0x7f.1:80", "0X7f.1:80", "0177.0.0.1:80", "017700000001:80", "010.0.0.1:80", "127.1:80", "127.0.1:80", "0:80", "169.254.43518:80", "127.0.0.1.:80", "1.2.3.4.5:80", "256.1.1.1:80", "4294967296:80", "a.1:80", "foo.0x7f:80", "foo.0x:80", "1.2.3.:80",
		"a\x00.b.com:443", "a\t.com:443", "a\n.com:443", "a\r.com:443", "a b:443", "\x80.com:443", "\xff\xfe.com:443", "é.com:443", "１２７.0.0.1:80", "①②⑦.⓪.⓪.①:80", "127。0。0。1:80", "\u212a.com:443", "a%2ecom:443", "a%00:443", `a\b:443`, `a"b:443`, "a<b:443", "a;b:443", "a,b:443", "a!b:443", "a$b:443",
		"xn--:443", "xn--.com:443", "xn--example-.com:443", "xn--a.com:443", "xn--zz-z.com:443",
		strings.Repeat("a", 64) + ":443", strings.Repeat("a.", 126) + "aa:443",
	}
	for _, in := range bad {
		got, err := ParseConnect(in)
		var te *TargetError
		if !errors.As(err, &te) || got != (Target{}) {
			t.Errorf("ParseConnect(%q) = %+v, %v; want a TargetError", in, got, err)
		}
	}
	for in, want := range map[string]string{"a": "a:80", "a:": "a:80", "a:8080": "a:8080", "[::1]": "[::1]:80"} {
		if got, err := ParseHTTPAuthority(in); err != nil || got.Authority() != want {
			t.Errorf("ParseHTTPAuthority(%q) = %v, %v; want %s", in, got.Authority(), err, want)
		}
	}
}

// TestParseURL: tool calls and explain read a URL as a browser does.
func TestParseURL(t *testing.T) {
	tests := []struct{ in, want string }{
		{"https://Example.COM/a", "https example.com 443"},
		{"https://example.com./", "https example.com 443"},
		{"http://example.com:443", "http example.com 443"},
		{"http:example.com", "http example.com 80"},
		{`http:\\example.com\x`, "http example.com 80"},
		{"http:///example.com", "http example.com 80"},
		{"http://user:pw@evil.test@a.test/", "http a.test 80"},
		{"http://a.test?@evil.test/", "http a.test 80"},
		{`http://evil.test\@a.test/`, "http evil.test 80"},
		{"http://%65xample.com/", "http example.com 80"},
		{"http://bücher.example/", "http xn--bcher-kva.example 80"},
		{"http://ｅｘａｍｐｌｅ.com/", "http example.com 80"},
		{"http://127。0。0。1/", "http 127.0.0.1 80"},
		{"http://0x7f.1/", "http 127.0.0.1 80"},
		{"http://2130706433/", "http 127.0.0.1 80"},
		{"http://0177.0.0.1/", "http 127.0.0.1 80"},
		{"http://127.0.0.1./", "http 127.0.0.1 80"},
		{"http://::1/", "http ::1 80"},
		{"http://[::FFFF:7f00:1]/", "http 127.0.0.1 80"},
		{"HTTPS://a.test:08443", "https a.test 8443"},
		{"a.test", " a.test 0"},
		{"a.test:22", " a.test 22"},
		{"10.0.0.1:22", " 10.0.0.1 22"},
		{"[::1]:22", " ::1 22"},
		{"  https://a.test/  ", "https a.test 443"},
	}
	for _, tt := range tests {
		got, err := ParseURL(tt.in)
		if err != nil {
			t.Errorf("ParseURL(%q): %v", tt.in, err)
			continue
		}
		if s := strings.Join([]string{got.Scheme.String(), got.Host, PortRange{got.Port, got.Port}.String()}, " "); s != tt.want {
			t.Errorf("ParseURL(%q) = %q, want %q", tt.in, s, tt.want)
		}
	}
	for _, in := range []string{"", "http://", "http:///", "ftp://a.test/", "git@a.test:x", "owner/name", "http://a b/", "http://a%zz/", "http://a.test:99999/", "http://a..b/", "http://1.2.3.4.5/", "http://[a]/", "http://a^b/", "http://a%00b/", "http://a:0/"} {
		if got, err := ParseURL(in); err == nil {
			t.Errorf("ParseURL(%q) = %+v, want an error", in, got)
		}
	}
}

func TestHostPatternErrors(t *testing.T) {
	for _, in := range []string{"", ".", "...", "=", "=*", "=*.a.test", "https://a.test", "a.test/", "a.test:443", "*.a.test:443", "10.0.0.0/8", "user@a.test", "a%2etest", "a test", "[ab].com", "[ab]", "x[", "a..b", "*b*c*d", "b[ü]cher.de", "-a.test", "1.2.3.4.5", "::g"} {
		if p, err := ParseHostPattern(in, 0); err == nil {
			t.Errorf("ParseHostPattern(%q) = %+v, want an error", in, p)
		}
	}
}

func TestHostPatternCanonical(t *testing.T) {
	tests := []struct{ pattern, target string }{
		{"Example.COM.", "https://example.com"},
		{"bücher.example", "https://xn--bcher-kva.example"},
		{"*.bücher.example", "https://a.xn--bcher-kva.example"},
		{"0x7f.1", "http://127.0.0.1"},
		{"[::ffff:7f00:1]", "http://127.0.0.1"},
		{"::1", "http://[0:0::1]"},
		{"a[bc].test", "http://ab.test"},
		{"example.*", "http://example.evil.com"},
		{"**.a.test", "http://x.a.test"},
	}
	for _, tt := range tests {
		p, err := ParseHostPattern(tt.pattern, 0)
		if err != nil {
			t.Errorf("ParseHostPattern(%q): %v", tt.pattern, err)
			continue
		}
		if !p.matches(query(t, tt.target).Target, true) {
			t.Errorf("%q does not match %s", tt.pattern, tt.target)
		}
	}
}

func TestAddrPatterns(t *testing.T) {
	tests := []struct {
		pattern string
		yes, no []string
	}{
		{"10.1.2.3/8", []string{"10.9.9.9"}, []string{"11.0.0.1"}},
		{"::ffff:10.0.0.0/8", []string{"10.9.9.9"}, []string{"11.0.0.1"}}, // IPL-42
		{"::ffff:10.0.0.0/104", []string{"10.9.9.9"}, []string{"11.0.0.1"}},
		{"::ffff:a9fe:a9fe", []string{"169.254.169.254"}, nil},
		{"fc00::/7", []string{"fd00::1"}, []string{"fe80::1", "10.0.0.1"}}, // IPL-44
		{"0:0:0:0:0:0:0:1", []string{"::1"}, nil},
		{"fd00:*", []string{"fd00::1"}, []string{"fd01::1"}},
		{"::ffff:10.0.*.*", []string{"10.0.1.1"}, []string{"10.1.1.1"}},
	}
	for _, tt := range tests {
		p, err := ParseAddrPattern(tt.pattern, 0)
		if err != nil {
			t.Errorf("ParseAddrPattern(%q): %v", tt.pattern, err)
			continue
		}
		for _, a := range addrs(tt.yes...) {
			if !p.matches(a) {
				t.Errorf("%q does not match %s", tt.pattern, a)
			}
		}
		for _, a := range addrs(tt.no...) {
			if p.matches(a) {
				t.Errorf("%q matches %s", tt.pattern, a)
			}
		}
	}
	for _, in := range []string{"", "a.test", "10.0.0.0/33", "10.0.0.0/999", "300.0.0.0/8", "010.0.0.0/8", "fe80::1%eth0", "::/129", "10.0.0.0/", "10.0.0.0/-1", "1.2.3", "10.*.*.*", "x*", "::ffff:10.0.0.0/140"} {
		if p, err := ParseAddrPattern(in, 0); err == nil {
			t.Errorf("ParseAddrPattern(%q) = %+v, want an error", in, p)
		}
	}
}

func TestPortPatterns(t *testing.T) {
	for in, want := range map[string]string{"*": "*", "443": "443", "0443": "443", "8000-9000": "8000-9000", "0-65535": "*", "0-80": "0-80"} {
		if got, err := ParsePortPattern(in); err != nil || got.String() != want {
			t.Errorf("ParsePortPattern(%q) = %v, %v; want %s", in, got, err, want)
		}
	}
	for _, in := range []string{"", "0", "0-0", "-1", "8000-", "-80", "9000-8000", "70000", "0-70000", "1 - 2", "+80", "http", "80,443"} {
		if got, err := ParsePortPattern(in); err == nil {
			t.Errorf("ParsePortPattern(%q) = %v, want an error", in, got)
		}
	}
}

// TestClasses covers what the vector file has no target for.
func TestClasses(t *testing.T) {
	tests := map[string]Class{
		"::ffff:10.0.0.1": ClassPrivate, "::127.0.0.1": ClassLoopback, "::a9fe:a9fe": ClassMetadata, "::1": ClassLoopback, "::": ClassUnspecified,
		"::ffff:0:7f00:1": ClassLoopback, "64:ff9b::7f00:1": ClassLoopback, "64:ff9b:1::a00:1": ClassReserved, "2002:7f00:1::": ClassLoopback,
		"2001:0:7f00:1::": ClassLoopback, "2001::5601:5601": ClassMetadata, "fe80::5efe:7f00:1": ClassLoopback, "2606:4700::200:5efe:a00:1": ClassPrivate,
		"2606:4700::5efe:808:808": ClassReserved, "fec0::1": ClassPrivate, "3fff::1": ClassReserved, "4000::1": ClassReserved, "5f00::1": ClassReserved, "2606::1": ClassPublic,
		"0.0.0.0": ClassUnspecified, "0.1.2.3": ClassReserved, "255.255.255.255": ClassReserved, "192.0.0.192": ClassMetadata, "192.0.0.1": ClassReserved, "100.64.0.1": ClassCGNAT,
		"fe80::a9fe:a9fe": ClassMetadata, "fd20:ce::254": ClassMetadata, "169.254.0.23": ClassMetadata, "169.254.1.1": ClassLinkLocal, "ff02::1": ClassMulticast,
	}
	for text, want := range tests {
		if got := ClassifyAddr(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
	if got := len(metadataAddrs); got != 16 {
		t.Errorf("%d metadata addresses, want 16", got)
	}
	for a := range metadataAddrs {
		if got := ClassifyAddr(a); got != ClassMetadata {
			t.Errorf("metadata address %s is %s", a, got)
		}
	}
	for name := range metadataNames {
		if target, err := ParseConnect(name + ":80"); err != nil || target.Host != name {
			t.Errorf("metadata name %q is not canonical: %v", name, err)
		}
	}
}

// TestNAT64 has the layouts of RFC 6052 §2.4.
func TestNAT64(t *testing.T) {
	for prefix, embedded := range map[string]string{
		"2001:db8::/32":         "2001:db8:c000:221::",
		"2001:db8:100::/40":     "2001:db8:1c0:2:21::",
		"2001:db8:122::/48":     "2001:db8:122:c000:2:2100::",
		"2001:db8:122:300::/56": "2001:db8:122:3c0:0:221::",
		"2001:db8:122:344::/64": "2001:db8:122:344:c0:2:2100::",
		"2001:db8:122:344::/96": "2001:db8:122:344::192.0.2.33",
	} {
		s := Space{NAT64: []netip.Prefix{netip.MustParsePrefix(prefix)}}
		_, forms := s.Classify(netip.MustParseAddr(embedded))
		if got := forms[1].Addr; got != netip.MustParseAddr("192.0.2.33") {
			t.Errorf("%s in %s carries %v", embedded, prefix, got)
		}
	}
	if ValidNAT64(netip.MustParsePrefix("2001:db8::/33")) || ValidNAT64(netip.MustParsePrefix("10.0.0.0/32")) || !ValidNAT64(nat64WellKnown) {
		t.Error("ValidNAT64 is wrong")
	}
}

// FuzzParseConnect: no panic; what is accepted is canonical, safe to print, and stable.
func FuzzParseConnect(f *testing.F) {
	for _, v := range targetVectors(f) {
		f.Add(v.Target)
	}
	f.Fuzz(func(t *testing.T, in string) {
		got, err := ParseConnect(in)
		if err != nil {
			return
		}
		for i := range len(got.Host) {
			if !isHostByte(got.Host[i]) && got.Host[i] != ':' {
				t.Fatalf("%q gives host %q", in, got.Host)
			}
		}
		again, err := ParseConnect(got.Authority())
		if err != nil || again != got {
			t.Fatalf("%q gives %+v, and that gives %+v, %v", in, got, again, err)
		}
		got.Scheme = SchemeHTTPS // what a browser would open is no tunnel any more
		if lenient, err := ParseURL("https://" + in); err != nil || lenient != got {
			t.Fatalf("%q: the wire reads %+v, a browser %+v, %v", in, got, lenient, err)
		}
	})
}

func FuzzParseURL(f *testing.F) {
	for _, s := range []string{"http://%65.com", "https://a@b", "http:\\\\x", "http://①②⑦.⓪.⓪.①", "::1", "a:1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		got, err := ParseURL(in)
		if err != nil {
			return
		}
		if got.Port != 0 {
			strict, err := ParseConnect(got.Authority())
			if err != nil || strict.Host != got.Host || strict.Addr != got.Addr {
				t.Fatalf("%q gives %+v, which the wire reads as %+v, %v", in, got, strict, err)
			}
		}
	})
}

func FuzzParseHostPattern(f *testing.F) {
	for _, s := range []string{"*.a.test", "=a", "[::1]", "a*b?", "ü.*", ".x"} {
		f.Add(s, "a.test")
	}
	f.Fuzz(func(t *testing.T, pattern, host string) {
		p, err := ParseHostPattern(pattern, 0)
		if err != nil {
			return
		}
		if target, err := ParseConnect(host + ":443"); err == nil {
			p.matches(target, true)
		}
	})
}
