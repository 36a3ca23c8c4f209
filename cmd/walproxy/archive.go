package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"walproxy/archive"
	"walproxy/archive/stores"
	"walproxy/cmd/walproxy/internal/config"
)

// storeFlags say where an archive lies. Its commands share them.
type storeFlags struct {
	store, file string
	address     string // what they say
}

func newArchiveCommand() *cobra.Command {
	flags := &storeFlags{}
	cmd := &cobra.Command{
		Use:   "archive",
		Short: "Put WAL into an archive, and get it out again",
		Long: `An archive is a directory or a prefix of a bucket that holds the WAL of one cluster, compressed as in a node's spool. push and
get are what a server's archive_command and restore_command call; docs/recovery.md shows how.

A store is file:///dir or s3://bucket/prefix, with ?endpoint=https://host&region=NAME&path_style=on where the usual AWS_* variables
do not say it. Credentials come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, from ~/.aws/credentials, or from the machine.`,
		Args: arguments(cobra.NoArgs),
		RunE: needsCommand,
	}
	f := cmd.PersistentFlags()
	f.StringVar(&flags.store, "store", "", "where the archive lies: file:///dir or s3://bucket/prefix (`URL`)")
	f.StringVarP(&flags.file, "config", "c", "", "configuration `FILE` whose archive.store it is")
	cmd.AddCommand(newArchivePushCommand(flags), newArchiveGetCommand(flags), newArchiveAheadCommand(flags),
		newArchiveListCommand(flags), newArchiveVerifyCommand(flags), newArchivePruneCommand(flags))
	return cmd
}

// open returns the store. The caller closes it.
func (f *storeFlags) open() (archive.Store, error) {
	var o stores.Options
	f.address = f.store
	if f.file != "" {
		c, err := config.Load(f.file, nil)
		if err != nil {
			return nil, err
		}
		o.Timeout = c.Archive.Timeout
		if f.address == "" {
			f.address = string(c.Archive.Store)
		}
	}
	if f.address == "" {
		return nil, &usageError{fmt.Errorf("want --store, or --config with archive.store")}
	}
	s, err := stores.Open(f.address, o)
	if err != nil {
		return nil, &usageError{err}
	}
	return s, nil
}
