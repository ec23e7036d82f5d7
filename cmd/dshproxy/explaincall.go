package main

import (
	"encoding/json"
	"fmt"
	"text/tabwriter"

	"dshproxy/netrule"
	"dshproxy/proxy/admin"
	"dshproxy/rules"
	"dshproxy/rules/live"
)

// traceCall adds a line a rule to the verdict of a tool call: of what is in force, then of what waits to be accepted.
func traceCall(s *live.Snapshot, c rules.Call, v *live.Verdict) (admin.CallExplanation, error) {
	out := admin.CallExplanation{Verdict: verdictOf(v), Trace: []admin.Trace{}}
	add := func(l live.CallLayer, pending bool) error {
		_, lines, err := rules.NewRuleset(l.Rules).Explain(c)
		for _, line := range lines {
			name := l.NameOf(line.Index)
			if pending && name != "workspace" {
				continue // said above
			}
			if pending {
				name += " (pending)"
			}
			ref := netrule.RuleRef{File: line.Rule.File, Line: line.Rule.Line, Index: l.IndexOf(line.Index), Layer: name}
			out.Trace = append(out.Trace, traceOf(ref, line.Rule.Action, line.Outcome, line.Failed, ""))
		}
		return err
	}
	for _, l := range s.CallLayers() {
		if err := add(l, false); err != nil {
			return out, err
		}
	}
	if s.Pending != nil {
		for _, l := range s.Pending.CallLayers() {
			if err := add(l, true); err != nil {
				return out, err
			}
		}
	}
	if l := v.Rule; l.Layer == string(live.ClaudeSettings) || l.Layer == string(live.PiPermission) {
		out.Trace = append(out.Trace, traceOf(l, v.Action, netrule.OutcomeMatched, "", ""))
	}
	return out, nil
}

// explainCall prints the verdict of a tool call with a line a rule, as check decides it.
func (a *app) explainCall(f *explainFlags) error {
	c, err := a.call(&f.call)
	if err != nil {
		return err
	}
	loaded, workspace, err := a.loadRules()
	if err != nil {
		return err
	}
	c.Workspace = workspace
	s := loaded.Current()
	v, err := a.settings.judge(s, &c)
	if err != nil {
		return usageError("the arguments are a JSON object", "arguments: %w", err)
	}
	answer, err := traceCall(s, c, &v)
	if err != nil {
		return err
	}
	if f.asJSON {
		enc := json.NewEncoder(a.io.out)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		if err := enc.Encode(answer); err != nil {
			return err
		}
		return exitFor(&v)
	}
	verdict := fmt.Sprintf("%s: %s (%s)", c.Tool, answer.Action, answer.Code)
	if answer.Reason != "" {
		verdict += ": " + oneParagraph(answer.Reason)
	}
	fmt.Fprintln(a.io.out, verdict)
	table := tabwriter.NewWriter(a.io.out, 0, 8, 2, ' ', 0)
	for _, l := range answer.Trace {
		what := l.Outcome
		if l.Failed != "" {
			what += ": " + l.Failed
		}
		fmt.Fprintf(table, "  %s\t%d\t%s:%d\t%s\t%s\n", l.Layer, l.Index+1, relative(workspace, l.File), l.Line, l.Action, what)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if answer.Unparsed {
		fmt.Fprintln(a.io.out, "  the command does not parse as shell text as a whole; the rest was read word by word")
	}
	return exitFor(&v)
}
