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
	"dshproxy/proxy/admin"
	"dshproxy/rules/live"

	"github.com/spf13/cobra"
)

type explainFlags struct {
	resolve []string
	id      string // of a decision of the running proxy
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
			if f.call.tool != "" || f.id != "" {
				return cobra.NoArgs(c, args)
			}
			return cobra.MinimumNArgs(1)(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case f.call.tool != "":
				return a.explainCall(&f)
			case f.id != "":
				return a.explainID(c.Context(), f.id, &f)
			}
			return a.explain(c.Context(), args, &f)
		},
	}
	c.Flags().StringArrayVar(&f.resolve, "resolve", nil, "addresses of a name, as host=addr[,addr] (repeatable)")
	c.Flags().BoolVar(&f.lookup, "lookup", false, "ask DNS for the addresses")
	c.Flags().StringVar(&f.id, "id", "", "id of a decision, as a denial shows it: asks the running proxy")
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
	target, err := netrule.ParseURL(arg)
	if err != nil {
		return explained{}, &exitError{exitUsage, err, "give an http(s) URL, host:port or an address"}
	}
	return a.explainTarget(ctx, rules, target, answers, f), nil
}

// explainTarget judges a target, asking DNS only where that is wanted and the rules do not refuse the name already.
func (a *app) explainTarget(ctx context.Context, rules *live.Rules, target netrule.Target, answers map[string][]netip.Addr, f *explainFlags) explained {
	e := explained{}
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
	return e
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

func printJSON(w io.Writer, all []explained) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	var out []admin.Explanation
	for i := range all {
		out = append(out, all[i].json())
	}
	if len(out) == 1 {
		return enc.Encode(out[0])
	}
	return enc.Encode(out)
}

// json is the explanation as JSON shows it.
func (e *explained) json() admin.Explanation {
	d := &e.exp.Decision
	j := admin.Explanation{
		Target: e.target.String(), Action: d.Action.String(), Code: d.Code.String(), Mode: d.Mode.String(), Matched: d.Matched(), Rule: refOf(d.Rule),
		NeedsAddrs: d.NeedsAddrs, Trace: []admin.Trace{},
	}
	for _, v := range d.Addrs {
		j.Addresses = append(j.Addresses, admin.Address{Addr: v.Addr.String(), Class: v.Class.String(), Kept: v.Kept, Why: v.Why})
	}
	if fix, ok := d.Fix(e.target); ok && d.Action != netrule.Allow {
		j.AllowHint = fix.Command()
	}
	for _, l := range e.exp.Lines {
		j.Trace = append(j.Trace, traceOf(l.Rule, l.Action, l.Outcome, l.Failed, l.Note))
	}
	return j
}

// traceOf is a line of an explanation as JSON shows it.
func traceOf(r netrule.RuleRef, action netrule.Action, outcome netrule.Outcome, failed, note string) admin.Trace {
	return admin.Trace{File: r.File, Line: r.Line, Index: r.Index, Layer: r.Layer, Action: action.String(), Outcome: string(outcome), Failed: failed, Note: note}
}
