package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"walproxy/cmd/walproxy/internal/config"
)

func newConfigCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Look at configuration files",
		Args:  arguments(cobra.NoArgs),
		RunE:  needsCommand,
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "check FILE",
		Short: "Check a configuration file and report every problem",
		Long:  "Checks a configuration file as run would, reports every problem with its key, and changes nothing.",
		Args:  arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := config.Load(args[0], nil)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is good: upstream %s, listens on %s, data in %s\n", args[0], c.Upstream.Conninfo, c.Listen.Addresses, c.Data.Dir)
			return err
		},
	})
	return cmd
}
