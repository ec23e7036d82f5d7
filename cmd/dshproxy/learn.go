package main

import (
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"dshproxy/netrule"
	"dshproxy/rules"

	"github.com/spf13/cobra"
	"golang.org/x/net/publicsuffix"
)

func (a *app) learnCommand() *cobra.Command {
	var log string
	c := &cobra.Command{
		Use:   "learn --log FILE",
		Short: "A rule file from what a decision log says was allowed",
		Long: "Prints rules with exact hosts, one for each registrable domain and port; what was seen once is tagged so. What a dry run let pass counts as allowed. Special-use\n" +
			"addresses get rules of their own. What was refused follows as disabled rules, with counts, for you to decide.",
		Example: "  dshproxy serve --dry-run --decisions log.jsonl   # record\n  dshproxy learn --log log.jsonl >.dsh/rules.yaml",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if log == "" {
				return usageError("as in --log decisions.jsonl", "learn needs --log")
			}
			if err := a.settings.load(a.config, a.flags); err != nil {
				return err
			}
			return a.learn(log)
		},
	}
	c.Flags().StringVar(&log, "log", "", "decision log")
	return c
}

// learned is one rule in the making.
type learned struct {
	allow   bool
	private bool
	domain  string
	port    uint16
	hosts   map[string]int
	addrs   map[netip.Addr]bool
}

func (a *app) learn(path string) error {
	records, err := readLog(path)
	if err != nil {
		return err
	}
	groups := map[string]*learned{}
	for i := range records {
		r := &records[i]
		g := learned{allow: r.allowed, domain: registrable(r.target), port: r.target.Port, hosts: map[string]int{}, addrs: map[netip.Addr]bool{}}
		var special []netip.Addr
		answer := r.kept
		if !r.allowed {
			answer = r.addrs // what the disabled rule would have to open
		}
		for _, addr := range answer {
			if netrule.ClassifyAddr(addr) != netrule.ClassPublic {
				special = append(special, addr)
			}
		}
		g.private = len(special) > 0
		key := fmt.Sprintf("%t %t %s %d", !g.allow, g.private, g.domain, g.port)
		if groups[key] == nil {
			groups[key] = &g
		}
		groups[key].hosts[r.target.Host] += r.count
		for _, addr := range special {
			groups[key].addrs[addr] = true
		}
	}
	var text strings.Builder
	fmt.Fprintf(&text, "# Learnt from %s. Read it before you use it: it allows whatever ran while the log was written.\n", oneParagraph(path))
	if len(groups) == 0 {
		text.WriteString("rules: []\n")
	} else {
		text.WriteString("rules:\n")
	}
	for _, key := range slices.Sorted(maps.Keys(groups)) {
		groups[key].write(&text)
	}
	if _, err := io.WriteString(a.io.out, text.String()); err != nil {
		return err
	}
	return a.proveLearned(text.String(), records)
}

// proveLearned judges every allowed record by the new rules.
func (a *app) proveLearned(text string, records []recorded) error {
	opts := a.settings.parseOptions()
	opts.MaxRules = 1 << 20
	doc, err := rules.Parse("learnt", []byte(text), opts)
	if err != nil {
		return err
	}
	policy := a.policyOf(doc)
	for i := range records {
		if r := &records[i]; r.allowed && r.decide(policy).Action != netrule.Allow {
			return fmt.Errorf("the rules do not allow %s, which the log does", r.target)
		}
	}
	return nil
}

// policyOf makes a policy of one rule file, under the settings.
func (a *app) policyOf(doc *rules.Document) *netrule.Policy {
	return netrule.NewPolicy(a.settings.policyOptions(), netrule.Layer{Name: "workspace", Rules: rules.Connections(doc.Rules, host())})
}

// registrable is the domain that somebody has registered, or the host where there is none.
func registrable(t netrule.Target) string {
	if t.IsLiteral() {
		return t.Host
	}
	if domain, err := publicsuffix.EffectiveTLDPlusOne(t.Host); err == nil {
		return domain
	}
	return t.Host
}

func (g *learned) write(b *strings.Builder) {
	total := 0
	var hosts []string
	for _, h := range slices.Sorted(maps.Keys(g.hosts)) {
		total += g.hosts[h]
		hosts = append(hosts, fmt.Sprintf("%q", "="+h))
	}
	match := fmt.Sprintf("domains: [%s], ports: [%d]", strings.Join(hosts, ", "), g.port)
	if g.private {
		var addrs []string
		for addr := range g.addrs {
			addrs = append(addrs, fmt.Sprintf("%q", addr))
		}
		slices.Sort(addrs)
		match += fmt.Sprintf(", ips: [%s]", strings.Join(addrs, ", "))
	}
	did := "allowed"
	if !g.allow {
		did = "refused"
	}
	fmt.Fprintf(b, "  - match: { network: { %s } }\n    action: allow\n    reason: %q\n", match, fmt.Sprintf("learnt: %s %s", did, count(total, "time")))
	if !g.allow {
		b.WriteString("    enabled: false\n")
	}
	if total == 1 {
		b.WriteString("    tags: [once]\n")
	}
}
