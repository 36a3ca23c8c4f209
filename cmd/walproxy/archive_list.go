package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"walproxy/archive"
	"walproxy/archive/catalog"
	"walproxy/protocol"
)

func newArchiveListCommand(store *storeFlags) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show what an archive holds: timelines, ranges, gaps, sizes",
		Long: `Lists the archive: for each timeline where it began, which ranges of its WAL are there and which are missing between them, how
much WAL that is and what it takes; and the backups whose history files are there. It looks at names only; archive verify reads
everything.`,
		Args: arguments(cobra.NoArgs),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, a, err := store.openArchive(cmd.Context())
		if err != nil {
			return err
		}
		defer func() { _ = s.Close() }() // it was only read
		c, err := catalog.Load(cmd.Context(), a)
		if err != nil {
			return err
		}
		list := archiveListOf(s.String(), c)
		if asJSON {
			return writeJSON(cmd.OutOrStdout(), list)
		}
		return list.write(cmd.OutOrStdout())
	}
	return cmd
}

// openArchive opens the store and the archive in it. The caller closes the store.
func (f *storeFlags) openArchive(ctx context.Context) (archive.Store, *archive.Archive, error) {
	s, err := f.open()
	if err != nil {
		return nil, nil, err
	}
	a, err := archive.Open(ctx, s)
	if err != nil {
		_ = s.Close() // nothing was written
		return nil, nil, err
	}
	return s, a, nil
}

// archiveList is what archive list --json prints.
type archiveList struct {
	Store        string             `json:"store"`
	SystemID     string             `json:"system_identifier"`
	Major        int                `json:"postgresql_major"`
	SegmentBytes uint32             `json:"wal_segment_size"`
	Timelines    []archivedTimeline `json:"timelines"`
	Backups      []archivedBackup   `json:"backups"`
	Files        int                `json:"files"`
	Unknown      []string           `json:"unknown,omitempty"` // names that are none of an archive's
}

type archivedTimeline struct {
	Timeline protocol.Timeline `json:"timeline"`
	Parent   protocol.Timeline `json:"parent,omitempty"`
	Fork     string            `json:"fork,omitempty"`
	History  bool              `json:"history"` // is there, or not needed
	Ranges   []archivedRange   `json:"ranges"`
	Gaps     []archivedRange   `json:"gaps"`
	Objects  int               `json:"objects"`
	WALBytes uint64            `json:"wal_bytes"`
	Bytes    int64             `json:"bytes"`
	Ratio    float64           `json:"ratio"`
}

type archivedRange struct {
	From  string `json:"from"`
	To    string `json:"to"`
	Bytes uint64 `json:"bytes"`
}

type archivedBackup struct {
	Timeline protocol.Timeline `json:"timeline"`
	Start    string            `json:"start"`
	What     string            `json:"what"`
}

func archiveListOf(store string, c *catalog.Catalog) archiveList {
	id := c.Identity
	list := archiveList{Store: store, SystemID: id.SystemID.String(), Major: id.Major, SegmentBytes: id.SegmentSize,
		Timelines: []archivedTimeline{}, Backups: []archivedBackup{}, Files: len(c.Files)}
	for _, l := range c.Timelines {
		t := archivedTimeline{Timeline: l.Timeline, History: l.Known, Ranges: rangesOf(l.Ranges), Gaps: rangesOf(l.Gaps), Objects: len(l.Objects)}
		if n := len(l.History.Entries); n > 0 {
			t.Parent, t.Fork = l.History.Entries[n-1].Timeline, l.History.Begin().String()
		}
		for _, o := range l.Objects {
			t.Bytes += o.Bytes
		}
		for _, r := range l.Ranges {
			t.WALBytes += uint64(r.To - r.From)
		}
		if t.Bytes > 0 {
			t.Ratio = float64(t.WALBytes) / float64(t.Bytes)
		}
		list.Timelines = append(list.Timelines, t)
	}
	for _, b := range c.Backups() {
		list.Backups = append(list.Backups, archivedBackup{b.Timeline, b.LSN.String(), b.Why})
	}
	for _, info := range c.Unknown {
		list.Unknown = append(list.Unknown, info.Name)
	}
	return list
}

func rangesOf(ranges []catalog.Range) []archivedRange {
	out := make([]archivedRange, len(ranges))
	for i, r := range ranges {
		out[i] = archivedRange{r.From.String(), r.To.String(), uint64(r.To - r.From)}
	}
	return out
}

func mebibytes(n uint64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

func (l archiveList) write(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: system %s, PostgreSQL %d, segments of %d MiB\n", l.Store, l.SystemID, l.Major, l.SegmentBytes>>20)
	for _, t := range l.Timelines {
		fmt.Fprintf(&b, "timeline %d", t.Timeline)
		switch {
		case t.Parent != 0:
			fmt.Fprintf(&b, ", from timeline %d at %s", t.Parent, t.Fork)
		case !t.History:
			b.WriteString(", its history is MISSING")
		}
		fmt.Fprintf(&b, ": %s of WAL in %d objects, %s, %.2f:1\n", mebibytes(t.WALBytes), t.Objects, mebibytes(uint64(t.Bytes)), t.Ratio)
		for _, r := range t.Ranges {
			fmt.Fprintf(&b, "  %s to %s\n", r.From, r.To)
		}
		for _, g := range t.Gaps {
			fmt.Fprintf(&b, "  MISSING: %s to %s, %s\n", g.From, g.To, mebibytes(g.Bytes))
		}
	}
	for _, backup := range l.Backups {
		fmt.Fprintf(&b, "%s: begins at %s on timeline %d\n", backup.What, backup.Start, backup.Timeline)
	}
	for _, name := range l.Unknown {
		fmt.Fprintf(&b, "not of an archive: %s\n", name)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
