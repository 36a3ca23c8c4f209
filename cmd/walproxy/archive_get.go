package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"

	"walproxy/archive"
	pgcommand "walproxy/archive/command"
)

// lookError is a failure of `archive get` other than that the file is not in the archive.
type lookError struct{ err error }

func (e *lookError) Error() string { return e.err.Error() }

func (e *lookError) Unwrap() error { return e.err }

func newArchiveGetCommand(store *storeFlags) *cobra.Command {
	var ahead int
	var cache string
	cmd := &cobra.Command{
		Use:   "get [flags] FILE PATH",
		Short: "Hand a file out of the archive: restore_command",
		Long: `Writes the segment FILE, or a .history, .backup or .partial file, to PATH, which appears as a whole or not at all. A segment has
exactly wal_segment_size bytes. Where the archive ends inside of a segment, zeros follow, and the server recovers up to there.

While a server recovers, a process in the background reads the next segments into a directory beside pg_wal, and removes them
there as they are used. What is left when recovery ends may be removed.

Exit codes: 0 done, 1 the file is not in the archive, 200 anything else, so that a server stops recovery rather than ending it
early: the store does not answer, is empty, holds damage, or lacks WAL in front of WAL that it has.`,
		Example: `  restore_command = 'walproxy archive get --store file:///backup/main %f %p'`,
		Args: func(cmd *cobra.Command, args []string) error {
			return couldNotLook(arguments(cobra.ExactArgs(2))(cmd, args))
		},
	}
	// A mistake on the command line must not look like the end of the archive.
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return couldNotLook(&usageError{err}) })
	f := cmd.Flags()
	f.IntVar(&ahead, "read-ahead", 4, "`N` segments are read ahead; 0 for none")
	f.StringVar(&cache, "cache", "", "`DIR` for segments that were read ahead; the default is walproxy-read-ahead beside pg_wal")
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		defer func() {
			if p := recover(); p != nil { // the runtime's own exit code would look like the end of the archive
				err = couldNotLook(fmt.Errorf("defect: %v", p))
			}
		}()
		return couldNotLook(get(cmd, store, args[0], args[1], cache, ahead))
	}
	return cmd
}

// couldNotLook makes a lookError of any error that does not say that the archive lacks the file.
func couldNotLook(err error) error {
	if err == nil || errors.Is(err, archive.ErrNotExist) {
		return err
	}
	return &lookError{err}
}

func get(cmd *cobra.Command, store *storeFlags, file, path, cache string, ahead int) error {
	s, err := store.open()
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }() // it was only read
	var o pgcommand.GetOptions
	// Others than a recovering server (pg_rewind walks backwards) have no use for the segments behind.
	if ahead > 0 && (cache != "" || filepath.Base(path) == "RECOVERYXLOG") {
		if cache == "" {
			cache = filepath.Join(filepath.Dir(filepath.Dir(path)), "walproxy-read-ahead")
		}
		o.Cache = filepath.Join(cache, fmt.Sprintf("%x", sha256.Sum256([]byte(store.address)))[:16]) // one for each archive
		o.Ahead = ahead
		o.ReadAhead = func(file string) error { return store.spawn(o.Cache, file, ahead) }
	}
	got, err := pgcommand.Get(cmd.Context(), s, file, path, o)
	if err == nil && got.End != 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "walproxy: %s: the archive ends at %s; zeros follow\n", file, got.End)
	}
	return err
}

// spawn starts a process that reads segments ahead. It outlives this one.
func (f *storeFlags) spawn(dir, file string, count int) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	args := []string{"archive", "read-ahead", "--store", f.address}
	if f.file != "" {
		args = append(args, "--config", f.file)
	}
	cmd := exec.Command(program, append(args, dir, file, strconv.Itoa(count))...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	return cmd.Process.Release()
}

func newArchiveAheadCommand(store *storeFlags) *cobra.Command {
	return &cobra.Command{
		Use:    "read-ahead DIR FILE N",
		Short:  "Read the N segments behind FILE into DIR; archive get starts it",
		Hidden: true,
		Args:   arguments(cobra.ExactArgs(3)),
		RunE: func(cmd *cobra.Command, args []string) error {
			count, err := strconv.Atoi(args[2])
			if err != nil {
				return &usageError{err}
			}
			s, err := store.open()
			if err != nil {
				return err
			}
			defer func() { _ = s.Close() }() // it was only read
			return pgcommand.ReadAhead(cmd.Context(), s, args[0], args[1], count)
		},
	}
}
