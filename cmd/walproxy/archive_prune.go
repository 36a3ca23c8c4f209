package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"walproxy/archive/catalog"
	"walproxy/protocol"
)

// pruneFlags say what is to be kept.
type pruneFlags struct {
	before, backup string
	timeline       uint32
	days           int
	dry, verbose   bool
}

func newArchivePruneCommand(store *storeFlags) *cobra.Command {
	flags := &pruneFlags{}
	cmd := &cobra.Command{
		Use:   "prune (--before LSN | --keep-days N | --oldest-backup FILE)",
		Short: "Remove WAL from an archive that no kept backup needs",
		Long: `Removes the objects that nothing needs which is to be kept: --before keeps WAL from an LSN on, --oldest-backup all that recovery
from that backup needs, --keep-days all that recovery to any moment of the last N days needs, for which the newest backup
before that is looked up among the backup history files in the archive, or is --oldest-backup. What is kept includes the WAL of
parent timelines up to the forks, timelines that can be reached from there, and all that other backups need whose history files
are in the archive and that begin no earlier. Histories always stay.

FILE is the backup_label or backup_manifest of the backup, or its backup history file. Oldest WAL goes first, so that what is left
has no gap whenever the command ends.`,
		Example: `  walproxy archive prune --store file:///backup/main --oldest-backup /backup/base/backup_manifest --dry-run
  walproxy archive prune --store s3://bucket/main --before 16/B3000000`,
		Args: arguments(cobra.NoArgs),
	}
	f := cmd.Flags()
	f.StringVar(&flags.before, "before", "", "keep WAL from this `LSN` on")
	f.Uint32Var(&flags.timeline, "timeline", 0, "with --before: the timeline `N` that the LSN is meant on; the default is the newest")
	f.StringVar(&flags.backup, "oldest-backup", "", "`FILE` of the oldest backup that is kept")
	f.IntVar(&flags.days, "keep-days", 0, "keep what recovery to any moment of the last `N` days needs")
	f.BoolVar(&flags.dry, "dry-run", false, "say what would be removed, and remove nothing")
	f.BoolVarP(&flags.verbose, "verbose", "v", false, "name every object")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if (flags.before == "") == (flags.backup == "" && flags.days == 0) || flags.days < 0 {
			return &usageError{errors.New("want --before, or --oldest-backup, --keep-days, or both of these")}
		}
		return flags.run(cmd, store)
	}
	return cmd
}

func (f *pruneFlags) run(cmd *cobra.Command, flags *storeFlags) error {
	store, a, err := flags.openArchive(cmd.Context())
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }() // deletions are durable
	c, err := catalog.Load(cmd.Context(), a)
	if err != nil {
		return err
	}
	anchors, err := f.anchors(c, time.Now())
	if err != nil {
		return err
	}
	plan, err := c.Prune(anchors)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	f.show(out, plan)
	if f.dry {
		return nil
	}
	count := 0
	err = plan.Execute(cmd.Context(), a, func(string) { count++ })
	fmt.Fprintf(out, "removed %d of %d\n", count, len(plan.Objects)+len(plan.Files))
	return err
}

// anchors returns what the flags say.
func (f *pruneFlags) anchors(c *catalog.Catalog, now time.Time) ([]catalog.Anchor, error) {
	if f.before != "" {
		lsn, err := protocol.ParseLSN(f.before)
		if err != nil {
			return nil, &usageError{err}
		}
		tli := protocol.Timeline(f.timeline)
		if newest := c.Newest(); tli == 0 && newest != nil {
			tli = newest.Timeline
		}
		return []catalog.Anchor{{Timeline: tli, LSN: lsn, Why: "--before"}}, nil
	}
	var known []catalog.Anchor
	if f.backup != "" {
		b, err := readBackup(f.backup)
		if err != nil {
			return nil, err
		}
		known = append(known, b)
	}
	if f.days == 0 {
		return known, nil
	}
	kept, err := c.KeepSince(now.AddDate(0, 0, -f.days), known)
	if errors.Is(err, catalog.ErrNoBackup) && f.backup == "" {
		err = fmt.Errorf("%w, by --oldest-backup", err)
	}
	return []catalog.Anchor{kept}, err
}

// readBackup reads where a backup begins.
func readBackup(name string) (catalog.Anchor, error) {
	file, err := os.Open(name)
	if err != nil {
		return catalog.Anchor{}, err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, catalog.MaxLabelBytes))
	if err != nil {
		return catalog.Anchor{}, err
	}
	tli, lsn, err := catalog.ParseBackup(content)
	if err != nil {
		return catalog.Anchor{}, fmt.Errorf("%s: %w", name, err)
	}
	return catalog.Anchor{Timeline: tli, LSN: lsn, Why: name}, nil
}

// show says what is kept and what goes.
func (f *pruneFlags) show(w io.Writer, p *catalog.Plan) {
	for _, a := range p.Anchors {
		fmt.Fprintf(w, "keep: WAL from %s on\n", a)
	}
	verb := "remove"
	if f.dry {
		verb = "would remove"
	}
	for _, r := range p.Ranges() {
		fmt.Fprintf(w, "%s: timeline %d, %s to %s, %d objects, %s\n", verb, r.Timeline, r.From, r.To, r.Objects, mebibytes(uint64(r.Bytes)))
	}
	if n := len(p.Files); n > 0 {
		fmt.Fprintf(w, "%s: %d backup history files and partial segments\n", verb, n)
	}
	if len(p.Objects)+len(p.Files) == 0 {
		fmt.Fprintln(w, "nothing to remove")
	}
	if f.verbose {
		for _, name := range p.Names() {
			fmt.Fprintf(w, "%s: %s\n", verb, name)
		}
	}
}
