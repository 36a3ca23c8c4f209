package archive_test

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"testing"

	"walproxy/archive"
	"walproxy/archive/file"
	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/recompress"
)

const (
	distance = 1 << 20
	segment  = 2 << 20
)

var identity = archive.Identity{SystemID: 7300000000000000001, Major: 15, SegmentSize: segment, WALBlockSize: 8192}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wal returns what the test's cluster has on a timeline in a range: the same for every call, somewhat compressible.
func wal(tli protocol.Timeline, from, to protocol.LSN) []byte {
	b := make([]byte, 0, to-from)
	for lsn := from; lsn < to; lsn++ {
		block := uint64(lsn) / 16
		b = append(b, byte(block*0x9e3779b97f4a7c15>>40)&0x3f+byte(tli))
	}
	return b
}

// window returns a sealed window of WAL that may be any, with the end of its timeline at end if that is not 0.
func window(t testing.TB, tli protocol.Timeline, start protocol.LSN, raw []byte, codec recompress.Codec, end protocol.LSN) []byte {
	t.Helper()
	sealer, err := recompress.NewSealer(recompress.Options{Codec: codec})
	must(t, err)
	h := link.WindowHeader{Kind: link.WindowLive, SystemID: identity.SystemID, Timeline: tli, SegmentSize: segment,
		WALBlockSize: 8192, ResetDistance: distance, Start: start}
	out, _, err := sealer.Seal(nil, h, frames(t, tli, start, raw, end))
	must(t, err)
	return out
}

func frames(t testing.TB, tli protocol.Timeline, start protocol.LSN, raw []byte, end protocol.LSN) iter.Seq2[*link.Frame, error] {
	return func(yield func(*link.Frame, error) bool) {
		f := link.Frame{Timeline: tli, Start: start, RawLen: uint32(len(raw)), RawSum: link.Checksum(raw), Payload: raw}
		f.Seal()
		if !yield(&f, nil) || end == 0 {
			return
		}
		f, err := link.NewTimelineEnd(tli, end, tli+1, history(tli+1, end))
		must(t, err)
		yield(&f, nil)
	}
}

// history returns the history file of a timeline that forked off the one before it at lsn, with all older forks at 0/100000 n.
func history(tli protocol.Timeline, lsn protocol.LSN) (content []byte) {
	for parent := protocol.Timeline(1); parent < tli-1; parent++ {
		content = fmt.Appendf(content, "%d\t%s\tno reason\n", parent, protocol.LSN(parent)<<20)
	}
	return fmt.Appendf(content, "%d\t%s\tno recovery target specified\n", tli-1, lsn)
}

// object returns the object of a range of a timeline's WAL.
func object(t testing.TB, tli protocol.Timeline, from, to protocol.LSN, codec recompress.Codec) *archive.Object {
	t.Helper()
	var b archive.Builder
	t.Cleanup(func() { must(t, b.Close()) })
	b.Begin(identity)
	for lsn := from; lsn < to; {
		end := min(lsn.Next(distance), to)
		must(t, b.Add(window(t, tli, lsn, wal(tli, lsn, end), codec, 0)))
		lsn = end
	}
	o, err := b.Finish()
	must(t, err)
	return o
}

// create returns a new archive in a directory.
func create(t testing.TB) *archive.Archive {
	t.Helper()
	a, err := archive.Create(context.Background(), file.New(t.TempDir()), identity)
	must(t, err)
	return a
}

// put stores ranges of WAL.
func put(t testing.TB, a *archive.Archive, tli protocol.Timeline, ranges ...protocol.LSN) {
	t.Helper()
	for i := 0; i < len(ranges); i += 2 {
		if existed, err := a.Put(context.Background(), object(t, tli, ranges[i], ranges[i+1], recompress.Zstd)); err != nil || existed {
			t.Fatalf("put %s to %s: existed %v, %v", ranges[i], ranges[i+1], existed, err)
		}
	}
}

// putHistory stores the history of a timeline.
func putHistory(t testing.TB, a *archive.Archive, tli protocol.Timeline, fork protocol.LSN) {
	t.Helper()
	content := history(tli, fork)
	_, err := a.PutFile(context.Background(), archive.File{Name: protocol.HistoryName(tli), Content: bytes.NewReader(content), Bytes: int64(len(content))})
	must(t, err)
}

// read returns what a reader hands out, and how it ended.
func read(r *archive.Reader, tli protocol.Timeline, from, to protocol.LSN) ([]byte, error) {
	var got []byte
	err := r.Read(context.Background(), tli, from, to, func(lsn protocol.LSN, wal []byte) error {
		if lsn != from+protocol.LSN(len(got)) {
			return fmt.Errorf("WAL at %s, want it from %s on", lsn, from+protocol.LSN(len(got)))
		}
		got = append(got, wal...)
		return nil
	})
	return got, err
}

// same fails unless a reader hands out the WAL of the timeline and range.
func same(t testing.TB, r *archive.Reader, tli protocol.Timeline, from, to protocol.LSN, want []byte) {
	t.Helper()
	got, err := read(r, tli, from, to)
	if err != nil {
		t.Fatalf("read %s to %s on timeline %d: %v", from, to, tli, err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("read %s to %s on timeline %d: %d bytes, or others", from, to, tli, len(got))
	}
}

// random returns a source of random choices, whose seed is logged.
func random(t testing.TB) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}
