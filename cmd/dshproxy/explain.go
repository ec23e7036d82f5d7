package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"dshproxy/netrule"
	"dshproxy/rules/live"

	"github.com/spf13/cobra"
)

type explainFlags struct {
	resolve []string
	lookup  bool
	asJSON  bool
	call    checkFlags // of a tool call instead of a target
}

func (a *app) explainCommand() *cobra.Command {
	var f explainFlags
	c := &cobra.Command{
		Use:   "explain TARGET... | explain --tool NAME --args JSON",
		Short: "The verdict for a URL, host:port, address or tool call, and what every rule had to do with it",
		Example: "  dshproxy explain https://api.example.com/\n" +
			"  dshproxy explain db.corp.test:5432 --resolve db.corp.test=10.0.0.5\n" +
			`  dshproxy explain --tool bash --args '{"command": "curl https://api.example.com/"}'`,
		Args: func(c *cobra.Command, args []string) error {
			if f.call.tool != "" {
				return cobra.NoArgs(c, args)
			}
			return cobra.MinimumNArgs(1)(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			if f.call.tool != "" {
				return a.explainCall(&f)
			}
			return a.explain(c.Context(), args, &f)
		},
	}
	c.Flags().StringArrayVar(&f.resolve, "resolve", nil, "addresses of a name, as host=addr[,addr] (repeatable)")
	c.Flags().BoolVar(&f.lookup, "lookup", false, "ask DNS for the addresses")
	c.Flags().BoolVar(&f.asJSON, "json", false, "print JSON")
	c.Flags().StringArrayVar(&f.call.agents, "agent", nil, "identity to judge for (repeatable)")
	f.call.register(c)
	return c
}

// explained is the answer for one target.
type explained struct {
	target    netrule.Target
	assumed   string
	lookup    string // what a lookup said, when it failed
	exp       netrule.Explanation
	workspace string
}

func (a *app) explain(ctx context.Context, args []string, f *explainFlags) error {
	answers, err := parseAnswers(f.resolve)
	if err != nil {
		return err
	}
	rules, workspace, err := a.loadRules()
	if err != nil {
		return err
	}
	strictest := netrule.Allow
	var all []explained
	for _, arg := range args {
		e, err := a.explainOne(ctx, rules, arg, answers, f)
		if err != nil {
			return err
		}
		e.workspace = workspace
		strictest = min(strictest, e.exp.Decision.Action)
		all = append(all, e)
	}
	if f.asJSON {
		err = printJSON(a.io.out, all)
	} else {
		err = printText(a.io.out, all)
	}
	if err != nil {
		return err
	}
	switch strictest {
	case netrule.Allow:
		return nil
	case netrule.Ask:
		return &exitError{code: exitAsk}
	default:
		return &exitError{code: exitDeny}
	}
}

func (a *app) explainOne(ctx context.Context, rules *live.Rules, arg string, answers map[string][]netip.Addr, f *explainFlags) (explained, error) {
	e := explained{}
	target, err := netrule.ParseURL(arg)
	if err != nil {
		return e, &exitError{exitUsage, err, "give an http(s) URL, host:port or an address"}
	}
	if target.Scheme == netrule.SchemeUnknown {
		target.Scheme = netrule.SchemeHTTPS
		if target.Port == 0 {
			target.Port, e.assumed = 443, "port 443 assumed"
		}
	}
	e.target = target
	policy := rules.Current().Policy
	q := netrule.Query{Target: target, Agents: f.call.agents}
	addrs := answers[target.Host]
	if target.IsLocalhost() {
		addrs = netrule.LocalhostAddrs()
	}
	// As at the proxy, nothing is looked up that the rules refuse by name.
	if addrs == nil && f.lookup && !target.IsLiteral() && policy.Decide(q).Action == netrule.Allow {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		answer, err := a.settings.resolver(nil).Lookup(ctx, target.Host, true)
		if err != nil {
			e.lookup = err.Error()
		}
		addrs = answer.Addrs
	}
	if policy.Decide(q).Action != netrule.Allow && !target.IsLiteral() {
		addrs = nil // a refusal by name is final
	}
	e.exp = policy.Explain(q, addrs, nil)
	return e, nil
}

// parseAnswers reads --resolve.
func parseAnswers(list []string) (map[string][]netip.Addr, error) {
	out := map[string][]netip.Addr{}
	for _, s := range list {
		host, addrs, ok := strings.Cut(s, "=")
		target, err := netrule.ParseURL(host)
		if !ok || err != nil {
			return nil, usageError("as in --resolve api.test=192.0.2.1,2001:db8::1", "--resolve %q: want host=addr[,addr]", s)
		}
		for _, text := range strings.Split(addrs, ",") {
			addr, err := netip.ParseAddr(strings.TrimSpace(text))
			if err != nil {
				return nil, usageError("", "--resolve %q: %q is no address", s, text)
			}
			out[target.Host] = append(out[target.Host], addr)
		}
	}
	return out, nil
}

// verdictLine is the decision in words.
func verdictLine(t netrule.Target, d *netrule.Decision) string {
	s := fmt.Sprintf("%s: %s (%s)", t, d.Action, d.Code)
	switch d.Code {
	case netrule.CodeNotAllowed:
		s += fmt.Sprintf(": %s mode, and no rule allows it", d.Mode)
	case netrule.CodeAllowedByMode:
		s += fmt.Sprintf(": %s mode", d.Mode)
	case netrule.CodeSpecialUseAddress, netrule.CodeMetadataAddress:
		s += ": its address needs a rule that names it in ips"
	case netrule.CodeDryRun:
		s += fmt.Sprintf(": enforcement would %s it (%s)", d.Would, d.WouldCode)
	default:
		if d.Matched() {
			s += ": " + strings.TrimSpace(d.Rule.ReasonLine())
		}
	}
	return s
}

func printText(w io.Writer, all []explained) error {
	for i, e := range all {
		if i > 0 {
			fmt.Fprintln(w)
		}
		d := &e.exp.Decision
		fmt.Fprintln(w, verdictLine(e.target, d))
		if e.assumed != "" {
			fmt.Fprintln(w, "  "+e.assumed)
		}
		table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
		for _, l := range e.exp.Lines {
			what := string(l.Outcome)
			if l.Failed != "" {
				what += ": " + l.Failed
			}
			if l.Note != "" {
				what += ": " + l.Note
			}
			fmt.Fprintf(table, "  %d\t%s:%d\t%s\t%s\n", l.Rule.Index+1, relative(e.workspace, l.Rule.File), l.Rule.Line, l.Action, what)
		}
		for _, v := range d.Addrs {
			kept := "may be dialled"
			if !v.Kept {
				kept = "may not be dialled"
				if v.Why != "" {
					kept += " (" + v.Why + ")"
				}
			}
			fmt.Fprintf(table, "  \t%s\t%s\t%s\n", v.Addr, v.Class, kept)
		}
		if err := table.Flush(); err != nil {
			return err
		}
		for _, n := range notes(&e) {
			fmt.Fprintln(w, "  "+n)
		}
	}
	return nil
}

// notes are the lines below the table.
func notes(e *explained) []string {
	var out []string
	d := &e.exp.Decision
	if e.lookup != "" {
		out = append(out, e.lookup)
	}
	if d.Action == netrule.Allow && d.Addrs == nil {
		why := "its addresses are still to be judged"
		if d.NeedsAddrs {
			why = "a rule with ips waits for its addresses"
		}
		out = append(out, why+": give them with --resolve, or ask with --lookup")
	}
	if fix, ok := d.Fix(e.target); ok && d.Action != netrule.Allow {
		out = append(out, "to allow it: "+fix.Command())
	}
	if d.Action == netrule.Allow {
		out = append(out, "the proxy's own listeners and interface addresses, which it refuses, are not known here")
	}
	return out
}

func relative(workspace, path string) string {
	if rel, err := filepath.Rel(workspace, path); err == nil && !strings.HasPrefix(rel, "..") {
		return rel
	}
	return path
}

type jsonRule struct {
	File    string         `json:"file"`
	Line    int            `json:"line"`
	Index   int            `json:"index"`
	Layer   string         `json:"layer,omitempty"`
	Action  netrule.Action `json:"action"`
	Outcome string         `json:"outcome"`
	Failed  string         `json:"failed,omitempty"`
	Note    string         `json:"note,omitempty"`
}

type jsonAddr struct {
	Addr  string `json:"addr"`
	Class string `json:"class"`
	Kept  bool   `json:"kept"`
	Why   string `json:"why,omitempty"`
}

type jsonExplained struct {
	Target    string         `json:"target"`
	Action    netrule.Action `json:"action"`
	Code      netrule.Code   `json:"code"`
	Mode      string         `json:"mode"`
	Matched   bool           `json:"matched"`
	Rule      *jsonRef       `json:"rule,omitempty"`
	NeedsAddr bool           `json:"needs_addresses,omitempty"`
	Addresses []jsonAddr     `json:"addresses,omitempty"`
	AllowHint string         `json:"allow_hint,omitempty"`
	Trace     []jsonRule     `json:"trace"`
}

type jsonRef struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Index  int    `json:"index"`
	Reason string `json:"reason"`
}

func printJSON(w io.Writer, all []explained) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	var out []jsonExplained
	for i := range all {
		e := &all[i]
		d := &e.exp.Decision
		j := jsonExplained{Target: e.target.String(), Action: d.Action, Code: d.Code, Mode: d.Mode.String(), Matched: d.Matched(), NeedsAddr: d.NeedsAddrs, Trace: []jsonRule{}}
		if d.Matched() {
			j.Rule = &jsonRef{d.Rule.File, d.Rule.Line, d.Rule.Index, d.Rule.Reason}
		}
		for _, v := range d.Addrs {
			j.Addresses = append(j.Addresses, jsonAddr{v.Addr.String(), v.Class.String(), v.Kept, v.Why})
		}
		if fix, ok := d.Fix(e.target); ok && d.Action != netrule.Allow {
			j.AllowHint = fix.Command()
		}
		for _, l := range e.exp.Lines {
			j.Trace = append(j.Trace, jsonRule{l.Rule.File, l.Rule.Line, l.Rule.Index, l.Rule.Layer, l.Action, string(l.Outcome), l.Failed, l.Note})
		}
		out = append(out, j)
	}
	if len(out) == 1 {
		return enc.Encode(out[0])
	}
	return enc.Encode(out)
}
