package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// newRoot returns the command tree. Commands report errors by returning them; run prints them.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "walproxy",
		Short: "A proxy for PostgreSQL physical replication that recompresses WAL on the way",
		Long: `walproxy takes the WAL of a PostgreSQL server, or of another walproxy, compresses it, and serves it to stock standbys,
pg_receivewal and other nodes, byte for byte as the primary wrote it.

` + exitCodeHelp,
		Args:              arguments(cobra.NoArgs),
		RunE:              needsCommand,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err} })
	root.AddCommand(
		newRunCommand(),
		newDemoCommand(),
		newStatusCommand(),
		newSlotsCommand(),
		newArchiveCommand(),
		newBenchCommand(),
		newInspectCommand(),
		newVerifyCommand(),
		newConfigCommand(),
		newVersionCommand(),
	)
	return root
}

// arguments makes a wrong number of arguments a usageError.
func arguments(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return &usageError{err}
		}
		return nil
	}
}

// needsCommand is the action of a command that only has subcommands.
func needsCommand(cmd *cobra.Command, _ []string) error {
	if err := cmd.Help(); err != nil {
		return err
	}
	return &usageError{fmt.Errorf("%s: want a command", cmd.CommandPath())}
}
