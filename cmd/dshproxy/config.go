package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

func (a *app) configCommand() *cobra.Command {
	c := &cobra.Command{Use: "config", Short: "The settings"}
	c.AddCommand(&cobra.Command{
		Use:   "show",
		Short: "Every setting with its value and where that comes from",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := a.settings.load(a.config, a.flags); err != nil {
				return err
			}
			table := tabwriter.NewWriter(a.io.out, 0, 8, 2, ' ', 0)
			for _, k := range a.settings.table() {
				fmt.Fprintf(table, "%s\t%s\t%s\n", k.path, k.value, a.settings.origins[k.path])
			}
			return table.Flush()
		},
	})
	return c
}
