package bench

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"walproxy/protocol"
	"walproxy/protocol/wal"
)

func TestFindStreams(t *testing.T) {
	dir := t.TempDir()
	page := generate(8*mib, 100).bytes[:wal.LongHeaderBytes]
	put := func(tli protocol.Timeline, lsn protocol.LSN, suffix string, bytes int) {
		write(t, filepath.Join(dir, protocol.SegmentName(tli, lsn, mib)+suffix), append(slices.Clone(page), make([]byte, bytes-len(page))...))
	}
	put(1, 8*mib, "", mib)
	put(1, 9*mib, "", mib)
	put(1, 11*mib, "", 5000) // behind a gap, and short
	put(1, 12*mib, "", mib)
	put(1, 12*mib, ".partial", mib) // its whole is there
	put(2, 12*mib, "", mib)
	put(2, 13*mib, ".partial", mib)
	for _, name := range []string{"00000002.history", "000000010000000000000008.00000028.backup", "x"} {
		write(t, filepath.Join(dir, name), page)
	}
	streams, err := findStreams(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range streams {
		got = append(got, fmt.Sprintf("%d %s-%s in %d", s.timeline, s.start, s.end(), len(s.files)))
	}
	want := []string{"1 0/800000-0/A00000 in 2", "1 0/B00000-0/B01388 in 1", "1 0/C00000-0/D00000 in 1", "2 0/C00000-0/E00000 in 2"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if _, err := findStreams(t.TempDir()); err == nil {
		t.Error("an empty directory is an input")
	}
	if _, err := Run(t.Context(), []string{filepath.Join(dir, "none")}, Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a path that is not there: %v", err)
	}
}
