package main

import (
	"bufio"
	"errors"

	"github.com/spf13/cobra"

	"walproxy/cmd/walproxy/internal/inspect"
	"walproxy/protocol"
)

func newInspectCommand() *cobra.Command {
	var o inspect.Options
	var record string
	cmd := &cobra.Command{
		Use:   "inspect PATH",
		Short: "List the windows and frames of a window file or data directory",
		Long: `Lists the windows and frames of a window file, or of every window file in and below a directory. It changes nothing; the
node may run. A frame's line: offset in the file, first LSN, LSN behind it, codec, its place in a compression stream,
bytes of WAL -> bytes of payload + bytes of header, ratio.

With --record it tells of one record what pg_waldump shows of its header and blocks, and how much it had to read for that.
Checkpoints and other records that recovery comes for by LSN are read without the WAL before them.`,
		Args: arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			out := bufio.NewWriter(cmd.OutOrStdout())
			if record != "" {
				lsn, err := protocol.ParseLSN(record)
				if err != nil {
					return &usageError{err}
				}
				err = inspect.Record(out, args[0], lsn)
				return errors.Join(err, out.Flush())
			}
			err := inspect.List(out, args[0], o)
			return errors.Join(err, out.Flush())
		},
	}
	cmd.Flags().BoolVar(&o.WindowsOnly, "windows", false, "list windows without their frames")
	cmd.Flags().StringVar(&record, "record", "", "tell of the record at this `LSN` only")
	cmd.Flags().BoolVar(&o.Check, "check", false, "decode every frame and compare it with the checksum of its WAL")
	return cmd
}
