package netrule

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"dshproxy/netrule/glob"
)

func addrs(texts ...string) []netip.Addr {
	out := make([]netip.Addr, len(texts))
	for i, s := range texts {
		out[i] = netip.MustParseAddr(s)
	}
	return out
}

// rule makes a rule from patterns: d= domains, i= ips, p= ports, s= schemes.
func rule(t testing.TB, action Action, patterns ...string) Rule {
	t.Helper()
	r := Rule{Action: action, Ref: RuleRef{File: "/rules.yaml"}}
	for _, p := range patterns {
		var err error
		switch kind, text := p[:2], p[2:]; kind {
		case "d:":
			var h HostPattern
			h, err = ParseHostPattern(text, 0)
			r.Match.Hosts = append(r.Match.Hosts, h)
		case "i:":
			var a AddrPattern
			a, err = ParseAddrPattern(text, 0)
			r.Match.Addrs = append(r.Match.Addrs, a)
		case "p:":
			var pr PortRange
			pr, err = ParsePortPattern(text)
			r.Match.Ports = append(r.Match.Ports, pr)
		case "s:":
			s, ok := ParseScheme(text)
			if !ok {
				t.Fatalf("scheme %q", text)
			}
			r.Match.Schemes = append(r.Match.Schemes, s)
		case "a:":
			var g *glob.Glob
			g, err = glob.Compile(text, glob.Options{})
			r.Agents = append(r.Agents, g)
		default:
			t.Fatalf("pattern %q", p)
		}
		if err != nil {
			t.Fatalf("pattern %q: %v", p, err)
		}
	}
	return r
}

func policy(opts Options, rules ...Rule) *Policy {
	for i := range rules {
		rules[i].Ref.Index, rules[i].Ref.Line = i, 10*i
	}
	return NewPolicy(opts, Layer{"workspace", rules})
}

var anyPort = []PortRange{{1, 65535}}

func query(t testing.TB, target string, agents ...string) Query {
	t.Helper()
	parsed, err := ParseURL(target)
	if err != nil {
		t.Fatalf("ParseURL(%q): %v", target, err)
	}
	return Query{parsed, agents}
}

// outcome is the short form that the tables compare.
func outcome(d Decision) string {
	s := d.Action.String() + " " + d.Code.String()
	if d.Matched() {
		s += fmt.Sprintf(" #%d", d.Rule.Index)
	}
	if d.NeedsAddrs {
		s += " needs"
	}
	if kept := d.Kept(); len(kept) > 0 {
		s += fmt.Sprint(" ", kept)
	}
	return s
}

func TestZeroValuesDeny(t *testing.T) {
	q := query(t, "https://a.test")
	var nilPolicy *Policy
	for _, d := range []Decision{nilPolicy.Decide(q), nilPolicy.DecideAddrs(q, addrs("1.1.1.1"), nil), (&Policy{}).Decide(q), NewPolicy(Options{}).DecideAddrs(q, addrs("1.1.1.1"), nil), {}} {
		if d.Action != Deny || d.Kept() != nil {
			t.Errorf("%+v does not deny", d)
		}
	}
	r := Rule{}
	if d := policy(Options{Mode: AllowAll, DefaultPorts: anyPort}, r).Decide(q); d.Action != Deny {
		t.Errorf("the zero Rule gives %s", outcome(d))
	}
	if (HostPattern{}).matches(q.Target, true) || (AddrPattern{}).matches(addrs("1.1.1.1")[0]) || (PortRange{}).Contains(0) {
		t.Error("a zero pattern matches")
	}
	if Class(0) != ClassUnknown || ClassifyAddr(netip.Addr{}) != ClassUnknown {
		t.Error("the invalid address has a class")
	}
}

// TestWalkByName has the rows of network.md §3, steps 2 to 4.
func TestWalkByName(t *testing.T) {
	white := Options{Mode: Whitelist, DefaultPorts: anyPort}
	tests := []struct {
		name   string
		opts   Options
		rules  []Rule
		target string
		want   string
	}{
		{"no rule", white, nil, "https://a.test", "deny not_allowed"},
		{"plain covers subdomains", white, []Rule{rule(t, Allow, "d:a.test")}, "https://x.a.test", "allow allowed_by_rule #0"},
		{"label boundary (HST-24)", white, []Rule{rule(t, Allow, "d:a.test")}, "https://xa.test", "deny not_allowed"},
		{"subdomains only (HST-25)", white, []Rule{rule(t, Allow, "d:*.a.test")}, "https://a.test", "deny not_allowed"},
		{"leading dot", white, []Rule{rule(t, Allow, "d:.a.test")}, "https://b.c.a.test", "allow allowed_by_rule #0"},
		{"exact", white, []Rule{rule(t, Allow, "d:=a.test")}, "https://x.a.test", "deny not_allowed"},
		{"exact hits", white, []Rule{rule(t, Allow, "d:=a.test")}, "https://A.test.", "allow allowed_by_rule #0"},
		{"first match", white, []Rule{rule(t, Allow, "d:a.test"), rule(t, Deny, "d:*")}, "https://a.test", "allow allowed_by_rule #0"},
		{"first match, deny", white, []Rule{rule(t, Deny, "d:*"), rule(t, Allow, "d:a.test")}, "https://a.test", "deny denied_by_rule #0"},
		{"ask", white, []Rule{rule(t, Ask, "d:a.test")}, "https://a.test", "ask needs_approval #0"},
		{"deny with ips is remembered", white, []Rule{rule(t, Deny, "i:10.0.0.0/8"), rule(t, Allow, "d:a.test")}, "https://a.test", "allow allowed_by_rule #1 needs"},
		{"a later deny by name ends it without lookup", white, []Rule{rule(t, Deny, "i:10.0.0.0/8"), rule(t, Deny, "d:a.test")}, "https://a.test", "deny denied_by_rule #1"},
		{"deny with ips behind the end", white, []Rule{rule(t, Allow, "d:a.test"), rule(t, Deny, "i:10.0.0.0/8")}, "https://a.test", "allow allowed_by_rule #0"},
		{"remembered, but the mode denies", white, []Rule{rule(t, Deny, "i:10.0.0.0/8")}, "https://a.test", "deny not_allowed"},
		{"possible allow", white, []Rule{rule(t, Allow, "i:10.0.0.0/8"), rule(t, Deny, "d:*")}, "https://a.test", "allow allowed_by_rule #0 needs"},
		{"possible allow fails on its port", white, []Rule{rule(t, Allow, "i:10.0.0.0/8", "p:22"), rule(t, Deny, "d:*")}, "https://a.test", "deny denied_by_rule #1"},
		{"deny with domain and ips is remembered", white, []Rule{rule(t, Deny, "d:a.test", "i:10.0.0.0/8"), rule(t, Allow, "d:*")}, "https://a.test", "allow allowed_by_rule #1 needs"},
		{"deny with another domain and ips is not", white, []Rule{rule(t, Deny, "d:b.test", "i:10.0.0.0/8"), rule(t, Allow, "d:*")}, "https://a.test", "allow allowed_by_rule #1"},
		{"ports", white, []Rule{rule(t, Allow, "d:a.test", "p:8000-9000")}, "https://a.test:8443", "allow allowed_by_rule #0"},
		{"ports fail", white, []Rule{rule(t, Allow, "d:a.test", "p:8000-9000")}, "https://a.test", "deny not_allowed"},
		{"schemes", white, []Rule{rule(t, Allow, "d:a.test", "s:https")}, "http://a.test", "deny not_allowed"},
		{"default ports of an allow rule", Options{Mode: Whitelist, DefaultPorts: []PortRange{{80, 80}, {443, 443}}}, []Rule{rule(t, Allow, "d:a.test")}, "https://a.test:22", "deny not_allowed"},
		{"default ports do not limit deny", Options{Mode: AllowAll, DefaultPorts: anyPort}, []Rule{rule(t, Deny, "d:a.test")}, "https://a.test:22", "deny denied_by_rule #0"},
		{"mail needs its own port (CON-11)", white, []Rule{rule(t, Allow, "d:a.test")}, "https://a.test:25", "deny not_allowed"},
		{"mail, star", white, []Rule{rule(t, Allow, "d:a.test", "p:*")}, "https://a.test:587", "deny not_allowed"},
		{"DoT, range (DNS-30)", white, []Rule{rule(t, Allow, "d:a.test", "p:800-900")}, "https://a.test:853", "deny not_allowed"},
		{"mail, exact", white, []Rule{rule(t, Allow, "d:a.test", "p:25")}, "https://a.test:25", "allow allowed_by_rule #0"},
		{"mail, deny by star", Options{Mode: AllowAll, DefaultPorts: anyPort}, []Rule{rule(t, Deny, "d:a.test", "p:*")}, "https://a.test:25", "deny denied_by_rule #0"},
		{"allow-all", Options{Mode: AllowAll, DefaultPorts: anyPort}, nil, "https://a.test", "allow allowed_by_mode"},
		{"allow-all, mail", Options{Mode: AllowAll, DefaultPorts: anyPort}, nil, "https://a.test:25", "deny not_allowed"},
		{"unlisted ask", Options{Mode: Whitelist, Unlisted: Ask}, nil, "https://a.test", "ask needs_approval"},
		{"loopback allow", Options{Mode: DenyAll, Loopback: true, DefaultPorts: anyPort}, nil, "http://x.localhost", "allow allowed_by_mode"},
		{"loopback allow, behind every deny (POL-01)", Options{Loopback: true, DefaultPorts: anyPort}, []Rule{rule(t, Deny, "d:localhost")}, "http://localhost", "deny denied_by_rule #0"},
		{"metadata name under allow-all (IPL-28)", Options{Mode: AllowAll, DefaultPorts: anyPort}, nil, "http://metadata.google.internal", "deny metadata_address"},
		{"metadata name under a parent", white, []Rule{rule(t, Allow, "d:internal")}, "http://metadata.google.internal", "deny metadata_address #0"},
		{"metadata name named", white, []Rule{rule(t, Allow, "d:=metadata.google.internal")}, "http://metadata.google.internal", "allow allowed_by_rule #0"},
		{"dry run", Options{Mode: Whitelist, DryRun: true}, nil, "https://a.test", "allow dry_run"},
		{"dry run, metadata name", Options{Mode: Whitelist, DryRun: true}, nil, "http://metadata.goog", "deny metadata_address"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := outcome(policy(tt.opts, tt.rules...).Decide(query(t, tt.target))); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// TestNeedsAll: a whole answer is waited for only where a deny or ask rule may turn on any of its addresses.
func TestNeedsAll(t *testing.T) {
	white := Options{Mode: Whitelist, DefaultPorts: anyPort}
	tests := []struct {
		rules []Rule
		want  bool
	}{
		{[]Rule{rule(t, Allow, "d:a.test", "i:1.1.1.1")}, false},
		{[]Rule{rule(t, Allow, "d:a.test")}, false},
		{[]Rule{rule(t, Deny, "i:10.0.0.0/8"), rule(t, Allow, "d:a.test")}, true},
		{[]Rule{rule(t, Allow, "d:a.test", "i:1.1.1.1"), rule(t, Ask, "d:a.test", "i:10.0.0.0/8"), rule(t, Allow, "d:a.test")}, true},
		{[]Rule{rule(t, Allow, "d:a.test"), rule(t, Deny, "i:10.0.0.0/8")}, false},
	}
	for i, tt := range tests {
		if d := policy(white, tt.rules...).Decide(query(t, "https://a.test")); d.Action != Allow || d.NeedsAll != tt.want {
			t.Errorf("%d: %s needs all %v, want %v", i, outcome(d), d.NeedsAll, tt.want)
		}
	}
}

func TestAgents(t *testing.T) {
	opts := Options{Mode: Whitelist, DefaultPorts: anyPort}
	allow, deny := rule(t, Allow, "d:a.test", "a:ci-*"), rule(t, Deny, "d:a.test", "a:ci-*")
	tests := []struct {
		rules  []Rule
		agents []string
		want   string
	}{
		{[]Rule{allow}, nil, "deny not_allowed"},
		{[]Rule{allow}, []string{"ci-1"}, "allow allowed_by_rule #0"},
		{[]Rule{allow}, []string{"x"}, "deny not_allowed"},
		{[]Rule{deny, rule(t, Allow, "d:a.test")}, nil, "deny denied_by_rule #0"},
		{[]Rule{deny, rule(t, Allow, "d:a.test")}, []string{"x"}, "allow allowed_by_rule #1"},
	}
	for _, tt := range tests {
		if got := outcome(policy(opts, tt.rules...).Decide(query(t, "https://a.test", tt.agents...))); got != tt.want {
			t.Errorf("agents %v: got %s, want %s", tt.agents, got, tt.want)
		}
	}
}

// TestWalkWithAddrs has steps 6 and 7 of network.md §3 and the permissions of §4.
func TestWalkWithAddrs(t *testing.T) {
	white := Options{Mode: Whitelist, DefaultPorts: anyPort}
	all := Options{Mode: AllowAll, DefaultPorts: anyPort}
	byName := rule(t, Allow, "d:a.test")
	opening := func(ips ...string) []Rule {
		patterns := []string{"d:a.test"}
		for _, ip := range ips {
			patterns = append(patterns, "i:"+ip)
		}
		return []Rule{rule(t, Allow, patterns...)}
	}
	tests := []struct {
		name  string
		opts  Options
		rules []Rule
		addrs []string
		want  string
	}{
		{"all admitted", white, []Rule{byName}, []string{"1.1.1.1", "2606:4700::1"}, "allow allowed_by_rule #0 [1.1.1.1 2606:4700::1]"},
		{"allow admits what it matches (DNS-06)", white, opening("1.1.1.0/24"), []string{"1.1.1.1", "8.8.8.8"}, "allow allowed_by_rule #0 [1.1.1.1]"},
		{"deny by any address (DNS-07)", white, []Rule{rule(t, Deny, "i:8.8.8.8"), byName}, []string{"1.1.1.1", "8.8.8.8"}, "deny denied_by_rule #0"},
		{"deny by embedded address (DNS-09)", white, []Rule{rule(t, Deny, "i:8.8.8.8"), byName}, []string{"64:ff9b::808:808"}, "deny denied_by_rule #0"},
		{"mapped answer", white, []Rule{rule(t, Deny, "i:8.8.8.8"), byName}, []string{"::ffff:8.8.8.8"}, "deny denied_by_rule #0"},
		{"mixed answer is filtered (DNS-05)", white, []Rule{byName}, []string{"1.1.1.1", "127.0.0.1"}, "allow allowed_by_rule #0 [1.1.1.1]"},
		{"mixed answer refused", Options{Mode: Whitelist, DefaultPorts: anyPort, Guard: GuardRefuse}, []Rule{byName}, []string{"1.1.1.1", "127.0.0.1"}, "deny special_use_address #0"},
		{"only private", white, []Rule{byName}, []string{"10.0.0.1"}, "deny special_use_address #0"},
		{"private under allow-all", all, nil, []string{"10.0.0.1"}, "deny special_use_address"},
		{"metadata under allow-all", all, nil, []string{"169.254.169.254"}, "deny metadata_address"},
		{"metadata in dry run", Options{DryRun: true}, nil, []string{"169.254.169.254"}, "deny metadata_address"},
		{"private in dry run", Options{DryRun: true}, nil, []string{"10.0.0.1"}, "deny special_use_address"},
		{"public in dry run", Options{DryRun: true}, []Rule{rule(t, Deny, "d:*")}, []string{"1.1.1.1"}, "allow dry_run #0 [1.1.1.1]"},
		{"0.0.0.0/0 opens nothing", white, opening("0.0.0.0/0"), []string{"10.0.0.1"}, "deny special_use_address #0"},
		{"star opens nothing", white, opening("*"), []string{"10.0.0.1"}, "deny special_use_address #0"},
		{"::/0 opens nothing", white, opening("::/0"), []string{"fd00::1"}, "deny special_use_address #0"},
		{"a block opens", white, opening("10.0.0.0/8"), []string{"10.0.0.1"}, "allow allowed_by_rule #0 [10.0.0.1]"},
		{"a glob that is a block opens", white, opening("10.0.*.*"), []string{"10.0.0.1"}, "allow allowed_by_rule #0 [10.0.0.1]"},
		{"a glob that is no block does not", white, opening("1*"), []string{"10.0.0.1"}, "deny special_use_address #0"},
		{"9.0.0.0/7 is no special block", white, opening("8.0.0.0/5"), []string{"10.0.0.1"}, "deny special_use_address #0"},
		{"ULA block", white, opening("fd00::/8"), []string{"fd00::1"}, "allow allowed_by_rule #0 [fd00::1]"},
		{"ULA glob", white, opening("fd00:*"), []string{"fd00::1"}, "allow allowed_by_rule #0 [fd00::1]"},
		{"link-local needs a literal (IPL-27)", white, opening("169.254.0.0/16"), []string{"169.254.1.1"}, "deny special_use_address #0"},
		{"link-local literal", white, opening("169.254.1.1"), []string{"169.254.1.1"}, "allow allowed_by_rule #0 [169.254.1.1]"},
		{"metadata needs a literal (IPL-30)", white, opening("100.64.0.0/10"), []string{"100.100.100.200"}, "deny metadata_address #0"},
		{"metadata literal", white, opening("100.100.100.200"), []string{"100.100.100.200"}, "allow allowed_by_rule #0 [100.100.100.200]"},
		{"azure (IPL-29)", white, opening("168.63.129.0/24"), []string{"168.63.129.16"}, "deny metadata_address #0"},
		{"v6 metadata (IPL-31)", white, opening("fd00::/8"), []string{"fd00:ec2::254"}, "deny metadata_address #0"},
		{"NAT64 public", white, []Rule{byName}, []string{"64:ff9b::808:808"}, "allow allowed_by_rule #0 [64:ff9b::808:808]"},
		{"NAT64 private", white, []Rule{byName}, []string{"64:ff9b::a00:1"}, "deny special_use_address #0"},
		{"NAT64 private, opened by its own family", white, opening("10.0.0.0/8"), []string{"64:ff9b::a00:1"}, "allow allowed_by_rule #0 [64:ff9b::a00:1]"},
		{"NAT64 private, not by the outer form", white, opening("64:ff9b::/96"), []string{"64:ff9b::a00:1"}, "deny special_use_address #0"},
		{"NAT64 metadata (DNS-09)", white, opening("10.0.0.0/8", "64:ff9b::/96"), []string{"64:ff9b::a9fe:a9fe"}, "deny metadata_address #0"},
		{"6to4 needs both forms", white, opening("10.0.0.0/8"), []string{"2002:a00:1::"}, "deny special_use_address #0"},
		{"6to4 with both", white, opening("10.0.0.0/8", "2002::/16"), []string{"2002:a00:1::"}, "allow allowed_by_rule #0 [2002:a00:1::]"},
		{"privateAllowed", Options{Mode: AllowAll, DefaultPorts: anyPort, PrivateAllowed: []netip.Prefix{netip.MustParsePrefix("198.18.0.0/15")}}, nil, []string{"198.18.0.1"}, "allow allowed_by_mode [198.18.0.1]"},
		{"privateAllowed never opens metadata", Options{Mode: AllowAll, DefaultPorts: anyPort, PrivateAllowed: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}}, nil, []string{"169.254.169.254"}, "deny metadata_address"},
		{"internal", Options{Mode: AllowAll, DefaultPorts: anyPort, Space: Space{Internal: []netip.Prefix{netip.MustParsePrefix("20.0.0.0/8")}}}, nil, []string{"20.1.1.1"}, "deny special_use_address"},
		{"internal opened", Options{Mode: DenyAll, DefaultPorts: anyPort, Space: Space{Internal: []netip.Prefix{netip.MustParsePrefix("20.0.0.0/8")}}}, opening("20.1.0.0/16"), []string{"20.1.1.1"}, "allow allowed_by_rule #0 [20.1.1.1]"},
		{"operator NAT64", Options{Mode: AllowAll, DefaultPorts: anyPort, Space: Space{NAT64: []netip.Prefix{netip.MustParsePrefix("2001:db8:64::/96")}}}, nil, []string{"2001:db8:64::7f00:1"}, "deny special_use_address"},
		{"own address (IPL-45)", all, nil, []string{"203.0.114.77"}, "deny special_use_address"},
		{"own address by range", white, opening("203.0.114.0/24"), []string{"203.0.114.77"}, "deny special_use_address #0"},
		{"own address by literal", white, opening("203.0.114.77"), []string{"203.0.114.77"}, "allow allowed_by_rule #0 [203.0.114.77]"},
		{"no address", white, []Rule{byName}, nil, "deny not_allowed #0"},
	}
	self := func(a netip.Addr) bool { return a == netip.MustParseAddr("203.0.114.77") }
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := policy(tt.opts, tt.rules...).DecideAddrs(query(t, "https://a.test"), addrs(tt.addrs...), self)
			if got := outcome(d); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			if d.Action != Allow && d.Kept() != nil {
				t.Errorf("a refusal keeps %v", d.Kept())
			}
		})
	}
}

// TestLiterals: a wildcard of an allow rule reaches no address (CON-37).
func TestLiterals(t *testing.T) {
	white := Options{Mode: Whitelist, DefaultPorts: anyPort}
	tests := []struct {
		rules  []Rule
		target string
		want   string
	}{
		{[]Rule{rule(t, Allow, "d:*")}, "https://1.1.1.1", "deny not_allowed"},
		{[]Rule{rule(t, Allow, "d:1.1.*")}, "https://1.1.1.1", "deny not_allowed"},
		{[]Rule{rule(t, Deny, "d:*")}, "https://1.1.1.1", "deny denied_by_rule #0"},
		{[]Rule{rule(t, Ask, "d:1.1.*")}, "https://1.1.1.1", "ask needs_approval #0"},
		{[]Rule{rule(t, Allow, "d:1.1.1.1")}, "https://1.1.1.1", "allow allowed_by_rule #0 [1.1.1.1]"},
		{[]Rule{rule(t, Allow, "d:=[2606:4700::1]")}, "https://[2606:4700:0::1]", "allow allowed_by_rule #0 [2606:4700::1]"},
		{[]Rule{rule(t, Allow, "i:1.1.1.1")}, "https://1.1.1.1", "allow allowed_by_rule #0 [1.1.1.1]"},
		{[]Rule{rule(t, Allow, "d:*", "i:1.1.1.1")}, "https://1.1.1.1", "allow allowed_by_rule #0 [1.1.1.1]"},
		{[]Rule{rule(t, Allow, "d:10.0.0.1")}, "https://10.0.0.1", "deny special_use_address #0"},
		{[]Rule{rule(t, Allow, "i:10.0.0.1")}, "https://10.0.0.1", "allow allowed_by_rule #0 [10.0.0.1]"},
	}
	for _, tt := range tests {
		if got := outcome(policy(white, tt.rules...).Decide(query(t, tt.target))); got != tt.want {
			t.Errorf("%s with %v: got %s, want %s", tt.target, tt.rules[0].Match, got, tt.want)
		}
	}
}

// TestLayers: deny, then ask, then allow; admitted addresses are intersected; a denial by name ends the decision.
func TestLayers(t *testing.T) {
	opts := Options{Mode: Whitelist, DefaultPorts: anyPort}
	layers := func(managed, workspace []Rule) *Policy {
		return NewPolicy(opts, Layer{"managed", managed}, Layer{"workspace", workspace})
	}
	q := query(t, "https://a.test")
	tests := []struct {
		name               string
		managed, workspace []Rule
		addrs              []string
		byName, byAddr     string
	}{
		{"managed deny holds", []Rule{rule(t, Deny, "d:a.test")}, []Rule{rule(t, Allow, "d:a.test")}, []string{"1.1.1.1"}, "deny denied_by_rule #0", "deny denied_by_rule #0"},
		{"one abstains", nil, []Rule{rule(t, Allow, "d:a.test")}, []string{"1.1.1.1"}, "allow allowed_by_rule #0", "allow allowed_by_rule #0 [1.1.1.1]"},
		{"ask beats allow", []Rule{rule(t, Ask, "d:a.test")}, []Rule{rule(t, Allow, "d:a.test")}, []string{"1.1.1.1"}, "ask needs_approval #0", "ask needs_approval #0"},
		{"intersection", []Rule{rule(t, Allow, "i:1.1.0.0/16")}, []Rule{rule(t, Allow, "i:1.1.1.0/24")}, []string{"1.1.1.1", "1.1.2.2"}, "allow allowed_by_rule #0 needs", "allow allowed_by_rule #0 [1.1.1.1]"},
		{"empty intersection", []Rule{rule(t, Allow, "i:1.1.0.0/16")}, []Rule{rule(t, Allow, "i:8.8.0.0/16")}, []string{"1.1.1.1", "8.8.8.8"}, "allow allowed_by_rule #0 needs", "deny not_allowed #0"},
		{"deny by name beside possible", []Rule{rule(t, Allow, "i:1.1.0.0/16")}, []Rule{rule(t, Deny, "d:a.test")}, []string{"1.1.1.1"}, "deny denied_by_rule #0", "deny denied_by_rule #0"},
		{"either layer may open", []Rule{rule(t, Allow, "d:a.test")}, []Rule{rule(t, Allow, "i:10.0.0.1")}, []string{"10.0.0.1"}, "allow allowed_by_rule #0 needs", "allow allowed_by_rule #0 [10.0.0.1]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := layers(tt.managed, tt.workspace)
			if got := outcome(p.Decide(q)); got != tt.byName {
				t.Errorf("by name: got %s, want %s", got, tt.byName)
			}
			if got := outcome(p.DecideAddrs(q, addrs(tt.addrs...), nil)); got != tt.byAddr {
				t.Errorf("with addresses: got %s, want %s", got, tt.byAddr)
			}
		})
	}
}

func TestExplain(t *testing.T) {
	inert := rule(t, Deny, "d:a.test")
	inert.Inert = "has params beside network"
	p := policy(Options{Mode: Whitelist, DefaultPorts: anyPort},
		inert,
		rule(t, Deny, "d:b.test"),
		rule(t, Allow, "d:a.test", "p:22"),
		rule(t, Allow, "d:a.test", "s:http"),
		rule(t, Allow, "d:a.test", "a:ci"),
		rule(t, Deny, "d:a.test", "i:10.0.0.0/8"),
		rule(t, Allow, "d:a.test"),
		rule(t, Deny, "d:*"))
	e := p.Explain(query(t, "https://a.test"), nil, nil)
	want := []string{"inert", "failed domains", "failed ports", "failed schemes", "failed agents", "needs addresses", "matched", "not reached"}
	for i, l := range e.Lines {
		got := string(l.Outcome)
		if l.Failed != "" {
			got += " " + l.Failed
		}
		if got != want[i] {
			t.Errorf("line %d: got %q, want %q", i, got, want[i])
		}
	}
	e = p.Explain(query(t, "https://a.test"), addrs("1.1.1.1"), nil)
	if l := e.Lines[5]; l.Outcome != OutcomeFailed || l.Failed != "ips" {
		t.Errorf("with addresses: %+v", l)
	}
}

func TestFix(t *testing.T) {
	p := policy(Options{Mode: Whitelist, DefaultPorts: anyPort}, rule(t, Deny, "d:no.test"), rule(t, Allow, "d:db.test"))
	tests := []struct {
		target string
		addrs  []string
		want   string
	}{
		{"https://a.test", nil, "dshproxy allow a.test:443"},
		{"https://db.test:5432", []string{"10.0.0.5"}, "dshproxy allow --private db.test:5432"},
		{"http://10.0.0.5", nil, "dshproxy allow --private 10.0.0.5:80"},
		{"http://app.localhost:3000", nil, "dshproxy allow --private app.localhost:3000"},
		{"http://[fd00::1]", nil, "dshproxy allow --private [fd00::1]:80"},
		{"https://no.test", nil, ""},
	}
	for _, tt := range tests {
		q := query(t, tt.target)
		d := p.Decide(q)
		if tt.addrs != nil {
			d = p.DecideAddrs(q, addrs(tt.addrs...), nil)
		}
		fix, ok := d.Fix(q.Target)
		if got := fix.Command(); ok != (tt.want != "") || ok && got != tt.want {
			t.Errorf("%s: fix %q %v, want %q", tt.target, got, ok, tt.want)
		}
	}
}

func TestReasonLine(t *testing.T) {
	r := RuleRef{Reason: "no; rm -rf /\n$(id) `x` é \u202e ok: see https://w/x?y=1 " + string(make([]byte, 500))}
	got := r.ReasonLine()
	for i := range len(got) {
		if c := got[i]; !isHostByte(c) && c != ' ' && c != ',' && c != ':' && c != '/' && c != '@' && c != '%' && c != '+' && c != '=' {
			t.Fatalf("byte %q in %q", c, got)
		}
	}
	if len(got) > 200 {
		t.Errorf("%d bytes", len(got))
	}
}

// randomPolicy makes small policies over few names, so that rules meet.
func randomPolicy(t testing.TB, rnd *rand.Rand) *Policy {
	hosts := []string{"a.test", "=a.test", "*.a.test", "b.a.test", "=b.a.test", "*", "*b*", "test", "a.*", "10.0.0.1", "*.b.a.test", "1*"}
	ips := []string{"10.0.0.0/8", "10.0.0.1", "1.1.1.1", "1.0.0.0/8", "*", "10.*", "fd00::/8", "::/0", "2606::/16", "1.1.1.0/24"}
	ports := []string{"443", "80", "1-1024", "*", "25"}
	pick := func(list []string) string { return list[rnd.IntN(len(list))] }
	layersOf := make([]Layer, 1+rnd.IntN(2))
	for l := range layersOf {
		layersOf[l].Name = fmt.Sprint("layer", l)
		for range rnd.IntN(9) {
			var patterns []string
			for rnd.IntN(3) > 0 {
				patterns = append(patterns, "d:"+pick(hosts))
			}
			for rnd.IntN(3) == 0 {
				patterns = append(patterns, "i:"+pick(ips))
			}
			if rnd.IntN(4) == 0 {
				patterns = append(patterns, "p:"+pick(ports))
			}
			if rnd.IntN(6) == 0 {
				patterns = append(patterns, "s:https")
			}
			if rnd.IntN(8) == 0 {
				patterns = append(patterns, "a:x")
			}
			r := rule(t, Action(rnd.IntN(3)), patterns...)
			r.Ref.Index = len(layersOf[l].Rules)
			if rnd.IntN(10) == 0 {
				r.Inert = "inert"
			}
			layersOf[l].Rules = append(layersOf[l].Rules, r)
		}
	}
	opts := Options{Mode: Mode(rnd.IntN(3)), Unlisted: Action(rnd.IntN(2)), DefaultPorts: anyPort, Guard: GuardMode(rnd.IntN(2)), DryRun: rnd.IntN(5) == 0, Loopback: rnd.IntN(3) == 0}
	return NewPolicy(opts, layersOf...)
}

// checkAgainstNaive holds the index to the rule-by-rule walk.
func checkAgainstNaive(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	p := randomPolicy(t, rnd)
	targets := []string{"https://a.test", "http://b.a.test", "https://c.b.a.test:8443", "https://x.test", "https://10.0.0.1", "https://1.1.1.1:25", "https://[fd00::1]", "b.a.test", "https://localhost"}
	answers := [][]netip.Addr{nil, addrs("1.1.1.1"), addrs("10.0.0.1", "1.1.1.1"), addrs("fd00::1"), addrs("64:ff9b::a00:1", "2606::1")}
	for _, target := range targets {
		q := query(t, target)
		if rnd.IntN(2) == 0 {
			q.Agents = []string{"x"}
		}
		for _, answer := range answers {
			if q.Target.IsLiteral() {
				answer = []netip.Addr{q.Target.Addr}
			}
			var judged []address
			for _, a := range answer {
				judged = append(judged, p.classify(a, nil))
			}
			for i := range p.layers {
				l := &p.layers[i]
				w := walk{layer: l, query: &q, pol: p, addrs: judged}
				rule, possible, remembered := w.run()
				wantRule, wantPossible, wantRemembered := -1, false, false
				for n, line := range p.explainLayer(l, &q, judged) {
					switch {
					case line.Outcome == OutcomeMatched:
						wantRule = n
					case line.Outcome == OutcomeNeedsAddrs && line.Action == Allow:
						wantRule, wantPossible = n, true
					case line.Outcome == OutcomeNeedsAddrs:
						wantRemembered = true
					}
				}
				got := -1
				if rule != nil {
					got = rule.Ref.Index
				}
				if got != wantRule || possible != wantPossible || remembered != wantRemembered {
					t.Fatalf("seed %d, %s with %v, layer %d: index gives rule %d possible %v remembered %v, the naive walk %d %v %v",
						seed, target, answer, i, got, possible, remembered, wantRule, wantPossible, wantRemembered)
				}
			}
		}
		checkProperties(t, seed, p, q)
	}
}

// checkProperties: what must hold for any policy whatever.
func checkProperties(t *testing.T, seed uint64, p *Policy, q Query) {
	answer := addrs("10.0.0.1", "169.254.169.254", "1.1.1.1", "127.0.0.1")
	d := p.DecideAddrs(q, answer, nil)
	for _, a := range d.Addrs {
		if a.Kept && a.Class == ClassMetadata {
			t.Fatalf("seed %d: metadata kept by %+v", seed, d)
		}
	}
	if d.Action != Allow && d.Kept() != nil {
		t.Fatalf("seed %d: a refusal keeps %v", seed, d.Kept())
	}
	if !q.Target.IsLiteral() {
		// Without rules that wait for addresses, the two walks are one.
		byName := p.Decide(q)
		if !byName.NeedsAddrs && !byName.DryRun && byName.Action == Allow && d.Action == Allow && byName.Rule != d.Rule {
			t.Fatalf("seed %d: by name %+v, with addresses %+v", seed, byName, d)
		}
	}
}

func TestIndexEqualsNaiveWalk(t *testing.T) {
	for seed := range uint64(4000) {
		checkAgainstNaive(t, seed)
	}
}

func FuzzIndex(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(checkAgainstNaive)
}

func benchPolicy(b *testing.B, n int) *Policy {
	rules := make([]Rule, n)
	for i := range rules {
		rules[i] = rule(b, Allow, fmt.Sprintf("d:host%d.example.com", i))
	}
	return policy(Options{Mode: Whitelist, DefaultPorts: anyPort}, rules...)
}

// BenchmarkDecide: the cost must not grow with the number of plain domain rules.
func BenchmarkDecide(b *testing.B) {
	for _, n := range []int{10, 256, 100_000} {
		for _, hit := range []bool{true, false} {
			name := fmt.Sprintf("rules=%d/hit=%v", n, hit)
			p := benchPolicy(b, n)
			targets := make([]Query, 64)
			for i := range targets {
				host := fmt.Sprintf("api.host%d.example.com", i*n/len(targets))
				if !hit {
					host = fmt.Sprintf("api.host%d.example.org", i)
				}
				targets[i] = Query{Target: Target{Scheme: SchemeHTTPS, Host: host, Port: 443}}
			}
			b.Run(name, func(b *testing.B) {
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					d := p.Decide(targets[i%len(targets)])
					if (d.Action == Allow) != hit {
						b.Fatal(outcome(d))
					}
					i++
				}
			})
		}
	}
}

func TestDecideDoesNotAllocate(t *testing.T) {
	p := policy(Options{Mode: Whitelist, DefaultPorts: anyPort}, rule(t, Deny, "i:10.0.0.0/8"), rule(t, Allow, "d:a.test"))
	q := query(t, "https://x.a.test")
	if n := testing.AllocsPerRun(100, func() { p.Decide(q) }); n != 0 {
		t.Errorf("%v allocations a decision", n)
	}
}
