package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"

	"dshproxy/netrule"
	"dshproxy/rules"

	"github.com/spf13/cobra"
	"golang.org/x/net/publicsuffix"
)

// recorded is what a decision log says of one kind of connection.
type recorded struct {
	target  netrule.Target
	agents  string // the identity, empty for none
	allowed bool
	count   int
	addrs   []netip.Addr // the answer, where it was looked up
	kept    []netip.Addr
}

// readLog reads the decisions about targets, those of a kind counted together, in the order of their names.
func readLog(path string) ([]recorded, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	type kind struct {
		target  netrule.Target
		agents  string
		allowed bool
		addrs   string
	}
	all := map[kind]*recorded{}
	const longestLine = 1 << 20
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, longestLine)
	for n := 1; lines.Scan(); n++ {
		var r struct {
			Msg, Scheme, Host, Verdict, Identity string
			Port                                 uint16
			Repeated                             int
			Addresses                            []struct {
				Addr netip.Addr
				Kept bool
			}
		}
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("%s:%d: no record: %w", path, n, err)
		}
		scheme, known := netrule.ParseScheme(r.Scheme)
		// A host that could not be parsed is in the log as it was sent; it is nobody's wish to reach.
		t, err := netrule.ParseURL(bracketed(r.Host))
		if r.Msg != "decision" || r.Verdict == "" || !known || err != nil || t.Host != r.Host || r.Port == 0 {
			continue
		}
		t.Scheme, t.Port = scheme, r.Port
		rec := recorded{target: t, agents: r.Identity, allowed: r.Verdict == "allow", count: max(r.Repeated, 1)}
		for _, a := range r.Addresses {
			rec.addrs = append(rec.addrs, a.Addr)
			if a.Kept {
				rec.kept = append(rec.kept, a.Addr)
			}
		}
		k := kind{t, r.Identity, rec.allowed, fmt.Sprint(rec.addrs, rec.kept)}
		if have := all[k]; have != nil {
			have.count += rec.count
		} else {
			all[k] = &rec
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	out := make([]recorded, 0, len(all))
	for _, r := range all {
		out = append(out, *r)
	}
	slices.SortFunc(out, func(a, b recorded) int {
		return cmp.Or(cmp.Compare(a.target.Host, b.target.Host), cmp.Compare(a.target.Port, b.target.Port), cmp.Compare(a.target.Scheme, b.target.Scheme),
			cmp.Compare(a.agents, b.agents), cmp.Compare(fmt.Sprint(a.allowed, a.addrs), fmt.Sprint(b.allowed, b.addrs)))
	})
	return out, nil
}

// bracketed makes a host of a log readable as a target.
func bracketed(host string) string {
	if strings.Contains(host, ":") {
		return "[" + host + "]"
	}
	return host
}

func (r *recorded) query() netrule.Query {
	q := netrule.Query{Target: r.target}
	if r.agents != "" {
		q.Agents = []string{r.agents}
	}
	return q
}

// decide is the verdict of a policy about a recorded connection, with the answer of then.
func (r *recorded) decide(p *netrule.Policy) netrule.Decision {
	d := p.DecideOffline(r.query())
	if d.Action == netrule.Allow && len(r.addrs) > 0 {
		d = p.DecideAddrs(r.query(), r.addrs, nil)
	}
	return d
}

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

func (a *app) diffCommand() *cobra.Command {
	var log string
	c := &cobra.Command{
		Use:   "diff OLD NEW --log FILE",
		Short: "The recorded connections whose verdict differs between two rule files",
		Args:  cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			if log == "" {
				return usageError("as in --log decisions.jsonl", "diff needs --log")
			}
			if err := a.settings.load(a.config, a.flags); err != nil {
				return err
			}
			return a.diff(args[0], args[1], log)
		},
	}
	c.Flags().StringVar(&log, "log", "", "decision log")
	return c
}

func (a *app) diff(oldFile, newFile, log string) error {
	var policies [2]*netrule.Policy
	for i, file := range []string{oldFile, newFile} {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		doc, err := rules.Parse(file, text, a.settings.parseOptions())
		if err != nil {
			return err
		}
		policies[i] = a.policyOf(doc)
	}
	records, err := readLog(log)
	if err != nil {
		return err
	}
	changed, same := 0, 0
	for i := range records {
		r := &records[i]
		before, after := r.decide(policies[0]), r.decide(policies[1])
		if before.Action == after.Action {
			same++
			continue
		}
		changed++
		fmt.Fprintf(a.io.out, "%s: %s -> %s (%s)\n", r.target, describe(&before), describe(&after), count(r.count, "record"))
	}
	fmt.Fprintf(a.io.out, "%d changed, %d the same\n", changed, same)
	return nil
}

func describe(d *netrule.Decision) string {
	if d.Matched() {
		return fmt.Sprintf("%s (%s, rule %d)", d.Action, d.Code, d.Rule.Index+1)
	}
	return fmt.Sprintf("%s (%s)", d.Action, d.Code)
}
