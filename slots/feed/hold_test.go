package feed

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"walproxy/protocol"
	"walproxy/protocol/wal/waltest"
	"walproxy/recompress"
	"walproxy/slots/spool"
)

const hold = 5 * time.Millisecond

// holding runs test in a bubble with a feed that holds incomplete records back, and WAL whose first chunk ends within a record.
func holding(t *testing.T, test func(t *testing.T, f *Feed, s waltest.Sample, chunk int)) {
	s := waltest.Named(t, "oltp")
	synctest.Test(t, func(t *testing.T) {
		log, err := spool.Open(t.TempDir(), spool.Options{ResetDistance: 1 << 20, NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = log.Close() }()
		if err := log.SetIdentity(protocol.Identity{SystemID: 42, SegmentSize: segment, WALBlockSize: 8192, ServerVersion: "15.1"}); err != nil {
			t.Fatal(err)
		}
		f, err := New(log, Options{Recompress: recompress.Options{ResetDistance: 1 << 20}, TailBytes: testTail, Hold: hold})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		ended := make(chan error, 1)
		go func() { ended <- f.Hold(ctx) }()
		test(t, f, s, 2*8192)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func (f *Feed) mustTake(t *testing.T, start protocol.LSN, wal []byte) {
	t.Helper()
	if err := f.WAL(t.Context(), 1, start, wal); err != nil {
		t.Fatal(err)
	}
}

// TestHoldEnds: what is complete is there at once, the rest when its time is over and no earlier.
func TestHoldEnds(t *testing.T) {
	holding(t, func(t *testing.T, f *Feed, s waltest.Sample, chunk int) {
		f.mustTake(t, s.Start, s.WAL[:chunk])
		end := s.Start + protocol.LSN(chunk)
		_, at := f.Position()
		if at >= end || at < end-8192 {
			t.Fatalf("position %s with WAL up to %s", at, end)
		}
		if err := f.equalTo(t, s, at); err != nil {
			t.Fatal(err)
		}
		time.Sleep(hold - 1)
		synctest.Wait()
		if _, now := f.Position(); now != at {
			t.Fatalf("position %s too early", now)
		}
		time.Sleep(1 * time.Nanosecond)
		synctest.Wait()
		if _, now := f.Position(); now != end {
			t.Fatalf("position %s after %s, want %s", now, hold, end)
		}
		if err := f.equalTo(t, s, end); err != nil {
			t.Fatal(err)
		}
	})
}

// equalTo compares all WAL up to end with the sample.
func (f *Feed) equalTo(t *testing.T, s waltest.Sample, end protocol.LSN) error {
	return f.Compare(t.Context(), 1, s.Start, s.WAL[:end-s.Start])
}

// TestHoldIsRenewed: each chunk brings the rest of the last record and has its own time.
func TestHoldIsRenewed(t *testing.T) {
	holding(t, func(t *testing.T, f *Feed, s waltest.Sample, chunk int) {
		for at := 0; at+chunk <= len(s.WAL); at += chunk {
			f.mustTake(t, s.Start+protocol.LSN(at), s.WAL[at:at+chunk])
			time.Sleep(hold - time.Millisecond)
			synctest.Wait()
			if _, now := f.Position(); at > 0 && now < s.Start+protocol.LSN(at) {
				t.Fatalf("position %s, though WAL came up to %s", now, s.Start+protocol.LSN(at+chunk))
			}
		}
	})
}

// TestResumeTakesNothingAway: whoever asks where the WAL goes on while it flows, as a second connection to the upstream does, leaves
// what is kept back alone.
func TestResumeTakesNothingAway(t *testing.T) {
	holding(t, func(t *testing.T, f *Feed, s waltest.Sample, chunk int) {
		f.mustTake(t, s.Start, s.WAL[:chunk])
		if tli, at := f.Resume(); tli != 1 || at >= s.Start+protocol.LSN(chunk) {
			t.Fatalf("resume at %s on timeline %d", at, tli)
		}
		f.mustTake(t, s.Start+protocol.LSN(chunk), s.WAL[chunk:2*chunk])
		if err := f.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := f.equalTo(t, s, s.Start+protocol.LSN(2*chunk)); err != nil {
			t.Fatal(err)
		}
		if _, now := f.Position(); now != s.Start+protocol.LSN(2*chunk) {
			t.Fatalf("position %s", now)
		}
	})
}

// TestHoldIsCutShort: a question for the position and the end of the timeline do not wait for the time.
func TestHoldIsCutShort(t *testing.T) {
	holding(t, func(t *testing.T, f *Feed, s waltest.Sample, chunk int) {
		end := s.Start + protocol.LSN(2*chunk)
		f.mustTake(t, s.Start, s.WAL[:2*chunk])
		if err := f.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, now := f.Position(); now != end {
			t.Fatalf("position %s after a question, want %s", now, end)
		}
		last := end + protocol.LSN(chunk)
		f.mustTake(t, end, s.WAL[2*chunk:3*chunk])
		if err := f.EndTimeline(t.Context(), 1, last, 2, []byte("1\t"+last.String()+"\tno recovery target specified\n")); err != nil {
			t.Fatal(err)
		}
		if tli, now := f.Position(); tli != 2 || now != last {
			t.Fatalf("position %s on timeline %d, want %s on 2", now, tli, last)
		}
		if err := f.equalTo(t, s, last); err != nil {
			t.Fatal(err)
		}
	})
}
