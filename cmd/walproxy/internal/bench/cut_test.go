package bench

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"walproxy/protocol"
	"walproxy/protocol/wal"
)

// oneStream returns generated WAL and the stream that is found of it.
func oneStream(t *testing.T) (*generated, []stream) {
	t.Helper()
	dir := t.TempDir()
	g := generate(3*mib, 3*mib-100)
	g.segments(t, dir)
	streams, err := findStreams(dir)
	if err != nil || len(streams) != 1 {
		t.Fatalf("%d streams, %v", len(streams), err)
	}
	return g, streams
}

func TestCommitCuts(t *testing.T) {
	g, streams := oneStream(t)
	c := cutter{cut: Cut{Commits: true}}
	var got []protocol.LSN
	streams[0].windows(mib, func(w window) bool {
		raw := make([]byte, w.bytes)
		if err := w.stream.readAt(raw, w.start); err != nil {
			t.Fatal(err)
		}
		ends, err := c.frameEnds(w, raw)
		if err != nil || ends[len(ends)-1] != len(raw) {
			t.Fatalf("window at %s ends at %d of %d, %v", w.start, ends[len(ends)-1], len(raw), err)
		}
		for _, end := range ends[:len(ends)-1] {
			got = append(got, w.start+protocol.LSN(end))
		}
		return true
	})
	if want := g.commits; len(want) < 1000 || !slices.Equal(got, want) {
		t.Errorf("%d cuts, want %d", len(got), len(want))
	}
}

func TestParseCut(t *testing.T) {
	number := func(text string) (n uint64, err error) {
		_, err = fmt.Sscanf(text, "%d", &n)
		return n, err
	}
	for text, want := range map[string]Cut{"window": {}, "commit": {Commits: true}, "8192": {Bytes: 8192}, "chunk": {Bytes: 128 << 10, Records: true}} {
		if got, err := ParseCut(text, number); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "commits", "0", "9999999999999"} {
		if got, err := ParseCut(text, number); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

// TestChunkCuts: chunks end where records begin, and nowhere else but at the end of the window.
func TestChunkCuts(t *testing.T) {
	g, streams := oneStream(t)
	c := cutter{cut: Cut{Bytes: 64 << 10, Records: true}}
	streams[0].windows(mib, func(w window) bool {
		raw := make([]byte, w.bytes)
		if err := w.stream.readAt(raw, w.start); err != nil {
			t.Fatal(err)
		}
		ends, err := c.frameEnds(w, raw)
		if n := len(raw) >> 16; err != nil || ends[len(ends)-1] != len(raw) || len(ends) < n || len(ends) > n+2 {
			t.Fatalf("window at %s: %d cuts, %v", w.start, len(ends), err)
		}
		for _, end := range ends[:len(ends)-1] {
			if w.start+protocol.LSN(end) > g.start+protocol.LSN(len(g.bytes)) {
				break // zeros
			}
			if size := binary.LittleEndian.Uint32(raw[end:]); end%8 != 0 || size < wal.RecordHeaderBytes || size > 8192 {
				t.Errorf("window at %s: a cut at %d, where %d is", w.start, end, size)
			}
		}
		return true
	})
}
