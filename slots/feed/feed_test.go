package feed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/recompress"
	"walproxy/slots/spool"
)

const (
	segment  = 1 << 20
	testTail = 64 << 10
)

// testFeed is a feed over a spool in a temporary directory.
type testFeed struct {
	*Feed
	t   testing.TB
	dir string
}

func openTest(t testing.TB, dir string) *testFeed {
	t.Helper()
	log, err := spool.Open(dir, spool.Options{ResetDistance: 1 << 20, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	if _, known := log.Identity(); !known {
		if err := log.SetIdentity(protocol.Identity{SystemID: 42, SegmentSize: segment, WALBlockSize: 8192, ServerVersion: "15.1"}); err != nil {
			t.Fatal(err)
		}
	}
	f, err := New(log, Options{Recompress: recompress.Options{Codec: recompress.Zstd, ResetDistance: 1 << 20}, TailBytes: testTail})
	if err != nil {
		t.Fatal(err)
	}
	return &testFeed{Feed: f, t: t, dir: dir}
}

func (f *testFeed) reopen() *testFeed {
	f.t.Helper()
	if err := f.log.Close(); err != nil {
		f.t.Fatal(err)
	}
	return openTest(f.t, f.dir)
}

// fakeWAL returns bytes that compress about as well as WAL does.
func fakeWAL(rnd *rand.Rand, n int) []byte {
	wal := make([]byte, n)
	for i := 0; i < n; {
		run := min(n-i, 8+rnd.IntN(40))
		if rnd.IntN(3) == 0 || i < 100 {
			for j := range run {
				wal[i+j] = byte(rnd.Uint32())
			}
		} else {
			copy(wal[i:i+run], wal[rnd.IntN(i-50):])
		}
		i += run
	}
	return wal
}

// write gives wal to the feed in random chunks.
func (f *testFeed) write(rnd *rand.Rand, tli protocol.Timeline, start protocol.LSN, wal []byte) {
	f.t.Helper()
	for at := 0; at < len(wal); {
		n := min(len(wal)-at, 1+rnd.IntN(100_000))
		if err := f.WAL(f.t.Context(), tli, start+protocol.LSN(at), wal[at:at+n]); err != nil {
			f.t.Fatal(err)
		}
		at += n
	}
}

// read reads WAL from start until want bytes are there, or until the timeline ends.
func (f *testFeed) read(tli protocol.Timeline, start protocol.LSN, want int) ([]byte, error) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), 20*time.Second)
	defer cancel()
	r, err := f.OpenWAL(tli, start)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	var out []byte
	for len(out) < want {
		lsn, wal, err := r.Next(ctx, 128<<10)
		if err != nil {
			return out, err
		}
		if lsn != start+protocol.LSN(len(out)) {
			return out, fmt.Errorf("WAL at %s, expected %s", lsn, start+protocol.LSN(len(out)))
		}
		out = append(out, wal...)
	}
	return out, nil
}

func seeded(t testing.TB) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 7))
}

func TestReadFromAnywhere(t *testing.T) {
	rnd := seeded(t)
	f := openTest(t, t.TempDir())
	start, wal := protocol.LSN(5*segment+12345), fakeWAL(rnd, 3<<20)
	f.write(rnd, 1, start, wal[:2<<20])
	f = f.reopen() // a second stream within the window
	f.write(rnd, 1, start+2<<20, wal[2<<20:])
	for range 15 {
		at := rnd.IntN(len(wal))
		got, err := f.read(1, start+protocol.LSN(at), len(wal)-at)
		if err != nil || !bytes.Equal(got, wal[at:]) {
			t.Fatalf("read from byte %d: %v, equal %v", at, err, bytes.Equal(got, wal[at:]))
		}
	}
	_, err := f.read(1, start+protocol.LSN(len(wal))+1, 1)
	wantCode(t, err, protocol.CodeInternalError)
	_, err = f.read(1, start-1, 1)
	wantCode(t, err, protocol.CodeUndefinedFile)
	_, err = f.read(9, start, 1)
	wantCode(t, err, protocol.CodeInternalError)
}

func wantCode(t *testing.T, err error, code string) {
	t.Helper()
	var pg *protocol.Error
	if !errors.As(err, &pg) || pg.Code != code {
		t.Fatalf("got error %v, want SQLSTATE %s", err, code)
	}
}

func TestReadersFollowTheWriter(t *testing.T) {
	rnd := seeded(t)
	f := openTest(t, t.TempDir())
	start, wal := protocol.LSN(3*segment), fakeWAL(rnd, 4<<20)
	f.write(rnd, 1, start, wal[:1])
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			got, err := f.read(1, start, len(wal))
			if err != nil || !bytes.Equal(got, wal) {
				t.Errorf("reader: %v, equal %v", err, bytes.Equal(got, wal))
			}
		})
	}
	f.write(rnd, 1, start+1, wal[1:])
	wg.Wait()
}

// A reader gets less than it asks for only where there is no more: not where a frame, the tail or an ancestor ends.
func TestChunksAreWhole(t *testing.T) {
	rnd := seeded(t)
	f := openTest(t, t.TempDir())
	start, wal := protocol.LSN(3*segment+777), fakeWAL(rnd, 1<<20)
	fork := start + 300_000
	f.write(rnd, 1, start, wal[:300_000])
	if err := f.EndTimeline(t.Context(), 1, fork, 2, []byte(fmt.Sprintf("1\t%s\tpromoted\n", fork))); err != nil {
		t.Fatal(err)
	}
	f.write(rnd, 2, fork, wal[300_000:])
	r, err := f.OpenWAL(2, start)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	for left := len(wal); left > 0; {
		limit := 1 + rnd.IntN(128<<10)
		_, chunk, err := r.Next(t.Context(), limit)
		if err != nil {
			t.Fatal(err)
		}
		if len(chunk) != min(limit, left) {
			t.Fatalf("asked for %d of %d bytes, got %d", limit, left, len(chunk))
		}
		left -= len(chunk)
	}
}

func TestTimelineSwitch(t *testing.T) {
	rnd := seeded(t)
	f := openTest(t, t.TempDir())
	start := protocol.LSN(4 * segment)
	fork := start + segment/2 + 100
	parent, child := fakeWAL(rnd, segment), fakeWAL(rnd, segment)
	f.write(rnd, 1, start, parent) // beyond the fork, before it is known
	history := []byte(fmt.Sprintf("1\t%s\tno recovery target specified\n", fork))
	if err := f.EndTimeline(t.Context(), 1, fork, 2, history); err != nil {
		t.Fatal(err)
	}
	check := func(f *testFeed) {
		t.Helper()
		got, err := f.read(1, start, 1<<30)
		var end *protocol.TimelineEndError
		if !errors.As(err, &end) || end.Next != 2 || end.At != fork || !bytes.Equal(got, parent[:fork-start]) {
			t.Fatalf("parent: %d bytes, %v", len(got), err)
		}
		want := append(bytes.Clone(parent[:fork-start]), child...)
		got, err = f.read(2, start, len(want))
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("child from its segment's start: %v, equal %v", err, bytes.Equal(got, want))
		}
		_, err = f.read(2, start-1, 1)
		wantCode(t, err, protocol.CodeUndefinedFile)
	}
	if tli, lsn := f.Position(); tli != 2 || lsn != fork {
		t.Fatalf("position is %s on timeline %d", lsn, tli)
	}
	f.write(rnd, 2, fork, child)
	check(f)
	check(f.reopen())
}

func TestCompare(t *testing.T) {
	rnd := seeded(t)
	f := openTest(t, t.TempDir())
	start, wal := protocol.LSN(3*segment), fakeWAL(rnd, 1<<20)
	f.write(rnd, 1, start, wal)
	for range 20 {
		at := rnd.IntN(len(wal) - 1000)
		again := bytes.Clone(wal[at : at+1000])
		if err := f.Compare(t.Context(), 1, start+protocol.LSN(at), again); err != nil {
			t.Fatal(err)
		}
		bad := rnd.IntN(1000)
		again[bad] ^= 1
		err := f.Compare(t.Context(), 1, start+protocol.LSN(at), again)
		var diverged *DivergedError
		if !errors.As(err, &diverged) || diverged.LSN != start+protocol.LSN(at+bad) {
			t.Fatalf("byte %d differs, got %v", at+bad, err)
		}
	}
	if err := f.Compare(t.Context(), 1, start+protocol.LSN(len(wal)), []byte("new")); err != nil {
		t.Fatalf("bytes that are not held: %v", err)
	}
}

// relay moves frames from a to b until b has n bytes or the timeline ends.
func relay(t *testing.T, a, b *testFeed, tli protocol.Timeline, start protocol.LSN, until protocol.LSN) {
	t.Helper()
	if btli, lsn := b.Position(); btli == tli {
		start = lsn
	}
	hello := b.Hello()
	r, err := a.OpenFrames(tli, start)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Begin(hello); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		if btli, lsn := b.Position(); btli != 0 && (btli != tli || lsn >= until) {
			return
		}
		fr, err := r.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Frame(ctx, fr); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFramesResumeAnywhere(t *testing.T) {
	rnd := seeded(t)
	a, b := openTest(t, t.TempDir()), openTest(t, t.TempDir())
	start, wal := protocol.LSN(5*segment+5000), fakeWAL(rnd, 3<<20)
	sent := 0
	for sent < len(wal) {
		n := min(len(wal)-sent, 1+rnd.IntN(300_000))
		a.write(rnd, 1, start+protocol.LSN(sent), wal[sent:sent+n])
		sent += n
		relay(t, a, b, 1, start, start+protocol.LSN(sent))
		switch rnd.IntN(4) {
		case 0:
			a = a.reopen()
		case 1:
			b = b.reopen()
		}
	}
	got, err := b.read(1, start, len(wal))
	if err != nil || !bytes.Equal(got, wal) {
		t.Fatalf("behind the link: %v, equal %v", err, bytes.Equal(got, wal))
	}
}

// A node whose position lies inside a frame of the other node, and whose stream the other does not know, gets raw frames up
// to the next stream, and never a frame that it cannot decode.
func TestFramesForAStranger(t *testing.T) {
	rnd := seeded(t)
	a, b := openTest(t, t.TempDir()), openTest(t, t.TempDir())
	start, wal := protocol.LSN(5*segment), fakeWAL(rnd, 3<<20)
	cut := 1 + rnd.IntN(2<<20)
	b.write(rnd, 1, start, wal[:cut])
	a.write(rnd, 1, start, wal)
	relay(t, a, b, 1, start, start+protocol.LSN(len(wal)))
	got, err := b.read(1, start, len(wal))
	if err != nil || !bytes.Equal(got, wal) {
		t.Fatalf("behind the link: %v, equal %v", err, bytes.Equal(got, wal))
	}
}

func TestFramesOverASwitch(t *testing.T) {
	rnd := seeded(t)
	a := openTest(t, t.TempDir())
	start := protocol.LSN(4 * segment)
	fork := start + segment/2 + 100
	parent, child := fakeWAL(rnd, segment), fakeWAL(rnd, 2*segment)
	a.write(rnd, 1, start, parent)
	if err := a.EndTimeline(t.Context(), 1, fork, 2, []byte(fmt.Sprintf("1\t%s\tpromoted\n", fork))); err != nil {
		t.Fatal(err)
	}
	a.write(rnd, 2, fork, child)
	end := fork + protocol.LSN(len(child))
	follower, fresh := openTest(t, t.TempDir()), openTest(t, t.TempDir())
	relay(t, a, follower, 1, start, end) // ends with the timeline
	relay(t, a, follower, 2, fork, end)
	if err := fresh.log.AddHistory(2, []byte(fmt.Sprintf("1\t%s\tpromoted\n", fork))); err != nil {
		t.Fatal(err)
	}
	relay(t, a, fresh, 2, start, end) // starts with the parent's bytes under the child's number
	want := append(bytes.Clone(parent[:fork-start]), child...)
	for name, b := range map[string]*testFeed{"follower": follower, "fresh": fresh} {
		got, err := b.read(2, start, len(want))
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%s: %v, equal %v", name, err, bytes.Equal(got, want))
		}
	}
}

// A frame whose stream was not seen, or whose payload was damaged in a way that no checksum of the frame shows, does not count.
func TestFrameIsDecodedBeforeItCounts(t *testing.T) {
	rnd := seeded(t)
	a, b := openTest(t, t.TempDir()), openTest(t, t.TempDir())
	start := protocol.LSN(5 * segment)
	a.write(rnd, 1, start, fakeWAL(rnd, 1<<18))
	r, err := a.OpenFrames(1, start)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Begin(link.ClientHello{ResetDistance: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	fr, err := r.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	unseen := *fr
	unseen.Starts, unseen.Continues, unseen.Stream = false, true, 77
	unseen.Seal()
	var want *link.UnseenStreamError
	if err := b.Frame(t.Context(), &unseen); !errors.As(err, &want) {
		t.Fatalf("unseen stream: %v", err)
	}
	damaged := *fr
	damaged.RawSum++
	damaged.Seal()
	if err := b.Frame(t.Context(), &damaged); !errors.Is(err, link.ErrCorrupt) {
		t.Fatalf("damaged: %v", err)
	}
	if tli, lsn := b.Position(); tli != 0 {
		t.Fatalf("position moved to %s", lsn)
	}
	if err := b.Frame(t.Context(), fr); err != nil {
		t.Fatal(err)
	}
}

// A node behind another one takes over its windows, whatever its own configuration says, and keeps them over a restart.
func TestWindowsFollowTheUpstreamNode(t *testing.T) {
	rnd := seeded(t)
	a, b := openTest(t, t.TempDir()), openTest(t, t.TempDir())
	a.opt.Recompress.ResetDistance = 2 << 20
	writer, err := recompress.NewWriter(a.opt.Recompress)
	if err != nil {
		t.Fatal(err)
	}
	a.writer = writer
	start, wal := protocol.LSN(6*segment), fakeWAL(rnd, 5<<20)
	for at := 0; at < len(wal); at += len(wal) / 2 {
		a.write(rnd, 1, start+protocol.LSN(at), wal[at:at+len(wal)/2])
		if err := b.Accept(link.ServerHello{ResetDistance: a.log.ResetDistance()}); err != nil {
			t.Fatal(err)
		}
		relay(t, a, b, 1, start, start+protocol.LSN(at+len(wal)/2))
		b = b.reopen()
		if got := b.log.ResetDistance(); got != 2<<20 {
			t.Fatalf("after a restart the reset distance is %d", got)
		}
	}
	got, err := b.read(1, start, len(wal))
	if err != nil || !bytes.Equal(got, wal) {
		t.Fatalf("behind the link: %v, equal %v", err, bytes.Equal(got, wal))
	}
}
