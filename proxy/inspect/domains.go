package inspect

import (
	"errors"
	"fmt"
	"strings"

	"dshproxy/netrule"
)

// domains are the hosts that are inspected.
type domains []domain

// domain is one pattern: "x" covers x and what is under it, "*.x" only that, "=x" exactly x.
type domain struct {
	text    string
	pattern netrule.HostPattern
}

// errNoDomains: without a domain there is nothing to inspect, and a CA without constraints could speak for any host.
var errNoDomains = errors.New("no domains are given")

// parseDomains reads patterns as rules have them. Names alone are taken: no certificate constraint can say what a glob
// says, and an address has no name to be trusted.
func parseDomains(texts []string) (domains, error) {
	if len(texts) == 0 {
		return nil, errNoDomains
	}
	out := make(domains, 0, len(texts))
	for _, text := range texts {
		p, err := netrule.ParseHostPattern(text, 1)
		if err != nil {
			return nil, fmt.Errorf("domain %q: %w", text, err)
		}
		if p.Apex() == "" {
			return nil, fmt.Errorf("domain %q: only a name, *.name and =name can be inspected", text)
		}
		out = append(out, domain{text, p})
	}
	return out, nil
}

// cover reports whether a target is in one of the domains.
func (d domains) cover(t netrule.Target) bool {
	for i := range d {
		m := netrule.Match{Hosts: []netrule.HostPattern{d[i].pattern}}
		if m.Holds(t, netrule.Allow) {
			return true
		}
	}
	return false
}

// names gives the apex of every domain once: what a certificate constraint permits, along with everything under it
// (RFC 5280 §4.2.1.10 has no narrower form).
func (d domains) names() []string {
	var out []string
	seen := map[string]bool{}
	for i := range d {
		if apex := d[i].pattern.Apex(); !seen[apex] {
			seen[apex] = true
			out = append(out, apex)
		}
	}
	return out
}

// samples gives names that the domain covers, to try a CA on.
func (d *domain) samples() []string {
	apex := d.pattern.Apex()
	below := "dshproxy." + apex
	switch {
	case d.pattern.Exact() || len(below) > maxName:
		return []string{apex}
	case d.pattern.Wildcard():
		return []string{below}
	default:
		return []string{apex, below}
	}
}

const maxName = 253

func (d domains) String() string {
	texts := make([]string, len(d))
	for i := range d {
		texts[i] = d[i].text
	}
	return strings.Join(texts, ", ")
}
