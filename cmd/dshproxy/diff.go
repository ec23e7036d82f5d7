package main

import (
	"fmt"
	"os"

	"dshproxy/netrule"
	"dshproxy/rules"

	"github.com/spf13/cobra"
)

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
