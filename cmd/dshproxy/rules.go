package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"dshproxy/netrule"
	"dshproxy/rules"
	"dshproxy/rules/live"

	"github.com/spf13/cobra"
)

func (a *app) rulesCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "rules",
		Short: "The effective chain, a line a rule",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			loaded, workspace, err := a.loadRules()
			if err != nil {
				return err
			}
			s := loaded.Current()
			table := tabwriter.NewWriter(a.io.out, 0, 8, 2, ' ', 0)
			for _, l := range ruleLines(s) {
				fmt.Fprintf(table, "%s\t%d\t%s:%d\t%s\t%s\t%s\n", l.layer, l.ref.Index+1, relative(workspace, l.ref.File), l.ref.Line, l.action, l.summary, oneParagraph(l.ref.Reason))
			}
			if err := table.Flush(); err != nil {
				return err
			}
			for _, w := range s.Warnings {
				fmt.Fprintln(a.io.err, "dshproxy: warning: "+w)
			}
			fmt.Fprintf(a.io.out, "%s in %s, %d built in, mode %s\n", count(len(s.Managed)+len(s.Chain), "rule"), count(len(s.Files), "file"), len(s.Baseline), s.Policy.Options().Mode)
			return nil
		},
	}
}

// ruleLine is one line of the listing.
type ruleLine struct {
	layer, action, summary string
	ref                    netrule.RuleRef
}

// disabledMark follows the action of a rule that is switched off.
const disabledMark = " (disabled)"

// ruleLines lists every rule of a snapshot, in the order in which each language decides.
func ruleLines(s *live.Snapshot) []ruleLine {
	var out []ruleLine
	add := func(layer string, chain []rules.Rule) {
		for i := range chain {
			r := &chain[i]
			action := r.Action.String()
			if !r.Enabled {
				action += disabledMark
			}
			out = append(out, ruleLine{layer, action, summary(r), netrule.RuleRef{File: r.File, Line: r.Line, Index: i, Reason: r.Reason}})
		}
	}
	add("managed", s.Managed)
	add("workspace", s.Chain)
	if s.Pending != nil {
		add("workspace (pending)", s.Pending.Chain)
	}
	add("builtin", s.Baseline)
	if now := s.Now(); now.Claude != nil {
		for _, l := range now.Claude.List() {
			out = append(out, ruleLine{string(live.ClaudeSettings), l.List.String(), "(settings)", l.Ref})
		}
	}
	if now := s.Now(); now.Pi != nil {
		for _, l := range now.Pi.List() {
			out = append(out, ruleLine{string(live.PiPermission), l.Action.String(), l.Surface + " " + l.Pattern, l.Ref})
		}
	}
	return out
}

// count gives a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// summary shows what a rule is about in a few words.
func summary(r *rules.Rule) string {
	var out []string
	if n := r.Match.Network; n != nil {
		for _, p := range n.Positions {
			out = append(out, p.Text)
		}
	}
	if len(r.Match.Tools) > 0 {
		var tools []string
		for _, g := range r.Match.Tools {
			tools = append(tools, g.String())
		}
		out = append(out, "tools="+strings.Join(tools, "|"))
	}
	if len(out) == 0 {
		return "(tool calls)"
	}
	const shown = 4
	if len(out) > shown {
		out = append(out[:shown], fmt.Sprintf("+%d", len(out)-shown))
	}
	return strings.Join(out, " ")
}
