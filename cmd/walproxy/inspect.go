package main

import (
	"bufio"
	"errors"

	"github.com/spf13/cobra"

	"walproxy/cmd/walproxy/internal/inspect"
)

func newInspectCommand() *cobra.Command {
	var o inspect.Options
	cmd := &cobra.Command{
		Use:   "inspect PATH",
		Short: "List the windows and frames of a window file or data directory",
		Long: `Lists the windows and frames of a window file, or of every window file in and below a directory. It changes nothing; the
node may run. A frame's line: offset in the file, first LSN, LSN behind it, codec, its place in a compression stream,
bytes of WAL -> bytes of payload + bytes of header, ratio.`,
		Args: arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			out := bufio.NewWriter(cmd.OutOrStdout())
			err := inspect.List(out, args[0], o)
			return errors.Join(err, out.Flush())
		},
	}
	cmd.Flags().BoolVar(&o.WindowsOnly, "windows", false, "list windows without their frames")
	cmd.Flags().BoolVar(&o.Check, "check", false, "decode every frame and compare it with the checksum of its WAL")
	return cmd
}
