package spool

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/slots/fs"
	"walproxy/slots/fs/memfs"
)

// filling returns a frame of payload bytes that stands for all WAL from start to the end of its window of 1 MiB.
func filling(start protocol.LSN, payload int) *link.Frame {
	f := raw(1, start, payload)
	f.Codec, f.Starts, f.RawLen = link.CodecZstd, true, uint32(start.Next(distance)-start)
	f.Seal()
	return f
}

// half returns two frames that fill the window at start, of few bytes; the second one has secondHalf bytes in the file.
func half(start protocol.LSN) [2]*link.Frame {
	a := raw(1, start, 900)
	return [2]*link.Frame{a, filling(a.End(), 2000)}
}

const secondHalf = 2000 + 1 + 3 + 2 + 8

// newUnsynced is what a process leaves that dies with several windows that are not durable: five windows of two frames each,
// of which the first and the first frame of the second are durable.
func newUnsynced(t *testing.T) *damaged {
	d := &damaged{t: t, disk: memfs.New()}
	l := openLog(t, "data", Options{FS: d.disk})
	for i := range protocol.LSN(5) {
		for j, f := range half(0x400000 + i*distance) {
			d.frames = append(d.frames, mustAppend(t, l, f))
			if i < 2 && j == 0 {
				if err := l.Sync(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	d.disk = d.disk.Kill()
	d.files = d.list()
	return d
}

// tears is the table of what a loss of power can do to windows that were not durable, and of how many of the ten frames survive.
var tears = []struct {
	name      string
	damage    func(d *damaged)
	survivors int // 0: refused as corrupt
}{
	{"none", func(*damaged) {}, 10},
	{"mark lost", forget, 10},
	{"cut behind the mark", func(d *damaged) { d.edit(d.files[1], cut(5)) }, 3},
	{"cut between frames behind the mark", func(d *damaged) { d.edit(d.files[1], cut(secondHalf)) }, 3},
	{"cut below the mark", func(d *damaged) { d.edit(d.files[1], func(b []byte) []byte { return b[:500] }) }, 0},
	{"zeros below the mark", func(d *damaged) { d.edit(d.files[1], func(b []byte) []byte { clear(b[512:1024]); return b }) }, 0},
	{"cut before the mark", func(d *damaged) { d.edit(d.files[0], cut(5)) }, 0},
	{"window of the mark missing", func(d *damaged) { d.remove(d.files[1]) }, 0},
	{"window of the mark and all later ones missing", func(d *damaged) {
		for _, name := range d.files[1:] {
			d.remove(name)
		}
	}, 0},
	{"window in the middle missing", func(d *damaged) { d.remove(d.files[3]) }, 6},
	{"window behind the mark missing", func(d *damaged) { d.remove(d.files[2]) }, 4},
	{"newest missing", func(d *damaged) { d.remove(d.files[4]) }, 8},
	{"newest torn", func(d *damaged) { d.edit(d.files[4], cut(1)) }, 9},
	{"window in the middle not yet cut to its length", func(d *damaged) {
		d.edit(d.files[2], func(b []byte) []byte { return append(b, make([]byte, aheadBytes)...) })
	}, 10},
	{"window in the middle without its last frame, not yet cut", func(d *damaged) {
		d.edit(d.files[2], func(b []byte) []byte { return append(cut(secondHalf)(b), make([]byte, aheadBytes)...) })
	}, 5},
	{"window in the middle torn", func(d *damaged) { d.edit(d.files[2], cut(1)) }, 5},
	{"window in the middle with a sector unwritten", func(d *damaged) {
		d.edit(d.files[2], func(b []byte) []byte { clear(b[1536:2048]); return b })
	}, 5},
	{"window in the middle without its last frame", func(d *damaged) { d.edit(d.files[3], cut(secondHalf)) }, 7},
	{"window in the middle with only a header", func(d *damaged) {
		d.edit(d.files[3], func(b []byte) []byte { return b[:link.WindowHeaderBytes] })
	}, 6},
	{"window in the middle empty", func(d *damaged) { d.edit(d.files[3], func([]byte) []byte { return nil }) }, 6},
	{"two windows torn, the later one first", func(d *damaged) { d.edit(d.files[3], cut(9)); d.edit(d.files[2], cut(9)) }, 5},
	{"flipped behind the mark", func(d *damaged) { d.edit(d.files[2], flip(300)) }, 0},
	{"flipped in the newest", func(d *damaged) { d.edit(d.files[4], flip(300)) }, 0},
	{"header flipped behind the mark", func(d *damaged) { d.edit(d.files[2], flip(40)) }, 0},
	{"mark lost, first window empty", func(d *damaged) { forget(d); d.edit(d.files[0], func([]byte) []byte { return nil }) }, 0},
	{"mark lost, window in the middle torn", func(d *damaged) { forget(d); d.edit(d.files[3], cut(1)) }, 7},
}

func TestTornWindows(t *testing.T) {
	for _, c := range tears {
		t.Run(c.name, func(t *testing.T) {
			d := newUnsynced(t)
			c.damage(d)
			n, err := d.survivors()
			var corrupt *CorruptError
			if n != c.survivors || n == 0 && (!errors.As(err, &corrupt) || corrupt.File == "" || corrupt.Hint == "") {
				t.Fatalf("%d frames survive, error %v; want %d", n, err, c.survivors)
			}
			if n == 0 {
				return
			}
			l := openLog(t, "data", Options{FS: d.disk}) // it goes on behind what is left, over the places of what was removed
			d.frames = d.frames[:n:n]
			for range 4 {
				d.frames = append(d.frames, mustAppend(t, l, filling(l.State().End, 1)))
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			if after, err := d.survivors(); after != n+4 {
				t.Fatalf("%d frames after four more, %v", after, err)
			}
		})
	}
}

// What recovery removes is said once, with the place from where WAL has to come again.
func TestTearIsLogged(t *testing.T) {
	d := newUnsynced(t)
	d.edit(d.files[2], cut(1))
	core, logs := observer.New(zap.WarnLevel)
	l := openLog(t, "data", Options{FS: d.disk, Logger: zap.New(core)})
	var texts []string
	for _, e := range logs.All() {
		texts = append(texts, e.Message+" "+e.ContextMap()["lsn"].(string))
	}
	want := []string{"torn tail cut off: a crash came before it was durable " + d.frames[5].Start.String(),
		"windows behind a tear removed: a crash came before they were durable " + d.frames[6].Start.String()}
	if !slices.Equal(texts, want) {
		t.Fatalf("logged:\n%s", strings.Join(texts, "\n"))
	}
	if s := l.State(); s.End != d.frames[5].Start || s.Flushed != s.End {
		t.Fatalf("state %+v", s)
	}
	if files := d.list(); len(files) != 3 {
		t.Fatalf("files: %v", files)
	}
}

// A window begins without an fsync, as long as not too much before it waits for one.
func TestUnsyncedIsBounded(t *testing.T) {
	d := &damaged{t: t, disk: memfs.New()}
	l := openLog(t, "data", Options{FS: d.disk})
	at, syncs := protocol.LSN(0x100000), 0
	d.disk.Inject(func(op memfs.Op) error {
		if op.Kind == "sync" && strings.HasSuffix(op.Name, WindowSuffix) {
			syncs++
		}
		return nil
	})
	for i := range 150 {
		f := mustAppend(t, l, filling(at, 1))
		d.frames = append(d.frames, f)
		at = f.End()
		if s := l.State(); uint64(f.Start-s.Flushed) > MaxUnsyncedBytes {
			t.Fatalf("window %d begins at %s, durable up to %s", i, f.Start, s.Flushed)
		}
		if i > 1 && i < 60 && syncs != 1 {
			t.Fatalf("window %d: %d fsyncs", i, syncs)
		}
	}
	if syncs > 150+10 {
		t.Fatalf("%d fsyncs", syncs)
	}
	d.disk = d.disk.Kill()
	d.files = d.list()
	forget(d) // without the mark the names alone tell what may be torn
	d.edit(d.files[149-64], func(b []byte) []byte { return b[:len(b)-1] })
	if n, err := d.survivors(); n != 149-64 {
		t.Fatalf("%d frames survive, %v", n, err)
	}
}

// stuck is a file system whose fsyncs of windows wait, once armed, until they are let go.
type stuck struct {
	fs.FS
	armed   atomic.Bool
	entered chan struct{} // gets a value for the fsync that waits; room for one; never closed
	release chan struct{} // closed to let it go
}

type stuckFile struct {
	fs.File
	fs *stuck
}

func (s *stuck) Create(name string) (fs.File, error) {
	f, err := s.FS.Create(name)
	if err != nil || !strings.HasSuffix(name, WindowSuffix) {
		return f, err
	}
	return &stuckFile{f, s}, nil
}

func (f *stuckFile) Sync() error {
	if f.fs.armed.CompareAndSwap(true, false) {
		f.fs.entered <- struct{}{}
		<-f.fs.release
	}
	return f.File.Sync()
}

// While the disk is busy with an fsync, windows are begun and filled, and read; nothing of it counts as durable.
func TestAppendDoesNotWaitForSync(t *testing.T) {
	disk := &stuck{FS: memfs.New(), entered: make(chan struct{}, 1), release: make(chan struct{})}
	l := openLog(t, "data", Options{FS: disk})
	frames := half(0x400000)
	mustAppend(t, l, frames[0])
	if err := l.Sync(); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, frames[1])
	disk.armed.Store(true)
	var syncing sync.WaitGroup
	var failed error
	syncing.Go(func() { failed = l.Sync() })
	<-disk.entered
	all := frames[:]
	for i := range protocol.LSN(8) {
		for _, f := range half(0x400000 + (i+1)*distance) {
			all = append(all, mustAppend(t, l, f))
		}
	}
	expect(t, openReader(t, l, 1, frames[0].Start), all...)
	if s := l.State(); s.Flushed != frames[0].End() || s.End != all[len(all)-1].End() {
		t.Fatalf("state during the fsync: %+v", s)
	}
	if err := l.Retain(all[len(all)-1].Start); err != nil || l.State().Begin != frames[0].Start {
		t.Fatalf("what is not durable was removed: %+v, %v", l.State(), err)
	}
	if w, _ := l.complete(); w != nil {
		t.Fatalf("the window at %s is to be sealed", w.header.Start)
	}
	close(disk.release)
	syncing.Wait()
	if s := l.State(); failed != nil || s.Flushed != frames[1].End() {
		t.Fatalf("state after the fsync: %+v, %v", s, failed)
	}
	if err := l.Sync(); err != nil || l.State().Flushed != l.State().End {
		t.Fatalf("state after the next one: %+v, %v", l.State(), err)
	}
	if w, _ := l.complete(); w == nil || w.header.Start != frames[0].Start {
		t.Fatal("nothing can be sealed")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.unsynced) != 1 || l.unsynced[0] != l.newest {
		t.Fatalf("%d files are open", len(l.unsynced))
	}
}

// A disk that breaks during the fsync of an older window ends the log; what was durable before stays so.
func TestFailedSyncOfAnOlderWindow(t *testing.T) {
	d := &damaged{t: t, disk: memfs.New()}
	l := openLog(t, "data", Options{FS: d.disk})
	broken := errors.New("input/output error")
	for i := range protocol.LSN(4) {
		for _, f := range half(0x400000 + i*distance) {
			d.frames = append(d.frames, mustAppend(t, l, f))
		}
	}
	before := l.State().Flushed
	d.disk.Inject(func(op memfs.Op) error {
		if op.Kind == "sync" && strings.HasSuffix(op.Name, "0000000000600000.win") {
			return broken
		}
		return nil
	})
	if err := l.Sync(); !errors.Is(err, broken) {
		t.Fatalf("sync: %v", err)
	}
	if err := l.Append(raw(1, d.frames[7].End(), 10)); !errors.Is(err, broken) {
		t.Fatalf("append after a failed sync: %v", err)
	}
	if s := l.State(); s.Flushed != before {
		t.Fatalf("state: %+v, durable before up to %s", s, before)
	}
	if err := l.Close(); !errors.Is(err, broken) {
		t.Fatalf("close: %v", err)
	}
	d.disk = d.disk.Kill()
	if n, err := d.survivors(); n != 8 {
		t.Fatalf("%d frames survive, %v", n, err)
	}
}

// What a system lost at a failed fsync, and does not write at the next one, is not durable when the log was opened again.
func TestFailedSyncLosesNothingThatCounts(t *testing.T) {
	for _, frames := range []int{1, 5, 8} { // in up to four windows
		for synced := range frames {
			disk := memfs.New()
			l := openLog(t, "data", Options{FS: disk})
			for i := range frames {
				mustAppend(t, l, half(0x400000 + protocol.LSN(i/2)*distance)[i%2])
				if i+1 == synced {
					if err := l.Sync(); err != nil {
						t.Fatal(err)
					}
				}
			}
			disk.Inject(func(op memfs.Op) error {
				if op.Kind == "sync" {
					return memfs.ErrLost
				}
				return nil
			})
			if err := l.Close(); !errors.Is(err, memfs.ErrLost) {
				t.Fatalf("close: %v", err)
			}
			disk.Inject(nil)
			again := openLog(t, "data", Options{FS: disk})
			flushed := again.State().Flushed
			for seed := range uint64(20) {
				left, err := Open("data", Options{FS: disk.Crash(rand.New(rand.NewPCG(seed, 1))), ResetDistance: distance})
				if err != nil {
					t.Fatalf("%d frames, %d of them synced: %v", frames, synced, err)
				}
				if end := left.State().End; end < flushed {
					t.Errorf("%d frames, %d of them synced: flushed was %s, what survives ends at %s", frames, synced, flushed, end)
				}
				_ = left.Close()
			}
			_ = again.Close()
		}
	}
}
