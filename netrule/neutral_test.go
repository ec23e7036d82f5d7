package netrule

import "testing"

// TestNeutralPatterns: what each kind of pattern matches. A star of a label stays in it.
func TestNeutralPatterns(t *testing.T) {
	must := func(p HostPattern, err error) HostPattern {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, tt := range []struct {
		pattern  HostPattern
		yes, not []string
	}{
		{must(ExactHost("Example.com.")), []string{"example.com"}, []string{"a.example.com", "example.com.evil.test"}},
		{must(ExactHost("bücher.test")), []string{"xn--bcher-kva.test"}, []string{"bcher.test"}},
		{must(ExactHost("10.0.0.1")), []string{"10.0.0.1"}, []string{"10.0.0.2", "a.test"}},
		{must(ExactHost("[::1]")), []string{"[::1]"}, []string{"[::2]"}},
		{must(Subdomains("example.com")), []string{"a.example.com", "a.b.example.com"}, []string{"example.com", "notexample.com", "10.0.0.1"}},
		{AnyHost(), []string{"a.test", "x"}, nil},
		{must(LabelGlob("example.*")), []string{"example.com"}, []string{"example.evil.com", "example", "xexample.com"}},
		{must(LabelGlob("api-*.example.com")), []string{"api-1.example.com", "api-x-2.example.com"}, []string{"api-1.x.example.com", "x.api-1.example.com"}},
		{must(LabelGlob("*.api-*.example.com")), []string{"x.api-1.example.com", "y.x.api-1.example.com"}, []string{"api-1.example.com", "x.api-1.y.example.com"}},
		{must(LabelGlob("*.*")), []string{"a.b", "a.b.c"}, []string{"a"}},
		{must(LabelGlob("10.0.0.*")), nil, []string{"10.0.0.1"}},
	} {
		policy := NewPolicy(Options{Mode: Whitelist, DefaultPorts: []PortRange{{1, 65535}}, Guard: GuardOff},
			Layer{"test", []Rule{{Action: Allow, Match: Match{Hosts: []HostPattern{tt.pattern}}}}})
		match := func(host string) bool {
			target, err := ParseConnect(host + ":443")
			if err != nil {
				t.Fatal(err)
			}
			return policy.Decide(Query{Target: target}).Action == Allow
		}
		for _, h := range tt.yes {
			if !match(h) {
				t.Errorf("%s does not match %s", tt.pattern, h)
			}
		}
		for _, h := range tt.not {
			if match(h) {
				t.Errorf("%s matches %s", tt.pattern, h)
			}
		}
	}
	for _, bad := range []string{"", "*", "a.*", "http://a.test", "a.test:80", "a b"} {
		if p, err := ExactHost(bad); err == nil {
			t.Errorf("ExactHost(%q) gives %s", bad, p)
		}
	}
	for _, bad := range []string{"", "10.0.0.1", "*.a.test"} {
		if p, err := Subdomains(bad); err == nil {
			t.Errorf("Subdomains(%q) gives %s", bad, p)
		}
	}
	for _, bad := range []string{"", "a..b", "a?.b", "a/b"} {
		if p, err := LabelGlob(bad); err == nil {
			t.Errorf("LabelGlob(%q) gives %s", bad, p)
		}
	}
}
