package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

func (a *app) configCommand() *cobra.Command {
	return group("config", "The settings", &cobra.Command{
		Use:   "show",
		Short: "Every setting: its value, where that comes from, and what it is",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := a.settings.load(a.config, a.flags); err != nil {
				return err
			}
			table := tabwriter.NewWriter(a.io.out, 0, 8, 2, ' ', 0)
			for _, k := range a.settings.table() {
				fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", k.path, k.value, a.settings.origins[k.path], k.doc)
			}
			return table.Flush()
		},
	})
}
