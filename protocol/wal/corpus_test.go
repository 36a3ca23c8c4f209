package wal_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"walproxy/protocol"
	"walproxy/protocol/wal"
	"walproxy/protocol/wal/waltest"
)

var update = flag.Bool("update", false, "write testdata/corpus.txt from what the decoder sees")

// window is a run of pages of waltest: real WAL, from the start of a page.
type window struct {
	version wal.Version
	start   protocol.LSN
	bytes   []byte
}

// corpusOptions are those of the clusters that wrote the corpus.
var corpusOptions = wal.Options{Stream: wal.Stream{SegmentSize: mib}}

// corpus returns the windows of version v.
func corpus(t testing.TB, v wal.Version) []window {
	t.Helper()
	var windows []window
	for page := range slices.Chunk(waltest.Pages(t, v), wal.DefaultPageSize) {
		n := len(windows)
		h, _, err := wal.ParsePageHeader(page)
		if n > 0 && (err != nil || h.Addr == windows[n-1].start+protocol.LSN(len(windows[n-1].bytes))) {
			windows[n-1].bytes = append(windows[n-1].bytes, page...)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		windows = append(windows, window{version: v, start: h.Addr, bytes: bytes.Clone(page)})
	}
	return windows
}

// TestCorpus: real pages of every version give the records that are listed in testdata/corpus.txt, and the same bytes again.
// The pages and the list come from clusters whose WAL was held against the server's own tools in full (integration/walformat).
func TestCorpus(t *testing.T) {
	var list strings.Builder
	for _, v := range formats {
		counts := map[string]int{}
		var r wal.Record
		for i, w := range corpus(t, v) {
			walkAll(t, w.start, corpusOptions, w.bytes, uint64(i))
			walker := wal.NewWalker(w.start, corpusOptions)
			if err := walker.Feed(w.bytes); err != nil {
				t.Fatal(err)
			}
			for ev, ok := walker.Next(); ok; ev, ok = walker.Next() {
				if ev.Kind != wal.KindRecord {
					counts[ev.Kind.String()]++
					continue
				}
				if err := wal.Decode(ev.Data, wal.Format{Version: ev.Version}, &r); err != nil {
					t.Fatalf("record at %s: %v", ev.Start, err)
				}
				if again := r.Append(nil, ev.Version); !r.Canonical || !bytes.Equal(again, ev.Data) {
					t.Fatalf("record at %s: appended again differs", ev.Start)
				}
				counts[fmt.Sprintf("%s/%s", r.Rmgr, wal.Operation(v, r.Rmgr, r.Info))]++
			}
		}
		for _, key := range slices.Sorted(keys(counts)) {
			fmt.Fprintf(&list, "%d %s %d\n", v, key, counts[key])
		}
	}
	const path = "testdata/corpus.txt"
	if *update {
		if err := os.WriteFile(path, []byte(list.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if list.String() != string(want) {
		t.Errorf("the corpus gives\n%s\nwant, from %s,\n%s", list.String(), path, want)
	}
}

func keys(m map[string]int) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// TestCorpusBits: whichever bit of a real record is flipped, the checksum says so.
func TestCorpusBits(t *testing.T) {
	for _, v := range formats {
		w := corpus(t, v)[0]
		walker := wal.NewWalker(w.start, corpusOptions)
		if err := walker.Feed(w.bytes); err != nil {
			t.Fatal(err)
		}
		var r wal.Record
		n := 0
		for ev, ok := walker.Next(); ok && n < 20; ev, ok = walker.Next() {
			if ev.Kind != wal.KindRecord || len(ev.Data) > 300 {
				continue
			}
			n++
			rec := bytes.Clone(ev.Data)
			for bit := range 8 * len(rec) {
				rec[bit/8] ^= 1 << (bit % 8)
				if wal.Decode(rec, wal.Format{Version: v}, &r) == nil {
					t.Fatalf("record at %s decodes with bit %d flipped", ev.Start, bit)
				}
				rec[bit/8] ^= 1 << (bit % 8)
			}
		}
		if n == 0 {
			t.Errorf("%s: no small record", v)
		}
	}
}
