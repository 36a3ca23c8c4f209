package feed

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/recompress"
	"walproxy/slots/spool"
)

// TestPartOfAChunk: while the second part of a chunk waits for room, the first is there for consumers up to the spool's very end.
func TestPartOfAChunk(t *testing.T) {
	log, err := spool.Open(t.TempDir(), spool.Options{ResetDistance: 1 << 20, NoSync: true, CapBytes: 150_000})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	if err := log.SetIdentity(protocol.Identity{SystemID: 42, SegmentSize: segment, WALBlockSize: 8192, ServerVersion: "15.1"}); err != nil {
		t.Fatal(err)
	}
	const start, first = protocol.LSN(3*segment - 100_000), 100_000
	wal := fakeWAL(seeded(t), first+100_000)
	stop := errors.New("enough")
	f := &testFeed{t: t}
	f.Feed, err = New(log, Options{
		Recompress: recompress.Options{Codec: recompress.None, ResetDistance: 1 << 20}, TailBytes: 256 << 10,
		MakeRoom: func(context.Context, error) error {
			if _, end := f.Position(); end != log.State().End || end != start+first {
				t.Errorf("consumers can read up to %s, and the spool ends at %s", end, log.State().End)
			}
			got, err := f.read(1, start, first)
			if err != nil || !bytes.Equal(got, wal[:first]) {
				t.Errorf("%d bytes were read: %v", len(got), err)
			}
			return stop
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.WAL(t.Context(), 1, start, wal); !errors.Is(err, stop) {
		t.Fatalf("it did not wait for room: %v", err)
	}
}

// TestFrameAfterALostWait: a frame for which there was no room, and whose link was lost while it waited, is taken in when it comes again.
func TestFrameAfterALostWait(t *testing.T) {
	rnd := seeded(t)
	a := openTest(t, t.TempDir())
	const start = protocol.LSN(5 * segment)
	wal := fakeWAL(rnd, 3<<20)
	a.write(rnd, 1, start, wal)
	for _, windowCap := range []int64{100_000, 500_000, 1_200_000} { // within the first window, the first one or two, the last one
		log, err := spool.Open(t.TempDir(), spool.Options{ResetDistance: 1 << 20, NoSync: true, CapBytes: windowCap})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = log.Close() }()
		identity, _ := a.log.Identity()
		if err := log.SetIdentity(identity); err != nil {
			t.Fatal(err)
		}
		lost, waits := errors.New("link lost"), 0
		b := &testFeed{t: t}
		b.Feed, err = New(log, Options{Recompress: a.opt.Recompress, TailBytes: testTail, MakeRoom: func(context.Context, error) error {
			if waits++; waits <= 3 {
				return lost
			}
			return errors.New("no room")
		}})
		if err != nil {
			t.Fatal(err)
		}
		at := start
		for waits < 3 {
			hello := b.Hello()
			if _, end := b.Position(); end != 0 {
				at = end
			}
			r, err := a.OpenFrames(1, at)
			if err == nil {
				err = r.Begin(hello)
			}
			for err == nil {
				var fr *link.Frame
				if fr, err = r.Next(t.Context()); err == nil {
					err = b.Frame(t.Context(), fr)
				}
			}
			if !errors.Is(err, lost) {
				t.Fatalf("cap of %d bytes, after %d waits: %v", windowCap, waits, err)
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}
