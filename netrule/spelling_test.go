package netrule

import (
	"net/netip"
	"testing"
)

// TestSpellings: one name and one address, however they are written, meet the same rule.
func TestSpellings(t *testing.T) {
	opts := Options{Mode: AllowAll, DefaultPorts: anyPort}
	p := policy(opts, rule(t, Deny, "d:evil.com"), rule(t, Deny, "i:10.0.0.0/8"), rule(t, Deny, "i:169.254.169.254"))
	for id, target := range map[string]string{
		"HST-01 root dot":    "evil.com.:443",
		"HST-02 case":        "EVIL.com:443",
		"HST-23 both":        "Api.Evil.COM.:443",
		"IPL-10 mapped":      "[::ffff:10.0.0.1]:443",
		"IPL-10 mapped hex":  "[::FFFF:a9fe:a9fe]:443",
		"IPL-11 compatible":  "[::10.0.0.1]:443",
		"IPL-11 hex":         "[::a9fe:a9fe]:443",
		"IPL-40 full length": "[0:0:0:0:0:ffff:a00:1]:443",
		"NAT64":              "[64:ff9b::a00:1]:443",
		"6to4":               "[2002:a00:1::]:443",
		"translated":         "[::ffff:0:10.0.0.1]:443",
	} {
		parsed, err := ParseConnect(target)
		if err != nil {
			t.Errorf("%s: %v", id, err)
			continue
		}
		if d := p.Decide(Query{Target: parsed}); d.Code != CodeDeniedByRule {
			t.Errorf("%s: %s gives %s", id, target, outcome(d))
		}
	}
}

// TestAnswersOfBothFamilies: a special address hides in neither family (DNS-08).
func TestAnswersOfBothFamilies(t *testing.T) {
	p := policy(Options{Mode: AllowAll, DefaultPorts: anyPort})
	for _, hidden := range []string{"::ffff:169.254.169.254", "fd00:ec2::254", "64:ff9b::a9fe:a9fe", "::ffff:7f00:1"} {
		for _, answer := range [][]string{{"1.1.1.1", hidden}, {hidden, "1.1.1.1"}} {
			d := p.DecideAddrs(query(t, "https://a.test"), addrs(answer...), nil)
			if kept := d.Kept(); len(kept) != 1 || kept[0] != netip.MustParseAddr("1.1.1.1") {
				t.Errorf("DNS-08: of %v may be dialled %v", answer, kept)
			}
		}
	}
}

// TestGlobalUnicastIsNotPublic: what the standard library calls global unicast and not private is no test (IPL-41).
func TestGlobalUnicastIsNotPublic(t *testing.T) {
	for _, text := range []string{"0.1.2.3", "100.64.0.1", "192.0.0.1", "198.18.0.1", "240.0.0.1", "::127.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "2001::1", "2001:db8::1", "3fff::1", "5f00::1", "100::1", "4000::1"} {
		addr := netip.MustParseAddr(text)
		if !addr.IsGlobalUnicast() || addr.IsPrivate() {
			t.Errorf("%s is no example", text)
		}
		if got := ClassifyAddr(addr); got == ClassPublic {
			t.Errorf("IPL-41: %s is public", text)
		}
	}
}
