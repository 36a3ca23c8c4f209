package main

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"walproxy/cmd/walproxy/internal/demo"
)

func newDemoCommand() *cobra.Command {
	options := demo.Options{}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show walproxy at work on this machine, and prove it",
		Long: `Starts a throwaway PostgreSQL primary, two nodes with a compressed link between them, a stock standby behind the second,
pg_receivewal on both, and a pgbench load; shows a live table of savings and lag; then compares the WAL of all of them byte for
byte and the data by queries. Exits with 0 only if everything is the same. Needs PostgreSQL's server and client programs.`,
		Args: arguments(cobra.NoArgs),
	}
	f := cmd.Flags()
	f.DurationVar(&options.Duration, "duration", 30*time.Second, "how long the load runs")
	f.IntVar(&options.Clients, "clients", 4, "pgbench clients")
	f.BoolVar(&options.Keep, "keep", false, "leave data and logs on disk")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if options.Binary, err = os.Executable(); err != nil {
			return fmt.Errorf("find this program: %w", err)
		}
		options.Out = cmd.OutOrStdout()
		return demo.Run(cmd.Context(), options)
	}
	return cmd
}
