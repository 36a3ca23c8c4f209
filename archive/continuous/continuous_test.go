package continuous

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"walproxy/archive"
	"walproxy/archive/catalog"
	"walproxy/protocol"
	"walproxy/protocol/link"
)

const mib = protocol.LSN(1 << 20)

var cluster = archive.Identity{SystemID: 7, Major: 15, SegmentSize: 2 << 20, WALBlockSize: 8192}

// memorySpool is a spool in memory whose WAL differs by timeline and place.
type memorySpool struct {
	lines    []Line
	distance uint32
	begin    protocol.LSN // what retention has left
	other    byte         // makes it another server's WAL
}

func (s *memorySpool) Identity() (archive.Identity, bool) { return cluster, true }
func (s *memorySpool) ResetDistance() uint32              { return s.distance }
func (s *memorySpool) Changed() <-chan struct{}           { return nil }

func (s *memorySpool) History(tli protocol.Timeline) ([]byte, bool) {
	if tli < 2 {
		return nil, false
	}
	text := ""
	for _, l := range s.lines {
		if l.Next != 0 && l.Next <= tli {
			text += fmt.Sprintf("%d\t%s\tx\n", l.Timeline, l.End)
		}
	}
	return []byte(text), true
}

func (s *memorySpool) Lines(tli protocol.Timeline, start protocol.LSN) (lines []Line) {
	for _, l := range s.lines {
		if l.Timeline < tli {
			continue
		}
		some := Line{Timeline: l.Timeline, End: l.End, Next: l.Next}
		for _, w := range l.Windows {
			if w.End > s.begin && (l.Timeline != tli || w.Start >= start) {
				some.Windows = append(some.Windows, w)
			}
		}
		lines = append(lines, some)
	}
	return lines
}

// grow appends WAL up to end to the last line.
func (s *memorySpool) grow(end protocol.LSN) {
	l := &s.lines[len(s.lines)-1]
	for l.End < end {
		n := len(l.Windows)
		if n == 0 || l.Windows[n-1].Closed {
			l.Windows = append(l.Windows, Window{Start: l.End, End: l.End, ResetDistance: s.distance})
			n++
		}
		w := &l.Windows[n-1]
		edge := w.Start.Next(uint64(s.distance))
		w.End = min(edge, end)
		w.Closed, w.Sealed = w.End == edge, w.End == edge
		l.End = w.End
	}
}

// fork ends the last line where it is.
func (s *memorySpool) fork() {
	l := &s.lines[len(s.lines)-1]
	l.Next = l.Timeline + 1
	if n := len(l.Windows); n > 0 {
		l.Windows[n-1].Closed, l.Windows[n-1].Sealed = true, true
	}
	s.lines = append(s.lines, Line{Timeline: l.Next, End: l.End})
}

func (s *memorySpool) wal(tli protocol.Timeline, from, to protocol.LSN) []byte {
	out := make([]byte, to-from)
	for i := range out {
		out[i] = byte(from+protocol.LSN(i)) ^ byte((from+protocol.LSN(i))>>9) ^ byte(tli) ^ s.other
	}
	return out
}

func (s *memorySpool) Frames(_ context.Context, tli protocol.Timeline, start, end protocol.LSN, visit func(*link.Frame) error) error {
	const piece = 300_000
	for at := start; at < end; {
		wal := s.wal(tli, at, min(at+piece, end))
		f := link.Frame{Timeline: tli, Start: at, RawLen: uint32(len(wal)), RawSum: link.Checksum(wal), Payload: wal}
		f.Seal()
		if err := visit(&f); err != nil {
			return err
		}
		at = f.End()
	}
	return nil
}

func (s *memorySpool) Sealed(dst []byte, tli protocol.Timeline, start protocol.LSN) ([]byte, error) {
	for _, l := range s.lines {
		for _, w := range l.Windows {
			if l.Timeline != tli || w.Start != start {
				continue
			}
			var b link.WindowBuilder
			b.Begin(dst, link.WindowHeader{SystemID: cluster.SystemID, Timeline: tli, SegmentSize: cluster.SegmentSize,
				WALBlockSize: cluster.WALBlockSize, ResetDistance: s.distance, Start: start})
			if err := s.Frames(context.Background(), tli, start, w.End, b.Add); err != nil {
				return dst, err
			}
			return b.Finish()
		}
	}
	return dst, errors.New("no such window")
}

// memorySlot is a slot in memory that survives restarts. What it lets go of is gone from the spool.
type memorySlot struct {
	t       *testing.T
	spool   *memorySpool
	store   archive.Store // without faults
	at      protocol.LSN
	reached protocol.LSN
}

func (s *memorySlot) Hold(lsn protocol.LSN) (protocol.LSN, bool, error) {
	lost := s.at != 0 && s.at < lsn
	if s.at == 0 || lost {
		s.at = lsn
	}
	return s.at, lost, nil
}

// Advance removes WAL and checks that all of it can be had from the archive.
func (s *memorySlot) Advance(tli protocol.Timeline, stored, reached protocol.LSN) {
	s.at, s.reached = stored, reached
	keep := stored.Floor(uint64(max(s.spool.distance, cluster.SegmentSize)))
	a, err := archive.Open(context.Background(), s.store)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, l := range s.spool.lines {
		for _, w := range l.Windows {
			if w.End > keep || l.Timeline > tli || w.End <= s.spool.begin {
				continue
			}
			got := protocol.LSN(0)
			err := a.NewReader().Read(context.Background(), l.Timeline, w.Start, w.End, func(lsn protocol.LSN, wal []byte) error {
				if string(wal) != string(s.spool.wal(l.Timeline, lsn, lsn+protocol.LSN(len(wal)))) {
					s.t.Errorf("the archive holds other WAL at %s", lsn)
				}
				got += protocol.LSN(len(wal))
				return nil
			})
			if err != nil || got != w.End-w.Start {
				s.t.Fatalf("let go of WAL from %s on timeline %d: %v", w.Start, l.Timeline, err)
			}
		}
	}
	s.spool.begin = max(s.spool.begin, keep)
}

// memoryStore is a store in memory, for one goroutine.
type memoryStore struct {
	archive.Store // nil: what is not overridden is not called
	objects       map[string][]byte
}

func newMemoryStore() *memoryStore { return &memoryStore{objects: map[string][]byte{}} }

func (s *memoryStore) String() string { return "memory" }

func (s *memoryStore) Put(_ context.Context, name string, body io.ReaderAt, size int64) error {
	if s.objects[name] != nil {
		return archive.ErrExists
	}
	b := make([]byte, size)
	if n, err := body.ReadAt(b, 0); n < len(b) {
		return err
	}
	s.objects[name] = b
	return nil
}

func (s *memoryStore) Get(_ context.Context, dst []byte, name string, offset, length int64) ([]byte, error) {
	b, ok := s.objects[name]
	if !ok {
		return dst, archive.ErrNotExist
	}
	from := min(offset, int64(len(b)))
	return append(dst, b[from:min(from+length, int64(len(b)))]...), nil
}

func (s *memoryStore) Delete(_ context.Context, name string) error {
	delete(s.objects, name)
	return nil
}

func (s *memoryStore) List(_ context.Context, prefix, after string) iter.Seq2[archive.Info, error] {
	return func(yield func(archive.Info, error) bool) {
		for _, name := range slices.Sorted(maps.Keys(s.objects)) {
			if strings.HasPrefix(name, prefix) && name > after && !yield(archive.Info{Name: name, Bytes: int64(len(s.objects[name]))}, nil) {
				return
			}
		}
	}
}

// dyingStore fails for good at a request, before or after it has done its work.
type dyingStore struct {
	archive.Store
	left  int
	after bool
}

var errDied = errors.New("the process died")

func (s *dyingStore) dies() (before, after bool) {
	s.left--
	return s.left < 0 || s.left == 0 && !s.after, s.left == 0 && s.after
}

func (s *dyingStore) Put(ctx context.Context, name string, body io.ReaderAt, size int64) error {
	before, after := s.dies()
	if before {
		return errDied
	}
	if err := s.Store.Put(ctx, name, body, size); err != nil || !after {
		return err
	}
	return errDied
}

func (s *dyingStore) Get(ctx context.Context, dst []byte, name string, offset, length int64) ([]byte, error) {
	if before, _ := s.dies(); before {
		return dst, errDied
	}
	return s.Store.Get(ctx, dst, name, offset, length)
}

func (s *dyingStore) Delete(ctx context.Context, name string) error {
	if before, _ := s.dies(); before {
		return errDied
	}
	return s.Store.Delete(ctx, name)
}

func (s *dyingStore) List(ctx context.Context, prefix, after string) iter.Seq2[archive.Info, error] {
	if before, _ := s.dies(); before {
		return func(yield func(archive.Info, error) bool) { yield(archive.Info{}, errDied) }
	}
	return s.Store.List(ctx, prefix, after)
}

// TestCrashes lets the archiver die at every request to the store, with and without a tail, over a change of timeline, and goes on
// with a new one. Slot and spool survive, or are lost. In the end the archive holds all WAL, and each cell in one object.
func TestCrashes(t *testing.T) {
	for _, tail := range []bool{false, true} {
		for _, after := range []bool{false, true} {
			for _, replaced := range []bool{false, true} {
				if testing.Short() && tail != (after != replaced) { // the race detector's run
					continue
				}
				t.Run(fmt.Sprintf("tail %v, after %v, replaced %v", tail, after, replaced), func(t *testing.T) {
					crashes(t, tail, after, replaced)
				})
			}
		}
	}
}

func crashes(t *testing.T, tail, after, replaced bool) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for die := 1; die < 36; die += 2 + r.IntN(8) {
		store := newMemoryStore()
		spool := &memorySpool{distance: 1 << 20, lines: []Line{{Timeline: 1, End: mib + mib/2}}}
		slot := &memorySlot{t: t, spool: spool, store: store}
		run := func(left int) error {
			a := New(spool, slot, Options{Store: &dyingStore{store, left, after}, Tail: tail, TailInterval: time.Nanosecond, Sealed: true})
			for _, step := range []func(){func() {}, func() { spool.grow(spool.lines[len(spool.lines)-1].End + mib/3) }} {
				step()
				if _, err := a.step(context.Background()); err != nil {
					return err
				}
			}
			return a.builder.Close()
		}
		for _, step := range []func(){
			func() { spool.grow(3*mib + 5) }, func() { spool.grow(5*mib + 100) }, spool.fork, func() { spool.grow(9*mib + 7) },
		} {
			step()
			if err := run(die); err != nil && !errors.Is(err, errDied) {
				t.Fatalf("dies at %d: %v", die, err)
			}
			if replaced && slot.at != 0 { // a new node begins in the segment of what the old one had reported
				slot.at, spool.begin = 0, slot.at.Floor(uint64(cluster.SegmentSize))
			}
		}
		if err := run(1 << 30); err != nil {
			t.Fatal(err)
		}
		check(t, store, spool, tail)
	}
}

// check looks whether the archive holds all of the spool's WAL, each complete cell in one object.
func check(t *testing.T, store archive.Store, spool *memorySpool, tail bool) {
	t.Helper()
	ctx := context.Background()
	a, err := archive.Open(ctx, store)
	if err != nil {
		t.Fatal(err)
	}
	c, err := catalog.Load(ctx, a)
	if err != nil {
		t.Fatal(err)
	}
	if found, err := catalog.Verify(ctx, a, c, catalog.VerifyOptions{}); err != nil || len(found) > 0 {
		t.Fatalf("%v, %v", found, err)
	}
	for _, l := range spool.lines {
		end := l.End
		if l.Next == 0 && !tail {
			end = end.Floor(uint64(cluster.SegmentSize))
		}
		held := c.Of(l.Timeline)
		if held == nil || len(held.Ranges) != 1 || held.Ranges[0].To != end {
			t.Fatalf("timeline %d is held as %+v, want up to %s", l.Timeline, held, end)
		}
		for i, o := range held.Objects[1:] {
			before := held.Objects[i]
			if o.Start < before.End {
				t.Errorf("%s and %s overlap", before.Name(), o.Name())
			}
		}
		cells := 0
		for _, o := range held.Objects {
			if uint64(o.End)%uint64(cluster.SegmentSize) != 0 {
				continue
			}
			cells++
		}
		if want := int(end/protocol.LSN(cluster.SegmentSize)) - int(held.Ranges[0].From/protocol.LSN(cluster.SegmentSize)); cells != want {
			t.Errorf("%d objects end cells of timeline %d, want %d", cells, l.Timeline, want)
		}
	}
}

// Other WAL at a place that the archive holds is refused, and so is another cluster.
func TestOtherWALIsRefused(t *testing.T) {
	store := newMemoryStore()
	step := func(other byte) error {
		spool := &memorySpool{distance: 1 << 20, lines: []Line{{Timeline: 1, End: 2 * mib}}, other: other}
		spool.grow(6 * mib)
		slot := &memorySlot{t: t, spool: spool, store: store}
		a := New(spool, slot, Options{Store: store})
		_, err := a.step(context.Background())
		if refused(err) != (other != 0) {
			t.Errorf("%v", err)
		}
		return err
	}
	if err := step(0); err != nil {
		t.Fatal(err)
	}
	var conflict *archive.ConflictError
	if err := step(1); !errors.As(err, &conflict) || conflict.LSN != 2*mib || !strings.Contains(err.Error(), "0/200000") {
		t.Fatalf("%v", err)
	}
}

// A history that differs from the archive's is refused before any WAL of its timeline, and the WAL stays in the spool.
func TestOtherHistoryIsRefused(t *testing.T) {
	ctx, store := context.Background(), newMemoryStore()
	a, err := archive.Create(ctx, store, cluster)
	if err != nil {
		t.Fatal(err)
	}
	other := archive.BytesFile(protocol.HistoryName(2), []byte("1\t0/300000\tx\n")) // another server was promoted first
	if _, err := a.PutFile(ctx, other); err != nil {
		t.Fatal(err)
	}
	spool := &memorySpool{distance: 1 << 20, lines: []Line{{Timeline: 1, End: 2 * mib}}}
	spool.grow(4 * mib)
	spool.fork()
	spool.grow(8 * mib)
	slot := &memorySlot{t: t, spool: spool, store: store}
	_, err = New(spool, slot, Options{Store: store}).step(ctx)
	var conflict *archive.ConflictError
	if !errors.As(err, &conflict) || conflict.Name != archive.FileName(protocol.HistoryName(2)) || !refused(err) {
		t.Errorf("another history: %v", err)
	}
	for name := range store.objects {
		if strings.HasPrefix(name, archive.TimelinePrefix(2)) {
			t.Errorf("%s was stored", name)
		}
	}
	if slot.reached > 4*mib || spool.begin > 4*mib {
		t.Errorf("the slot says %s, and WAL below %s is gone", slot.reached, spool.begin)
	}
}

// A spool that has gone on without the slot leaves a hole, which is named, and archiving goes on behind it.
func TestHole(t *testing.T) {
	store := newMemoryStore()
	spool := &memorySpool{distance: 1 << 20, lines: []Line{{Timeline: 1, End: 2 * mib}}}
	slot := &memorySlot{t: t, spool: spool, store: store}
	a := New(spool, slot, Options{Store: store})
	for _, end := range []protocol.LSN{6 * mib, 12 * mib} {
		spool.grow(end)
		if end > 6*mib {
			spool.begin = 8 * mib // shed
		}
		if _, err := a.step(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	opened, err := archive.Open(context.Background(), store)
	if err != nil {
		t.Fatal(err)
	}
	err = opened.NewReader().Read(context.Background(), 1, 2*mib, 12*mib, func(protocol.LSN, []byte) error { return nil })
	var gap *archive.GapError
	if !errors.As(err, &gap) || gap.From != 6*mib || gap.To != 8*mib {
		t.Errorf("the archive reads with %v, want a gap from 0/600000 to 0/800000", err)
	}
	if end, err := End(context.Background(), opened, 0, 0); err != nil || end.End != 12*mib {
		t.Errorf("it ends at %+v, %v", end, err)
	}
}

// Two nodes that archive the same WAL to one place get along, with and without tails: whoever is second finds what it would store.
func TestTwoArchivers(t *testing.T) {
	for _, tail := range []bool{false, true} {
		store := newMemoryStore()
		var both [2]*Archiver
		var spools [2]*memorySpool
		for i := range both {
			spools[i] = &memorySpool{distance: 1 << 20, lines: []Line{{Timeline: 1, End: 2 * mib}}}
			slot := &memorySlot{t: t, spool: spools[i], store: store}
			both[i] = New(spools[i], slot, Options{Store: store, Tail: tail, TailInterval: time.Nanosecond, Sealed: true})
		}
		for end := 2*mib + mib/2; end <= 9*mib; end += mib / 2 {
			for i, a := range both {
				spools[i].grow(end - protocol.LSN(i)*1000) // the second one lags a little
				if _, err := a.step(context.Background()); err != nil {
					t.Fatalf("archiver %d at %s: %v", i, end, err)
				}
			}
		}
		spools[1].grow(9 * mib)
		if _, err := both[1].step(context.Background()); err != nil {
			t.Fatal(err)
		}
		opened, err := archive.Open(context.Background(), store)
		if err != nil {
			t.Fatal(err)
		}
		c, err := catalog.Load(context.Background(), opened)
		if err != nil {
			t.Fatal(err)
		}
		if found, err := catalog.Verify(context.Background(), opened, c, catalog.VerifyOptions{}); err != nil || len(found) > 0 {
			t.Fatalf("%v, %v", found, err)
		}
		whole := 0
		for _, o := range c.Of(1).Objects {
			if o.End-o.Start == 2*mib {
				whole++
			} else if o.End <= 8*mib {
				t.Errorf("tail %v: %s was left", tail, o.Name())
			}
		}
		if r := c.Of(1).Ranges; whole != 3 || len(r) != 1 || !tail && r[0].To != 8*mib || tail && r[0].To != 9*mib {
			t.Errorf("tail %v: %d whole cells, %v", tail, whole, r)
		}
	}
}
