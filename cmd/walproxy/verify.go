package main

import (
	"errors"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"walproxy/cmd/walproxy/internal/verify"
	"walproxy/protocol"
)

func newVerifyCommand() *cobra.Command {
	var from, to string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "verify A B",
		Short: "Compare what two places hold of the same WAL, byte for byte",
		Long: `Compares the WAL that A and B have in common, one timeline after the other, byte for byte up to the first difference, and says
which ranges were compared and what only one of them holds. Each of the two is

  a connection string or URI   of a PostgreSQL server or a node; a role with REPLICATION. It is read by streaming, without a
                               slot, up to the position that was flushed when the command began
  a directory                  the data directory of a server or of a node, running or not, or a directory with WAL segments,
                               as pg_receivewal writes it
  a URL                        of an archive: file:///dir or s3://bucket/prefix

It changes nothing anywhere. Of a timeline that has ended, WAL counts up to the point where the next one began.
Exits with 0 if all that both hold is the same, 3 if it differs or one of them is damaged, 1 if they could not be
compared or have nothing in common.`,
		Example: `  walproxy verify 'host=primary user=replicator' 'host=node-b port=5433 user=standby'
  walproxy verify /var/lib/postgresql/15/main /var/lib/walproxy`,
		Args: arguments(cobra.ExactArgs(2)),
	}
	f := cmd.Flags()
	f.StringVar(&from, "from", "", "compare nothing below this `LSN`")
	f.StringVar(&to, "to", "", "compare nothing from this `LSN` on")
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		var o verify.Options
		for _, bound := range []struct {
			text string
			lsn  *protocol.LSN
		}{{from, &o.From}, {to, &o.To}} {
			if bound.text == "" {
				continue
			}
			if *bound.lsn, err = protocol.ParseLSN(bound.text); err != nil {
				return &usageError{err}
			}
		}
		return runVerify(cmd, args[0], args[1], o, asJSON)
	}
	return cmd
}

func runVerify(cmd *cobra.Command, nameA, nameB string, o verify.Options, asJSON bool) (err error) {
	a, err := verify.Open(nameA)
	if err != nil {
		return &usageError{err}
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	b, err := verify.Open(nameB)
	if err != nil {
		return &usageError{err}
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	clean := func() {}
	if terminal, ok := cmd.ErrOrStderr().(*os.File); ok && term.IsTerminal(int(terminal.Fd())) {
		o.Progress, clean = showProgress(terminal)
	}
	report, err := verify.Compare(cmd.Context(), a, b, o)
	clean()
	if report == nil {
		return err
	}
	out := cmd.OutOrStdout()
	if asJSON {
		return errors.Join(err, writeJSON(out, report))
	}
	return errors.Join(err, report.Write(out))
}
