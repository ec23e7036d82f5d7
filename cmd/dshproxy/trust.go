package main

import (
	"fmt"
	"strings"

	"dshproxy/rules/live"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"
)

func (a *app) trustCommand() *cobra.Command {
	var dryRun bool
	c := &cobra.Command{
		Use:   "trust [FILE]",
		Short: "Accept changed rule files of the workspace, after showing what changed",
		Long: "With workspaceRules: narrow, changed rule files of a workspace narrow at once and widen nothing until they are\n" +
			"accepted here. A running proxy takes that over within a second. FILE accepts that file only when it is the only\n" +
			"one that changed.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := refuseInside("trust"); err != nil {
				return err
			}
			return a.trust(args, dryRun)
		},
	}
	c.Flags().BoolVar(&dryRun, "dry-run", false, "only show what would be accepted; exit 1 when there is something")
	return c
}

func (a *app) trust(args []string, dryRun bool) error {
	rules, workspace, err := a.loadRules()
	if err != nil {
		return err
	}
	if a.settings.workspaceRules != "narrow" {
		return usageError("set workspaceRules: narrow in the settings first", "nothing waits to be accepted: with workspaceRules: full a workspace's rules hold as they are")
	}
	reviewed, err := rules.Review()
	if err != nil {
		return err
	}
	if len(args) == 1 {
		if err := onlyChange(args[0], workspace, reviewed.Changes); err != nil {
			return err
		}
	}
	for _, c := range reviewed.Changes {
		name := relative(workspace, c.Path)
		// Hostile text is on its way to a terminal.
		fmt.Fprint(a.io.out, printable(string(diff.Diff("accepted/"+name, []byte(c.Old), "now/"+name, []byte(c.New)))))
	}
	switch {
	case len(reviewed.Changes) == 0:
		fmt.Fprintln(a.io.out, "nothing to accept")
		return nil
	case dryRun:
		return &exitError{code: exitFailure}
	}
	if err := rules.Accept(reviewed); err != nil {
		return err
	}
	fmt.Fprintf(a.io.out, "accepted %s\n", count(len(reviewed.Changes), "file"))
	return nil
}

// onlyChange refuses to accept more than the file that was named.
func onlyChange(file, workspace string, changes []live.Review) error {
	path, err := absolute(file)
	if err != nil {
		return err
	}
	found := len(changes) == 0
	for _, c := range changes {
		if c.Path != path {
			return usageError("run dshproxy trust without a file to see and accept them all", "%s has changed too", relative(workspace, c.Path))
		}
		found = true
	}
	if !found {
		return usageError("", "%s is no rule file of this workspace that has changed", file)
	}
	return nil
}

// printable escapes what could steer a terminal. Line ends and tabs stay.
func printable(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r == '\n' || r == '\t' || r >= ' ' && r != 0x7f && (r < 0x80 || r > 0x9f) && !isBidi(r) {
			b.WriteRune(r)
			continue
		}
		fmt.Fprintf(&b, "\\u%04x", r)
	}
	return b.String()
}

// isBidi reports the characters that make text read in another order than it stands.
func isBidi(r rune) bool {
	return r == 0x61c || r >= 0x200b && r <= 0x200f || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}
