package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"dshproxy/rules"

	"github.com/spf13/cobra"
)

func (a *app) rulesCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "rules",
		Short: "The effective chain, a line a rule",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			live, workspace, err := a.loadRules()
			if err != nil {
				return err
			}
			s := live.Current()
			table := tabwriter.NewWriter(a.io.out, 0, 8, 2, ' ', 0)
			for _, layer := range []struct {
				name  string
				rules []rules.Rule
			}{{"managed", s.Managed}, {"workspace", s.Chain}, {"builtin", s.Baseline}} {
				for i := range layer.rules {
					r := &layer.rules[i]
					note := ""
					if !r.Enabled {
						note = " (disabled)"
					}
					fmt.Fprintf(table, "%s\t%d\t%s:%d\t%s%s\t%s\t%s\n", layer.name, i+1, relative(workspace, r.File), r.Line, r.Action, note, summary(r), oneParagraph(r.Reason))
				}
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
