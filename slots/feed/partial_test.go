package feed

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"walproxy/protocol"
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
