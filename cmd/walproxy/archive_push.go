package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	pgcommand "walproxy/archive/command"
	"walproxy/cmd/walproxy/internal/config"
	"walproxy/recompress"
)

func newArchivePushCommand(store *storeFlags) *cobra.Command {
	var codec, distance string
	var o recompress.Options
	var verbose bool
	cmd := &cobra.Command{
		Use:   "push [flags] PATH...",
		Short: "Put files of pg_wal into the archive: archive_command",
		Long: `Stores each file: a complete WAL segment as compressed windows, .history, .backup and .partial files as they are. When it
returns 0 they are durable in the store. A file that is there already is success if it holds the same WAL, however it was
compressed; other WAL, another cluster's, or another history of a timeline is an error, and nothing is changed.`,
		Example: `  archive_command = 'walproxy archive push --store file:///backup/main %p'
  walproxy archive push --store s3://bucket/main pg_wal/000000010000000000000042`,
		Args: arguments(cobra.MinimumNArgs(1)),
	}
	f := cmd.Flags()
	f.StringVar(&codec, "codec", "auto", "`CODEC`: "+strings.Join(recompress.Codecs(), ", "))
	f.IntVar(&o.Level, "level", 0, "effort `N`: 1, 3, 5, 10 or 16; 0 is the codec's default")
	f.StringVar(&distance, "reset-distance", config.Bytes(recompress.DefaultResetDistance).String(), "bytes of WAL in a window: a power of two from 1MiB to 64MiB (`SIZE`)")
	f.BoolVarP(&verbose, "verbose", "v", false, "tell what was stored")
	cmd.RunE = func(cmd *cobra.Command, paths []string) error {
		var err error
		if o.Codec, err = recompress.ParseCodec(codec); err != nil {
			return &usageError{err}
		}
		if err := o.CheckLevel(); err != nil {
			return &usageError{err}
		}
		bytes, err := plainBytes(distance)
		if err != nil || bytes > 1<<31 {
			return &usageError{fmt.Errorf("reset distance %q: want a power of two from 1MiB to 64MiB", distance)}
		}
		o.ResetDistance = uint32(bytes)
		if _, err := recompress.NewSealer(o); err != nil {
			return &usageError{err}
		}
		return push(cmd, store, paths, o, verbose)
	}
	return cmd
}

func push(cmd *cobra.Command, store *storeFlags, paths []string, o recompress.Options, verbose bool) error {
	s, err := store.open()
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }() // whatever was stored is durable
	for _, path := range paths {
		done, err := pgcommand.Push(cmd.Context(), s, path, o)
		if err != nil {
			return err
		}
		if done.Mismatches > 0 {
			fmt.Fprintf(cmd.ErrOrStderr(), "walproxy: %s: the encoder made %d frames that do not decode; their WAL is stored as it is\n", path, done.Mismatches)
		}
		if !verbose {
			continue
		}
		if done.Existed {
			fmt.Fprintf(cmd.OutOrStdout(), "%s: there already, as %s\n", path, done.Name)
		} else {
			fmt.Fprintf(cmd.OutOrStdout(), "%s: %d bytes as %s, %d bytes\n", path, done.WALBytes, done.Name, done.Bytes)
		}
	}
	return nil
}
