package feed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/recompress"
)

// seal runs Feed.Seal until every window that is complete is sealed.
func (f *testFeed) seal() {
	f.t.Helper()
	if err := f.log.Sync(); err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(f.t.Context(), time.Minute)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- f.Seal(ctx) }()
	for {
		changed := f.log.Changed()
		windows := f.log.Windows()
		live := 0
		for _, w := range windows[:max(len(windows)-1, 0)] {
			if !w.Sealed {
				live++
			}
		}
		if live == 0 {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			f.t.Fatalf("%d windows are not sealed", live)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		f.t.Fatal(err)
	}
}

// pipe is a link between two feeds that lives until it is cut.
type pipe struct {
	t     *testing.T
	frame *FrameReader
}

// move moves all that a has to b, over the link there is or a new one.
func (p *pipe) move(a, b *testFeed, start protocol.LSN) {
	p.t.Helper()
	for {
		atli, aend := a.Position()
		btli, bend := b.Position()
		if btli == atli && bend == aend {
			return
		}
		if btli == 0 {
			btli, bend = 1, start
		}
		if p.frame == nil {
			hello := b.Hello()
			r, err := a.OpenFrames(btli, bend)
			var ended *protocol.TimelineEndError
			if errors.As(err, &ended) { // the link was cut between the last frame and the end
				content, _ := a.log.History(ended.Next)
				if err := b.EndTimeline(p.t.Context(), btli, ended.At, ended.Next, content); err != nil {
					p.t.Fatal(err)
				}
				continue
			}
			if err == nil {
				err = r.Begin(hello)
			}
			if err != nil {
				p.t.Fatal(err)
			}
			p.frame = r
		}
		fr, err := p.frame.Next(p.t.Context())
		if err == nil {
			err = b.Frame(p.t.Context(), fr)
		}
		if err != nil {
			p.t.Fatalf("frame from %s on timeline %d: %v", bend, btli, err)
		}
		if fr.Codec == link.CodecTimelineEnd {
			p.cut()
		}
	}
}

func (p *pipe) cut() {
	if p.frame != nil {
		_ = p.frame.Close()
		p.frame = nil
	}
}

// checkRead compares what f holds of the n bytes behind wal[at:] with it, each on the timeline that it was written on.
func checkRead(t *testing.T, f *testFeed, start protocol.LSN, wal []byte, at, n int) {
	t.Helper()
	for _, span := range f.log.Timelines() {
		from := max(start+protocol.LSN(at), span.Begin)
		end := min(start+protocol.LSN(at+n), span.End)
		if from >= end {
			continue
		}
		got, err := f.read(span.Timeline, from, int(end-from))
		want := wal[from-start:]
		if err != nil || len(got) < int(end-from) || !bytes.HasPrefix(want, got) {
			t.Fatalf("read from %s to %s on timeline %d: %d bytes, %v", from, end, span.Timeline, len(got), err)
		}
	}
}

// Two nodes in a row write, seal, restart, lose their link, change timelines and read from anywhere, in random order: whatever
// is read is what was written, byte by byte.
func TestSealedRelay(t *testing.T) {
	rnd := seeded(t)
	a, b := openTest(t, t.TempDir()), openTest(t, t.TempDir())
	start := protocol.LSN(1*segment + 5000)
	wal := fakeWAL(rnd, 6<<20)
	p := &pipe{t: t}
	defer p.cut()
	tli := protocol.Timeline(1)
	history := ""
	for sent := 0; sent < len(wal); {
		n := min(len(wal)-sent, 1+rnd.IntN(400_000))
		a.write(rnd, tli, start+protocol.LSN(sent), wal[sent:sent+n])
		sent += n
		for range 3 {
			switch rnd.IntN(9) {
			case 0, 1:
				a.seal()
			case 2:
				b.seal()
			case 3:
				p.cut()
				a = a.reopen()
			case 4:
				p.cut()
				b = b.reopen()
			case 5:
				p.cut()
			case 6:
				p.move(a, b, start)
			case 7:
				checkRead(t, a, start, wal, rnd.IntN(sent), 1+rnd.IntN(1<<20))
			case 8:
				if rnd.IntN(4) > 0 {
					break
				}
				at := start + protocol.LSN(sent)
				history += fmt.Sprintf("%d\t%s\tpromoted\n", tli, at)
				if err := a.EndTimeline(t.Context(), tli, at, tli+1, []byte(history)); err != nil {
					t.Fatal(err)
				}
				tli++
			}
		}
	}
	p.move(a, b, start)
	a.seal()
	b.seal()
	fresh := openTest(t, t.TempDir())
	p.cut()
	p.move(a, fresh, start)
	for _, f := range []*testFeed{a, b, fresh} {
		checkRead(t, f, start, wal, 0, len(wal))
		for range 8 {
			checkRead(t, f, start, wal, rnd.IntN(len(wal)), 1+rnd.IntN(1<<20))
		}
	}
}

// A node in the middle of a window goes on while that is sealed. When it comes back, its stream is gone, and what it gets is
// coded anew up to the boundary: not much larger than the stream was.
func TestNodeInASealedWindow(t *testing.T) {
	rnd := seeded(t)
	a, b, c := openTest(t, t.TempDir()), openTest(t, t.TempDir()), openTest(t, t.TempDir())
	start, wal := protocol.LSN(4*segment), fakeWAL(rnd, 2*segment+1000)
	a.write(rnd, 1, start, wal[:segment/3])
	relay(t, a, b, 1, start, start+segment/3)
	relay(t, a, c, 1, start, start+segment/3)
	hello := b.Hello()
	reading, err := a.OpenFrames(1, start+segment/3)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reading.Close() }()
	if err := reading.Begin(hello); err != nil {
		t.Fatal(err)
	}
	a.write(rnd, 1, start+segment/3, wal[segment/3:])
	for range 2 { // into the file that is replaced then
		fr, err := reading.Next(t.Context())
		if err == nil {
			err = b.Frame(t.Context(), fr)
		}
		if err != nil || !fr.Continues {
			t.Fatalf("frame %+v, %v", fr, err)
		}
	}
	a.seal()
	payload := func(r *FrameReader, to *testFeed) (bytes int) {
		for {
			_, lsn := to.Position()
			if lsn == start+protocol.LSN(len(wal)) {
				return bytes
			}
			fr, err := r.Next(t.Context())
			if err == nil {
				err = to.Frame(t.Context(), fr)
			}
			if err != nil {
				t.Fatal(err)
			}
			bytes += len(fr.Payload)
		}
	}
	payload(reading, b)
	again, err := a.OpenFrames(1, start+segment/3)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = again.Close() }()
	if err := again.Begin(c.Hello()); err != nil {
		t.Fatal(err)
	}
	sent := payload(again, c)
	w, err := recompress.NewWriter(recompress.Options{Codec: recompress.Zstd, ResetDistance: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	best := 0
	if err := w.Write(1, start+segment/3, wal[segment/3:], func(f *link.Frame) error { best += len(f.Payload); return nil }); err != nil {
		t.Fatal(err)
	}
	if sent > best+best/10 {
		t.Fatalf("%d bytes sent, %d would do", sent, best)
	}
	for _, f := range []*testFeed{b, c} {
		if got, err := f.read(1, start, len(wal)); err != nil || !bytes.Equal(got, wal) {
			t.Fatalf("%v, equal %v", err, bytes.Equal(got, wal))
		}
	}
}

// Sealing makes the spool smaller, and says so.
func TestSealSaves(t *testing.T) {
	rnd := seeded(t)
	f := openTest(t, t.TempDir())
	start, wal := protocol.LSN(4*segment), bytes.Repeat(fakeWAL(rnd, 5000), 2*segment/5000+1)[:2*segment+10] // coded in whatever pieces, it shrinks
	for i := 0; i < len(wal); i += 1 + rnd.IntN(100) {
		wal[i] = byte(rnd.Uint32())
	}
	for at := 0; at < len(wal); at += 300 {
		end := min(at+300, len(wal))
		if err := f.WAL(t.Context(), 1, start+protocol.LSN(at), wal[at:end]); err != nil {
			t.Fatal(err)
		}
	}
	before := f.log.Windows()
	f.seal()
	after := f.log.Windows()
	for i := range 2 {
		if !after[i].Sealed || after[i].Bytes*10 > before[i].Bytes*9 || after[i].End != before[i].End {
			t.Fatalf("window %+v was %+v", after[i], before[i])
		}
	}
	info := f.reopen().log.Windows()
	if fmt.Sprint(info) != fmt.Sprint(after) {
		t.Fatalf("after a restart: %+v", info)
	}
}
