package verify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"walproxy/protocol"
)

// all is what is the same in two places that lack nothing.
var all = []Range{rangeOf(Span{1, base, fork}), rangeOf(Span{2, fork, end})}

// Every place gives back the WAL that was put there, byte for byte, and tells exactly what it holds; so every two are the same.
func TestPlacesHoldTheSame(t *testing.T) {
	whole := wholeWAL()
	names := make([]string, len(places))
	for i, p := range places {
		names[i] = p.make(t, whole)
		s := open(t, names[i])
		v, err := s.Inventory(context.Background())
		must(t, err)
		if v.SystemID != systemID || fmt.Sprint(v.Spans) != fmt.Sprint([]Span{{1, base, fork}, {2, fork, end}}) || len(v.Histories) != 1 {
			t.Errorf("%s: %+v", p.name, v)
			continue
		}
		for _, span := range v.Spans {
			if !bytes.Equal(readAll(t, s, span.Timeline, span.Begin, span.End), whole[span.Begin-base:span.End-base]) {
				t.Errorf("%s: other WAL comes out of timeline %d", p.name, span.Timeline)
			}
		}
	}
	for i, a := range places {
		for k, b := range places {
			r, err := compare(t, names[i], names[k])
			if err != nil || fmt.Sprint(r.Compared) != fmt.Sprint(all) || r.OnlyA != nil || r.OnlyB != nil || r.Difference != nil {
				t.Errorf("%s and %s: %v, %+v", a.name, b.name, err, r)
			}
		}
	}
}

// A byte that differs is found at its LSN, whichever two places are compared, on either timeline, at the first and the last byte too.
func TestDifference(t *testing.T) {
	whole := wholeWAL()
	good := make([]string, len(places))
	for i, p := range places {
		good[i] = p.make(t, whole)
	}
	positions := []protocol.LSN{base + 12345, fork - 1, fork, end - 1}
	if testing.Short() {
		positions = positions[2:]
	}
	for _, at := range positions {
		tli := protocol.Timeline(1)
		if at >= fork {
			tli = 2
		}
		other := bytes.Clone(whole)
		other[at-base] ^= 1
		for k, b := range places {
			bad := b.make(t, other)
			for i, a := range places {
				r, err := compare(t, good[i], bad)
				if at == end-1 && k < 2 { // the last record is no record any more: files end before it
					if err != nil || r.Compared[1].To >= end.String() || len(r.OnlyA) != 1 {
						t.Errorf("%s and %s with a torn end: %v, %+v", a.name, b.name, err, r)
					}
					continue
				}
				if !errors.Is(err, ErrDiffers) || r.Difference == nil || r.Difference.LSN != at.String() || r.Difference.Timeline != tli {
					t.Errorf("%s and %s that differ at %s: %v, %+v", a.name, b.name, at, err, r)
				}
			}
		}
	}
}

// WAL that one place lacks is named, and the rest is compared.
func TestMissing(t *testing.T) {
	whole := wholeWAL()
	gone := Span{1, base + segmentSize, base + 2*segmentSize}
	full := archived(t, whole)
	segment := protocol.SegmentName(1, gone.Begin, segmentSize)
	object := fmt.Sprintf("wal/00000001/%016X-%016X.wal", uint64(gone.Begin), uint64(gone.End))
	for _, c := range []struct {
		place  place
		remove func(name string) string
	}{
		{places[0], func(name string) string { return filepath.Join(name, "pg_wal", segment) }},
		{places[1], func(name string) string { return filepath.Join(name, segment) }},
		{places[3], func(name string) string { return filepath.Join(strings.TrimPrefix(name, "file://"), object) }},
	} {
		name := c.place.make(t, whole)
		must(t, os.Remove(c.remove(name)))
		r, err := compare(t, full, name)
		want := []Range{rangeOf(Span{1, base, gone.Begin}), rangeOf(Span{1, gone.End, fork}), all[1]}
		if err != nil || fmt.Sprint(r.Compared) != fmt.Sprint(want) || fmt.Sprint(r.OnlyA) != fmt.Sprint([]Range{rangeOf(gone)}) || r.OnlyB != nil {
			t.Errorf("%s without %s: %v, %+v", c.place.name, segment, err, r)
		}
	}
	// A node's windows are contiguous: one that is missing is damage.
	node := nodeFiles(t, whole)
	windows, err := filepath.Glob(filepath.Join(node, "spool", "*", fmt.Sprintf("%016X.win", uint64(gone.Begin))))
	must(t, err)
	if len(windows) != 1 {
		t.Fatalf("no window at %s", gone.Begin)
	}
	must(t, os.Remove(windows[0]))
	if r, err := compare(t, full, node); !errors.Is(err, ErrDamaged) {
		t.Errorf("a node without a window: %v, %+v", err, r)
	}
}

// What is damaged where checksums protect it is damage, not other WAL, and never the same.
func TestDamage(t *testing.T) {
	whole := wholeWAL()
	full := serverFiles(t, whole)
	for _, p := range places[2:] {
		pattern := map[string]string{"node's files": "spool/*/*.win", "archive": "wal/*/*.wal"}[p.name]
		name := p.make(t, whole)
		dir := strings.TrimPrefix(name, "file://")
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		must(t, err)
		if len(files) < 4 {
			t.Fatalf("%s: %v", p.name, files)
		}
		for _, path := range files {
			content, err := os.ReadFile(path)
			must(t, err)
			for _, at := range []int{len(content) / 3, len(content) - 300} {
				damaged := bytes.Clone(content)
				damaged[at] ^= 16
				must(t, os.WriteFile(path, damaged, 0o600))
				if r, err := compare(t, full, name); !errors.Is(err, ErrDamaged) || errors.Is(err, ErrDiffers) {
					t.Errorf("%s: byte %d of %s changed: %v, %+v", p.name, at, filepath.Base(path), err, r)
				}
			}
			must(t, os.WriteFile(path, content, 0o600))
		}
		history := map[string]string{"node's files": "history", "archive": "file"}[p.name]
		must(t, os.WriteFile(filepath.Join(dir, history, protocol.HistoryName(2)), []byte("what?\n"), 0o600))
		if r, err := compare(t, full, name); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s with a damaged history: %v, %+v", p.name, err, r)
		}
	}
	must(t, os.WriteFile(filepath.Join(full, "pg_wal", protocol.HistoryName(2)), []byte("what?\n"), 0o600))
	if _, err := open(t, full).Inventory(context.Background()); !errors.Is(err, ErrDamaged) {
		t.Errorf("a server with a damaged history: %v", err)
	}
}

// Files that end early, and files of two clusters in one directory, are errors.
func TestFiles(t *testing.T) {
	whole := wholeWAL()
	dir := receivedFiles(t, whole)
	s := open(t, dir)
	_, err := s.Inventory(context.Background())
	must(t, err)
	cut := filepath.Join(dir, protocol.SegmentName(1, base, segmentSize))
	must(t, os.Truncate(cut, segmentSize/2)) // while it is being compared
	r, err := Compare(context.Background(), open(t, archived(t, whole)), frozen{s}, Options{})
	if err == nil || errors.Is(err, ErrDiffers) {
		t.Errorf("a segment that was cut off meanwhile: %v, %+v", err, r)
	}
	foreign := bytes.Clone(whole[:segmentSize])
	foreign[24]++ // system identifier
	must(t, os.WriteFile(cut, foreign, 0o600))
	if _, err := open(t, dir).Inventory(context.Background()); err == nil || !strings.Contains(err.Error(), "more than one cluster") {
		t.Errorf("two clusters: %v", err)
	}
	if _, err := open(t, t.TempDir()).Inventory(context.Background()); err == nil {
		t.Error("an empty directory")
	}
}

// frozen has the inventory of a moment before.
type frozen struct{ Source }

func (f frozen) Inventory(context.Context) (Inventory, error) {
	d, ok := f.Source.(*walDir)
	if !ok {
		return Inventory{}, errors.New("not a directory")
	}
	return Inventory{SystemID: d.system, Spans: []Span{{1, base, fork}, {2, fork, end}}, Histories: d.histories}, nil
}

// Bounds restrict what is compared; without anything in common nothing is the same.
func TestBounds(t *testing.T) {
	whole := wholeWAL()
	other := bytes.Clone(whole)
	other[fork-base+5000] ^= 1
	a, b := archived(t, whole), nodeFiles(t, other)
	within := func(from, to protocol.LSN) (*Report, error) {
		return Compare(context.Background(), open(t, a), open(t, b), Options{From: from, To: to})
	}
	if r, err := within(base+1000, fork+5000); err != nil || fmt.Sprint(r.Compared) != fmt.Sprint([]Range{rangeOf(Span{1, base + 1000, fork}), rangeOf(Span{2, fork, fork + 5000})}) {
		t.Errorf("up to the difference: %v, %+v", err, r)
	}
	if r, err := within(fork+5001, 0); err != nil || fmt.Sprint(r.Compared) != fmt.Sprint([]Range{rangeOf(Span{2, fork + 5001, end})}) {
		t.Errorf("behind the difference: %v, %+v", err, r)
	}
	if r, err := within(fork+5000, fork+5001); !errors.Is(err, ErrDiffers) {
		t.Errorf("the byte: %v, %+v", err, r)
	}
	if r, err := within(end, 0); !errors.Is(err, ErrNothingInCommon) || r == nil {
		t.Errorf("behind the end: %v, %+v", err, r)
	}
}

// Two clusters, and two timelines of one number that began elsewhere, differ before a byte is compared.
func TestOthers(t *testing.T) {
	a := &fixed{holds: Inventory{SystemID: 1, Spans: []Span{{1, base, fork}}}}
	b := &fixed{holds: Inventory{SystemID: 2, Spans: []Span{{1, base, fork}}}}
	if r, err := Compare(context.Background(), a, b, Options{}); !errors.Is(err, ErrDiffers) || !strings.Contains(r.Difference.What, "system identifier") {
		t.Errorf("two clusters: %v, %+v", err, r)
	}
	b.holds.SystemID = 1
	for _, c := range []struct {
		to     *fixed
		fork   protocol.LSN
		differ bool
	}{{a, fork, false}, {b, fork, false}, {b, fork - 8, true}} {
		c.to.holds.Spans = []Span{{2, fork, end}}
		c.to.holds.Histories = []protocol.History{{Timeline: 2, Entries: []protocol.HistoryEntry{{Timeline: 1, End: c.fork}}}}
		if c.to == a {
			continue
		}
		r, err := Compare(context.Background(), a, b, Options{})
		if errors.Is(err, ErrDiffers) != c.differ || c.differ && (r.Difference.LSN != (fork-8).String() || r.Difference.Timeline != 2) {
			t.Errorf("timeline 2 began at %s and %s: %v, %+v", fork, c.fork, err, r)
		}
	}
	broken := errors.New("it is broken")
	for _, err := range []error{broken, fmt.Errorf("%w: here", ErrDamaged)} {
		b.err = err
		if _, got := Compare(context.Background(), a, b, Options{}); !errors.Is(got, err) || !strings.Contains(got.Error(), "look at fixed") {
			t.Errorf("%v: %v", err, got)
		}
	}
}

// fixed is a source that holds zeros.
type fixed struct {
	holds Inventory
	err   error
}

func (f *fixed) Inventory(context.Context) (Inventory, error) { return f.holds, f.err }

func (f *fixed) Name() string { return "fixed" }

func (f *fixed) Close() error { return nil }

func (f *fixed) Open(_ context.Context, _ protocol.Timeline, from, to protocol.LSN) (Reader, error) {
	return &zeros{left: int(to - from)}, nil
}

type zeros struct{ left int }

func (z *zeros) Close() error { return nil }

// Next implements Reader.
func (z *zeros) Next(context.Context) ([]byte, error) {
	n := min(z.left, 70_001)
	z.left -= n
	return make([]byte, n), nil
}

// The report as text names both places, every range and the difference.
func TestReport(t *testing.T) {
	whole := wholeWAL()
	other := bytes.Clone(whole)
	other[fork-base+5000] ^= 1
	a, b := archived(t, whole), nodeFiles(t, other)
	r, err := compare(t, a, b)
	if !errors.Is(err, ErrDiffers) {
		t.Fatal(err)
	}
	var out strings.Builder
	must(t, r.Write(&out))
	for _, want := range []string{
		"A  " + a + ", system " + systemID.String(), "B  " + b + ", system ", "holds timeline 2, " + fork.String() + " to " + end.String() + " (1.1 MiB)",
		"the same: timeline 1, " + base.String() + " to " + fork.String() + " (2.0 MiB)", "the same: timeline 2, " + fork.String() + " to " + (fork + 5000).String() + " (5000 bytes)",
		"DIFFERENT: timeline 2 differs at " + (fork + 5000).String() + ": 0x",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
}

// What is no place is refused before anything is read, without the secrets of a connection string.
func TestOpen(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(plain, nil, 0o600))
	for _, name := range []string{plain, plain + "/none", "nonsense", "gs://bucket/x", "s3://b"} {
		if s, err := Open(name); err == nil {
			t.Errorf("%s is taken for %s", name, s.Name())
		}
	}
	for name, shown := range map[string]string{
		"host=h port=1 user=u password=secret": "h", "postgres://u:secret@h:1/": "h", "file:///some/where": "file:///some/where", t.TempDir(): "",
	} {
		s := open(t, name)
		if !strings.Contains(s.Name(), shown) || strings.Contains(s.Name(), "secret") {
			t.Errorf("%s is called %s", name, s.Name())
		}
	}
}
