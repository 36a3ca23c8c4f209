package workload

import (
	"os"
	"path/filepath"
	"testing"

	"walproxy/integration/pgcluster"
	"walproxy/protocol"
	"walproxy/protocol/wal"
)

// atOnce bounds how many servers run side by side.
var atOnce = make(chan struct{}, 3)

// TestGenerate: every workload leaves segments that begin with a valid page and hold records of what it is about.
func TestGenerate(t *testing.T) {
	about := map[string]string{ // an operation that the workload cannot do without
		"oltp": "Transaction/COMMIT", "oltp_nofpw": "Transaction/COMMIT", "copy": "Heap2/MULTI_INSERT", "index": "XLOG/FPI", "wide": "Heap/UPDATE",
		"ints": "Heap/HOT_UPDATE", "inttext": "Heap/HOT_UPDATE", "two_short": "Heap/UPDATE", "long": "Heap/UPDATE", "ten_tiny": "Heap/UPDATE",
		"delete": "Heap/DELETE", "mixed": "Gin/INSERT", "orders": "Heap/INSERT", "indexes": "BRIN/CREATE_INDEX",
	}
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			atOnce <- struct{}{}
			defer func() { <-atOnce }()
			dir := t.TempDir()
			r, err := Generate(t.Context(), dir, Options{Name: name, SegmentMiB: 1, Scale: 0.003})
			if err != nil {
				t.Fatal(err)
			}
			if About(name) == "" || about[name] == "" || ScaleFor(name, 1<<30) < 1 {
				t.Errorf("nobody says what %s is about", name)
			}
			counts := operations(t, dir, r)
			if counts[about[name]] == 0 {
				t.Errorf("no %s in %v", about[name], counts)
			}
			if images := counts["images"]; name == "oltp_nofpw" && images > 0 || name == "oltp" && images == 0 {
				t.Errorf("%d page images", images)
			}
		})
	}
}

// operations counts the records in the segments of a run.
func operations(t *testing.T, dir string, r Result) map[string]int {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != r.Segments || r.Segments == 0 {
		t.Fatalf("%d segments, want %d: %v", len(entries), r.Segments, err)
	}
	walker := wal.NewWalker(r.Begin, wal.Options{Stream: wal.Stream{SegmentSize: 1 << 20}})
	counts, end := map[string]int{}, protocol.LSN(0)
	var record wal.Record
	for _, entry := range entries {
		b, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if err := walker.Feed(b); err != nil {
			t.Fatal(err)
		}
		for ev, ok := walker.Next(); ok; ev, ok = walker.Next() {
			if ev.Kind != wal.KindRecord {
				continue
			}
			if err := wal.Decode(ev.Data, wal.Format{Version: ev.Version}, &record); err != nil {
				t.Fatalf("record at %s: %v", ev.Start, err)
			}
			counts[record.Rmgr.String()+"/"+wal.Operation(ev.Version, record.Rmgr, record.Info)]++
			for i := range record.Blocks {
				if record.Blocks[i].HasImage() {
					counts["images"]++
				}
			}
			end = ev.End
		}
	}
	if end < r.End || end > r.End.Next(1<<20) {
		t.Errorf("the last record ends at %s, the load at %s", end, r.End)
	}
	return counts
}

func TestKeep(t *testing.T) {
	dir := t.TempDir()
	r, err := Generate(t.Context(), dir, Options{Name: "copy", SegmentMiB: 1, Scale: 0.03, KeepBytes: 2 << 20, Compression: "pglz"})
	if err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 || r.Segments != 2 || r.End != r.Begin+2<<20 {
		t.Errorf("%+v, %d segments, %v", r, len(entries), err)
	}
}

func TestOptions(t *testing.T) {
	if _, err := Generate(t.Context(), t.TempDir(), Options{Name: "none"}); err == nil {
		t.Error("workload none exists")
	}
	install, err := pgcluster.FindAny()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		method string
		major  int
		want   string
	}{
		{"", install.Major, "wal_compression = off"}, {"pglz", 14, "wal_compression = on"}, {"pglz", 15, "wal_compression = pglz"},
		{"zstd", 15, "wal_compression = zstd"}, {"lz4", 14, ""}, {"x", 18, ""},
	} {
		if got, err := walCompression(c.method, c.major); got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s on %d: %q, %v", c.method, c.major, got, err)
		}
	}
}
