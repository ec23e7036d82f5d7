package main

import (
	"fmt"
	"os"

	"dshproxy/rules"

	"github.com/spf13/cobra"
)

func (a *app) vectorsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "vectors FILE...",
		Short: "Run corpora of test vectors",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			var total rules.VectorResult
			for _, path := range args {
				data, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				r, err := rules.RunVectors(data)
				if err != nil {
					return fmt.Errorf("%s: %w", path, err)
				}
				for _, f := range r.Failures {
					fmt.Fprintf(a.io.out, "%s: %s: want %s, got %s\n", path, f.ID, f.Want, f.Got)
				}
				total.Passed += r.Passed
				total.Failed += r.Failed
				total.Skipped += r.Skipped
			}
			fmt.Fprintf(a.io.out, "%d passed, %d failed, %d skipped\n", total.Passed, total.Failed, total.Skipped)
			if total.Failed > 0 {
				return &exitError{code: exitFailure}
			}
			return nil
		},
	}
}
