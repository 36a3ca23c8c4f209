package pgcluster_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"walproxy/integration/pgcluster"
	"walproxy/protocol"
)

// firstSegment is where the WAL of a new cluster with segments of 16 MiB or less is certain to be complete: initdb
// leaves the very first segment out.
const firstSegment = protocol.LSN(16 << 20)

func compare(t *testing.T, a, b *pgcluster.Cluster, timeline protocol.Timeline, from, to protocol.LSN) {
	t.Helper()
	if err := pgcluster.CompareWAL(a.WAL(), b.WAL(), timeline, from, to); err != nil {
		t.Fatal(err)
	}
}

const testSegment = 1 << 20

// writeSegments makes a directory with segments of 1 MiB from 0/FFF00000 on, the last one of them .partial.
func writeSegments(t *testing.T, wal []byte) pgcluster.Source {
	t.Helper()
	dir := t.TempDir()
	names := []string{"000000070000000000000FFF", "000000070000000100000000", "000000070000000100000001.partial"}
	for i, name := range names {
		end := min(len(wal), (i+1)*testSegment)
		must(t, os.WriteFile(filepath.Join(dir, name), wal[i*testSegment:end], 0o600))
	}
	return pgcluster.Source{Dir: dir, SegmentBytes: testSegment}
}

func testWAL() []byte {
	wal := make([]byte, 3*testSegment)
	for i := range wal {
		wal[i] = byte(i>>12) ^ byte(i)
	}
	return wal
}

func TestReadWAL(t *testing.T) {
	wal := testWAL()
	source := writeSegments(t, wal)
	start := protocol.LSN(0xFFF00000)
	got, err := pgcluster.ReadWAL(source, 7, start+5, start+protocol.LSN(len(wal))-3)
	must(t, err)
	if !bytes.Equal(got, wal[5:len(wal)-3]) {
		t.Fatal("not the bytes of the segments")
	}
}

func TestReadWALMissing(t *testing.T) {
	wal := testWAL()
	start := protocol.LSN(0xFFF00000)
	source := writeSegments(t, wal[:len(wal)-10])
	for _, test := range []struct {
		name     string
		timeline protocol.Timeline
		from, to protocol.LSN
		missing  protocol.LSN
	}{
		{"other timeline", 8, start, start + 1, start},
		{"segment before", 7, start - 1, start + 1, start - 1},
		{"segment after", 7, start + 100, start + 4*testSegment, start + 3*testSegment - 10},
		{"short segment", 7, start + 100, start + 3*testSegment - 9, start + 3*testSegment - 10},
	} {
		_, err := pgcluster.ReadWAL(source, test.timeline, test.from, test.to)
		var missing *pgcluster.MissingError
		if !errors.As(err, &missing) || missing.LSN != test.missing || missing.Timeline != test.timeline {
			t.Errorf("%s: error %v, want missing at %s", test.name, err, test.missing)
		}
	}
}

func TestCompareWAL(t *testing.T) {
	wal := testWAL()
	a, start := writeSegments(t, wal), protocol.LSN(0xFFF00000)
	end := start + protocol.LSN(len(wal))
	must(t, pgcluster.CompareWAL(a, writeSegments(t, wal), 7, start, end))
	for _, at := range []int{0, 1, testSegment - 1, testSegment, 2*testSegment + 12345, 3*testSegment - 1} {
		other := bytes.Clone(wal)
		other[at] ^= 0x40
		b := writeSegments(t, other)
		err := pgcluster.CompareWAL(a, b, 7, start, end)
		var diff *pgcluster.DiffError
		if !errors.As(err, &diff) || diff.LSN != start+protocol.LSN(at) || diff.ByteA != wal[at] || diff.ByteB != other[at] {
			t.Errorf("error %v, want a difference at %s", err, start+protocol.LSN(at))
		}
		must(t, pgcluster.CompareWAL(a, b, 7, start, start+protocol.LSN(at)))
		must(t, pgcluster.CompareWAL(a, b, 7, start+protocol.LSN(at)+1, end))
	}
}

func TestAwaitWAL(t *testing.T) {
	wal := testWAL()
	start := protocol.LSN(0xFFF00000)
	end := start + protocol.LSN(len(wal))
	half := bytes.Clone(wal)
	clear(half[len(half)/2:])
	a, b := writeSegments(t, wal), writeSegments(t, half)

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err := pgcluster.AwaitWAL(ctx, a, b, 7, start, end)
	var diff *pgcluster.DiffError
	if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &diff) || diff.LSN < start+protocol.LSN(len(wal)/2) {
		t.Fatalf("error %v, want the deadline and the place where the zeros begin", err)
	}

	done := make(chan error, 1)
	go func() { done <- pgcluster.AwaitWAL(t.Context(), a, b, 7, start, end) }()
	for _, name := range []string{"000000070000000100000000", "000000070000000100000001.partial"} {
		text, err := os.ReadFile(filepath.Join(a.Dir, name))
		must(t, err)
		must(t, os.WriteFile(filepath.Join(b.Dir, name), text, 0o600))
	}
	must(t, <-done)

	half[5] ^= 1
	if err := pgcluster.AwaitWAL(t.Context(), a, writeSegments(t, half), 7, start, end); !errors.As(err, &diff) || diff.LSN != start+5 {
		t.Fatalf("error %v, want a difference at %s", err, start+5)
	}
}
