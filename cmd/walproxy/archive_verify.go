package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"walproxy/archive/catalog"
	"walproxy/cmd/walproxy/internal/verify"
)

// errArchiveDamaged says that archive verify found something.
var errArchiveDamaged = errors.New("the archive is damaged or incomplete")

func newArchiveVerifyCommand(store *storeFlags) *cobra.Command {
	var against string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Read everything in an archive and say what is damaged or missing",
		Long: `Reads every object, decodes all of it and compares it with its checksums; says which WAL is missing between what is there, by
exact LSN, and which histories; and whether objects that overlap hold the same WAL. With --against it also compares the
archive with a server, a node, or a directory with WAL, byte for byte, as walproxy verify does.

Exits with 0 if all is well, 3 if something is damaged, missing or differs, 1 if it could not look.`,
		Example: `  walproxy archive verify --store file:///backup/main
  walproxy archive verify --store s3://bucket/main --against 'host=primary user=replicator'`,
		Args: arguments(cobra.NoArgs),
	}
	f := cmd.Flags()
	f.StringVar(&against, "against", "", "also compare with `PLACE`: a connection string, a data directory, a directory with WAL")
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return verifyArchive(cmd, store, against, asJSON) }
	return cmd
}

// archiveVerification is what archive verify --json prints.
type archiveVerification struct {
	Objects  int            `json:"objects"`
	Bytes    int64          `json:"bytes"`
	WALBytes uint64         `json:"wal_bytes"`
	Findings []finding      `json:"findings"`
	Against  *verify.Report `json:"against,omitempty"`
}

type finding struct {
	Timeline uint32 `json:"timeline,omitempty"`
	From     string `json:"from,omitempty"`
	To       string `json:"to,omitempty"`
	Object   string `json:"object,omitempty"`
	What     string `json:"what"`
}

func verifyArchive(cmd *cobra.Command, flags *storeFlags, against string, asJSON bool) error {
	ctx := cmd.Context()
	store, a, err := flags.openArchive(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }() // it was only read
	c, err := catalog.Load(ctx, a)
	if err != nil {
		return err
	}
	var o catalog.VerifyOptions
	clean := func() {}
	if terminal, ok := cmd.ErrOrStderr().(*os.File); ok && term.IsTerminal(int(terminal.Fd())) {
		o.Progress, clean = showProgress(terminal)
	}
	found, err := catalog.Verify(ctx, a, c, o)
	clean()
	if err != nil {
		return err
	}
	var v archiveVerification
	for _, l := range c.Timelines {
		for _, object := range l.Objects {
			v.Objects, v.Bytes = v.Objects+1, v.Bytes+object.Bytes
		}
		for _, r := range l.Ranges {
			v.WALBytes += uint64(r.To - r.From)
		}
	}
	v.Findings = make([]finding, len(found))
	for i, f := range found {
		v.Findings[i] = finding{Timeline: uint32(f.Timeline), Object: f.Object, What: f.What}
		if f.To != 0 {
			v.Findings[i].From, v.Findings[i].To = f.From.String(), f.To.String()
		}
	}
	var differs error
	if against != "" {
		other, err := verify.Open(against)
		if err != nil {
			return &usageError{err}
		}
		v.Against, differs = verify.Compare(ctx, verify.NewStore(store), other, verify.Options{})
		differs = errors.Join(differs, other.Close())
	}
	if len(found) > 0 {
		differs = errors.Join(fmt.Errorf("%w: %d findings", errArchiveDamaged, len(found)), differs)
	}
	return errors.Join(v.write(cmd, found, asJSON), differs)
}

func (v archiveVerification) write(cmd *cobra.Command, found []catalog.Finding, asJSON bool) error {
	out := cmd.OutOrStdout()
	if asJSON {
		return writeJSON(out, v)
	}
	for _, f := range found {
		if _, err := fmt.Fprintf(out, "DAMAGED %s\n", f); err != nil {
			return err
		}
	}
	if v.Against != nil {
		if err := v.Against.Write(out); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(out, "%d objects, %s, with %s of WAL: %d findings\n", v.Objects, mebibytes(uint64(v.Bytes)), mebibytes(v.WALBytes), len(found))
	return err
}
