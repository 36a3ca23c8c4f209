package spool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"go.uber.org/goleak"

	"walproxy/protocol"
	"walproxy/protocol/link"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const distance = link.MinResetDistance

var identity = protocol.Identity{SystemID: 7301234567890123457, SegmentSize: 16 << 20, WALBlockSize: 8192, ServerVersion: "15.18",
	Settings: map[string]string{"wal_level": "replica"}}

// raw returns a sealed raw frame with reproducible WAL.
func raw(tli protocol.Timeline, start protocol.LSN, length int) *link.Frame {
	rng := rand.New(rand.NewPCG(uint64(tli), uint64(start)))
	wal := make([]byte, length)
	for i := range wal {
		wal[i] = byte(rng.Uint32())
	}
	f := &link.Frame{Timeline: tli, Start: start, RawLen: uint32(length), RawSum: link.Checksum(wal), Payload: wal}
	f.Seal()
	return f
}

// coded returns a sealed frame that starts (stream 0) or continues a stream; its payload is not decodable.
func coded(tli protocol.Timeline, start protocol.LSN, length int, stream uint32) *link.Frame {
	f := raw(tli, start, length)
	f.Codec, f.Payload = link.CodecZstd, f.Payload[:length/2]
	f.Starts, f.Continues, f.Stream = stream == 0, stream != 0, stream
	f.Seal()
	return f
}

func openLog(t testing.TB, dir string, options Options) *Log {
	t.Helper()
	if options.ResetDistance == 0 {
		options.ResetDistance = distance
	}
	l, err := Open(dir, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	if err := l.SetIdentity(identity); err != nil {
		t.Fatal(err)
	}
	return l
}

func mustAppend(t testing.TB, l *Log, f *link.Frame) *link.Frame {
	t.Helper()
	if err := l.Append(f); err != nil {
		t.Fatal(err)
	}
	return f
}

func sameFrame(got, want *link.Frame) error {
	payload := bytes.Equal(got.Payload, want.Payload)
	g, w := *got, *want
	g.Payload, w.Payload = nil, nil
	if !payload || fmt.Sprint(g) != fmt.Sprint(w) {
		return fmt.Errorf("got frame %+v, want %+v; payload equal: %v", g, w, payload)
	}
	return nil
}

// expect reads the given frames from r.
func expect(t testing.TB, r *Reader, frames ...*link.Frame) {
	t.Helper()
	for _, want := range frames {
		got, err := r.Next(t.Context())
		if err != nil {
			t.Fatalf("read frame at %s: %v", want.Start, err)
		}
		if err := sameFrame(got, want); err != nil {
			t.Fatal(err)
		}
	}
}

// expectTail checks that nothing is there to read.
func expectTail(t testing.TB, r *Reader) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if f, err := r.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("at the end: got frame %v, error %v", f, err)
	}
}

func openReader(t testing.TB, l *Log, tli protocol.Timeline, lsn protocol.LSN) *Reader {
	t.Helper()
	r, err := l.OpenReader(tli, lsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func endFrame(t testing.TB, tli protocol.Timeline, end protocol.LSN, next protocol.Timeline) *link.Frame {
	t.Helper()
	f, err := link.NewTimelineEnd(tli, end, next, fmt.Appendf(nil, "%d\t%s\tno recovery target specified\n", tli, end))
	if err != nil {
		t.Fatal(err)
	}
	return &f
}

func TestAppendSyncReopenRead(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir, Options{})
	a := mustAppend(t, l, coded(1, 0x5000028, 1000, 0))
	b := mustAppend(t, l, coded(1, a.End(), 2000, a.Sum))
	c := mustAppend(t, l, raw(1, b.End(), distance-3000-0x28))
	d := mustAppend(t, l, coded(1, c.End(), 500, 0)) // the next window
	if s := l.State(); s.Begin != a.Start || s.End != d.End() || s.Flushed != c.End() || s.Stream != d.Sum {
		t.Fatalf("state before Sync: %+v", s)
	}
	if err := l.Sync(); err != nil {
		t.Fatal(err)
	}
	before := l.State()
	if before.Flushed != d.End() {
		t.Fatalf("state after Sync: %+v", before)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = openLog(t, dir, Options{})
	if got := l.State(); got != before {
		t.Fatalf("state after reopening: %+v, before %+v", got, before)
	}
	e := mustAppend(t, l, coded(1, d.End(), 100, d.Sum))
	expect(t, openReader(t, l, 1, a.Start), a, b, c, d, e)
	expect(t, openReader(t, l, 1, b.Start+5), a, b, c)
	expect(t, openReader(t, l, 1, b.End()), c, d)
	expect(t, openReader(t, l, 1, e.Start), d, e)
	r := openReader(t, l, 1, e.End())
	expectTail(t, r)
	f := mustAppend(t, l, coded(1, e.End(), 100, d.Sum))
	expect(t, r, d, e, f)
	expectTail(t, r)
}

func TestTimelineEnd(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir, Options{})
	a := mustAppend(t, l, raw(1, 0x3000000, 8192))
	end := mustAppend(t, l, endFrame(t, 1, 0x3001000, 3)) // below the end: what was sent beyond belongs to nobody
	if s := l.State(); s.Timeline != 3 || s.End != 0x3001000 || s.Stream != 0 {
		t.Fatalf("state: %+v", s)
	}
	if _, ok := l.History(3); !ok {
		t.Fatal("the history was not stored")
	}
	next := openReader(t, l, 3, 0x3001000)
	expectTail(t, next)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = openLog(t, dir, Options{})
	next = openReader(t, l, 3, 0x3001000)
	if s := l.State(); s.Timeline != 3 || s.End != 0x3001000 || s.Flushed != 0x3001000 {
		t.Fatalf("state after reopening: %+v", s)
	}
	b := mustAppend(t, l, raw(3, 0x3001000, 4096))
	expect(t, next, b)
	r := openReader(t, l, 1, 0x3000500)
	expect(t, r, a, end)
	if _, err := r.Next(t.Context()); !errors.Is(err, io.EOF) {
		t.Fatalf("behind the end of the timeline: %v", err)
	}
	want := []TimelineSpan{{1, 0x3000000, 0x3001000, 3}, {3, 0x3001000, 0x3002000, 0}}
	if got := l.Timelines(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("timelines: %v, want %v", got, want)
	}
}
