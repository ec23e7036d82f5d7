package main

import (
	"encoding/json"
	"fmt"
	"os"

	"dshproxy/netrule"
	"dshproxy/rules/surface"
	"dshproxy/rules/toolspec"

	"github.com/spf13/cobra"
)

func (a *app) matchRulesCommand() *cobra.Command {
	var expected string
	c := &cobra.Command{
		Use:   "match-rules CASES.json",
		Short: "Match rules of the form Tool(specifier) against calls",
		Long:  "Reads an array of {\"rule\": …, \"call\": {\"tool\": …, \"input\": {…}}} and prints an array of booleans.",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			var cases []struct {
				Rule string        `json:"rule"`
				Call toolspec.Call `json:"call"`
			}
			if err := readJSON(args[0], &cases); err != nil {
				return err
			}
			got := make([]bool, len(cases))
			for i, c := range cases {
				got[i] = toolspec.MatchRule(c.Rule, c.Call)
			}
			if expected == "" {
				return json.NewEncoder(a.io.out).Encode(got)
			}
			var want []bool
			if err := readJSON(expected, &want); err != nil {
				return err
			}
			if len(want) != len(got) {
				return fmt.Errorf("%s has %d answers for %d cases", expected, len(want), len(got))
			}
			differ := 0
			for i := range got {
				if got[i] != want[i] {
					differ++
					fmt.Fprintf(a.io.out, "%d: want %t, got %t: %s\n", i, want[i], got[i], cases[i].Rule)
				}
			}
			fmt.Fprintf(a.io.out, "%d passed, %d failed\n", len(got)-differ, differ)
			if differ > 0 {
				return &exitError{code: exitFailure}
			}
			return nil
		},
	}
	c.Flags().StringVar(&expected, "expected", "", "file with the expected array; the indices that differ are printed, and the exit code is 1")
	return c
}

func (a *app) evaluateCommand() *cobra.Command {
	profile := "v2"
	c := &cobra.Command{
		Use:   "evaluate CASES.json",
		Short: "Evaluate rules of the form surface, pattern, action, the last match winning",
		Long:  "Reads an array of {\"surface\", \"pattern\", \"rulesets\", \"default\"?} and prints an array of the winning rules.",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			o := surface.Options{}
			switch profile {
			case "v1":
				o.Profile = surface.V1
			case "v2":
				o.Home, _ = os.UserHomeDir()
			default:
				return usageError("v1 or v2", "unknown profile %q", profile)
			}
			var cases []struct {
				Surface, Pattern string
				Rulesets         []surface.Ruleset
				Default          *netrule.Action
			}
			if err := readJSON(args[0], &cases); err != nil {
				return err
			}
			won := make([]surface.Rule, len(cases))
			for i, c := range cases {
				o.Default = c.Default
				won[i] = surface.Evaluate(o, c.Surface, c.Pattern, c.Rulesets...).Rule
			}
			enc := json.NewEncoder(a.io.out)
			enc.SetEscapeHTML(false)
			return enc.Encode(won)
		},
	}
	c.Flags().StringVar(&profile, "profile", "v2", "v1 or v2")
	return c
}

// readJSON decodes a file as a whole.
func readJSON(path string, into any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
