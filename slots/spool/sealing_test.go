package spool

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"path"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/slots/fs"
	"walproxy/slots/fs/memfs"
)

// repack is a SealFunc that keeps the frames as they are.
func repack(dst []byte, h link.WindowHeader, frames iter.Seq2[*link.Frame, error]) ([]byte, error) {
	var b link.WindowBuilder
	b.Begin(dst, h)
	for f, err := range frames {
		if err == nil {
			err = b.Add(f)
		}
		if err != nil {
			return dst, err
		}
	}
	return b.Finish()
}

func sealWith(l *Log, seal SealFunc) error {
	s := sealing{log: l, seal: seal}
	for {
		if more, err := s.next(context.Background()); err != nil || !more {
			return err
		}
	}
}

// sealAll seals what is complete.
func sealAll(l *Log) error { return sealWith(l, repack) }

// kinds returns how many windows are sealed and how many are live.
func (l *Log) kinds() (sealed, live int) {
	for _, w := range l.Windows() {
		if w.Sealed {
			sealed++
		} else {
			live++
		}
	}
	return sealed, live
}

func wantKinds(t *testing.T, l *Log, sealed, live int) {
	t.Helper()
	if s, n := l.kinds(); s != sealed || n != live {
		t.Fatalf("%d windows are sealed, %d live; want %d and %d", s, n, sealed, live)
	}
}

func newSealed(t *testing.T) *damaged {
	d := newDamaged(t)
	l := openLog(t, "data", Options{FS: d.disk})
	if err := sealAll(l); err != nil {
		t.Fatal(err)
	}
	wantKinds(t, l, 3, 1)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return d
}

// What is sealed is read as before: after a restart too, from every place, also by those who were reading, and by Walk.
func TestSealedWindowsReadTheSame(t *testing.T) {
	d := newDamaged(t)
	l := openLog(t, "data", Options{FS: d.disk})
	began := openReader(t, l, 1, d.frames[0].Start)
	expect(t, began, d.frames[0])
	if err := sealAll(l); err != nil {
		t.Fatal(err)
	}
	expect(t, began, d.frames[1:4]...)
	for range 2 {
		wantKinds(t, l, 3, 1)
		bytes := int64(0)
		for _, name := range d.list() {
			content, err := fs.ReadFile(d.disk, name, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			bytes += int64(len(content))
		}
		if s := l.State(); s.Bytes != bytes {
			t.Fatalf("state %+v, the files have %d bytes", s, bytes)
		}
		expect(t, openReader(t, l, 1, d.frames[0].Start), d.frames[0:4]...)
		expect(t, openReader(t, l, 1, d.frames[1].Start+7), d.frames[0:4]...) // continues a stream
		expect(t, openReader(t, l, 1, d.frames[2].Start), d.frames[2:4]...)
		expect(t, openReader(t, l, 3, d.frames[4].Start+5), d.frames[4:]...)
		expectTail(t, openReader(t, l, 3, l.State().End))
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		l = openLog(t, "data", Options{FS: d.disk})
	}
	frames, indexes := 0, 0
	if err := Walk(d.disk, "data", func(e Entry) error {
		if e.Err != nil {
			return e.Err
		}
		if e.Frame != nil {
			frames++
		}
		if e.Index != nil {
			indexes++
		}
		return nil
	}); err != nil || frames != len(d.frames) || indexes != 3 {
		t.Fatalf("walk: %d frames, %d indexes, %v", frames, indexes, err)
	}
}

// A window of many frames and streams, some over frames that stand alone, is entered at the right one.
func TestSealedWindowIsEnteredInPlace(t *testing.T) {
	l := openLog(t, "data", Options{FS: memfs.New()})
	rng := rand.New(rand.NewPCG(3, 3))
	var frames []*link.Frame
	at, stream := protocol.LSN(0x100000), uint32(0)
	for at < 0x200000 {
		length := min(2+rng.IntN(12000), int(0x200000-at))
		var f *link.Frame
		switch n := rng.IntN(10); {
		case n < 3 || length < 2:
			f = raw(1, at, length)
		case n == 3 || stream == 0:
			f = coded(1, at, length, 0)
			stream = f.Sum
		default:
			f = coded(1, at, length, stream)
		}
		frames = append(frames, mustAppend(t, l, f))
		at = f.End()
	}
	mustAppend(t, l, raw(1, at, 10))
	if err := errors.Join(l.Sync(), sealAll(l)); err != nil {
		t.Fatal(err)
	}
	wantKinds(t, l, 1, 1)
	for i, f := range frames {
		first := i
		for f.Continues && frames[first].Sum != f.Stream {
			first--
		}
		r := openReader(t, l, 1, f.Start+protocol.LSN(f.RawLen/2))
		got, err := r.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := sameFrame(got, frames[first]); err != nil {
			t.Fatalf("frame %d: %v", i, err)
		}
		expect(t, r, frames[first+1:]...)
	}
}

// sealedDamages is what can be wrong with sealed windows. Files 0 to 2 are sealed, 1 ends its timeline, 3 is live.
var sealedDamages = []struct {
	name      string
	damage    func(d *damaged)
	survivors int // 0: refused as corrupt
}{
	{"none", func(*damaged) {}, 8},
	{"leftover", func(d *damaged) {
		if err := fs.WriteFile(d.disk, d.files[0]+fs.TempSuffix, []byte("half")); err != nil {
			d.t.Fatal(err)
		}
	}, 8},
	{"cut off", func(d *damaged) { d.edit(d.files[2], cut(1)) }, 0},
	{"cut off in the end of the timeline", func(d *damaged) { d.edit(d.files[1], cut(60)) }, 0},
	{"longer", func(d *damaged) { d.edit(d.files[0], func(b []byte) []byte { return append(b, 0) }) }, 0},
	{"empty", func(d *damaged) { d.edit(d.files[0], func([]byte) []byte { return nil }) }, 0},
	{"missing in the middle", func(d *damaged) { d.remove(d.files[2]) }, 0},
	{"end of the timeline missing", func(d *damaged) { d.remove(d.files[1]) }, 0},
	{"oldest missing, as after retention", func(d *damaged) { d.remove(d.files[0]); d.frames = d.frames[2:] }, 6},
	{"newest missing", func(d *damaged) { d.remove(d.files[3]) }, 0},
	{"newest taken away on purpose", func(d *damaged) { d.remove(d.files[3]); forget(d) }, 5},
	{"next timeline taken away on purpose", func(d *damaged) { d.remove(d.files[3]); d.remove(d.files[2]); forget(d) }, 4},
	{"newest never made durable", func(d *damaged) { forget(d); d.edit(d.files[3], func([]byte) []byte { return nil }) }, 5},
}

func TestSealedDamage(t *testing.T) {
	for _, c := range sealedDamages {
		t.Run(c.name, func(t *testing.T) {
			d := newSealed(t)
			c.damage(d)
			n, err := d.survivors()
			var corrupt *CorruptError
			if n != c.survivors || n == 0 && (!errors.As(err, &corrupt) || corrupt.File == "") {
				t.Fatalf("%d frames survive, error %v; want %d", n, err, c.survivors)
			}
			if n == 0 || n == 8 {
				return
			}
			l := openLog(t, "data", Options{FS: d.disk}) // it goes on behind what is left
			s := l.State()
			f := mustAppend(t, l, raw(s.Timeline, s.End, 1000))
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			d.frames = append(d.frames[:n:n], f)
			if after, err := d.survivors(); after != n+1 {
				t.Fatalf("%d frames after another one, %v", after, err)
			}
		})
	}
}

// TestSealedEveryFlip: no damaged byte of a sealed window goes unnoticed.
func TestSealedEveryFlip(t *testing.T) {
	whole := newSealed(t)
	for _, name := range whole.files[:3] {
		content, err := fs.ReadFile(whole.disk, name, 1<<21)
		if err != nil {
			t.Fatal(err)
		}
		step := max(1, len(content)/150)
		for at := 0; at < len(content); at++ {
			inIndex := at < 2*link.WindowHeaderBytes || at > len(content)-80
			if !inIndex && at%step != 0 {
				continue
			}
			d := &damaged{t: t, disk: whole.disk.Kill(), frames: whole.frames, files: whole.files}
			d.edit(name, flip(at))
			err := d.readAll()
			var corrupt *CorruptError
			var version *link.VersionError
			if !errors.As(err, &version) && (!errors.As(err, &corrupt) || corrupt.File != name || corrupt.Timeline == 0) {
				t.Fatalf("byte %d of %s flipped: error %v", at, name, err)
			}
		}
	}
}

// FuzzOpenSealed opens a log in which any bytes stand for a sealed window.
func FuzzOpenSealed(f *testing.F) {
	whole := newSealed(&testing.T{})
	for _, name := range whole.files[:2] {
		content, err := fs.ReadFile(whole.disk, name, 1<<20)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, name := range whole.files[:2] {
			d := &damaged{t: t, disk: whole.disk.Kill(), frames: whole.frames, files: whole.files}
			d.edit(name, func([]byte) []byte { return b })
			_ = d.readAll()
		}
	})
}

// A window that retention removes while it is being sealed does not come back.
func TestRetainWhileSealing(t *testing.T) {
	d := newDamaged(t)
	l := openLog(t, "data", Options{FS: d.disk})
	err := sealWith(l, func(dst []byte, h link.WindowHeader, frames iter.Seq2[*link.Frame, error]) ([]byte, error) {
		if err := l.Retain(d.frames[4].Start); err != nil {
			t.Error(err)
		}
		return repack(dst, h, frames)
	})
	if err != nil {
		t.Fatal(err)
	}
	wantKinds(t, l, 1, 1)
	if _, err := d.disk.Open(path.Dir(d.files[0])); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("the directory of the removed timeline: %v", err)
	}
	if got := d.list(); len(got) != 2 {
		t.Fatalf("files %v", got)
	}
}

// A sealer that makes something else than the window, or fails, changes nothing; so does a full disk, after which it goes on.
func TestSealingFails(t *testing.T) {
	errSealer := errors.New("out of order")
	bad := map[string]SealFunc{
		"error": func(dst []byte, _ link.WindowHeader, _ iter.Seq2[*link.Frame, error]) ([]byte, error) {
			return dst, errSealer
		},
		"nothing": func(dst []byte, _ link.WindowHeader, _ iter.Seq2[*link.Frame, error]) ([]byte, error) {
			return dst, nil
		},
		"too little": func(dst []byte, h link.WindowHeader, frames iter.Seq2[*link.Frame, error]) ([]byte, error) {
			return repack(dst, h, func(yield func(*link.Frame, error) bool) {
				for f, err := range frames {
					yield(f, err)
					return
				}
			})
		},
		"of another system": func(dst []byte, h link.WindowHeader, frames iter.Seq2[*link.Frame, error]) ([]byte, error) {
			h.SystemID++
			return repack(dst, h, frames)
		},
	}
	for name, seal := range bad {
		t.Run(name, func(t *testing.T) {
			d := newDamaged(t)
			l := openLog(t, "data", Options{FS: d.disk})
			if err := sealWith(l, seal); err == nil {
				t.Fatal("no error")
			}
			wantKinds(t, l, 0, 4)
			expect(t, openReader(t, l, 1, d.frames[0].Start), d.frames[:4]...)
		})
	}
	d := newDamaged(t)
	l := openLog(t, "data", Options{FS: d.disk})
	d.disk.Inject(func(op memfs.Op) error {
		if op.Kind == "write" {
			return syscall.ENOSPC
		}
		return nil
	})
	if err := sealAll(l); !errors.Is(err, ErrFull) {
		t.Fatalf("on a full disk: %v", err)
	}
	d.disk.Inject(nil)
	wantKinds(t, l, 0, 4)
	if err := sealAll(l); err != nil {
		t.Fatal(err)
	}
	wantKinds(t, l, 3, 1)
}

// TestSealingGoesOn: the loop seals windows as they become complete, beside a writer, a syncer and readers, and passes over
// windows that it cannot seal.
func TestSealingGoesOn(t *testing.T) {
	registry := prometheus.NewRegistry()
	l := openLog(t, t.TempDir(), Options{Metrics: NewMetrics(registry)})
	frames := smallFrames(2500)
	mustAppend(t, l, frames[0])
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var readers, loops errgroup.Group
	for i := range 4 {
		readers.Go(func() error { return readFrom(ctx, l, frames, i*400) })
	}
	loops.Go(func() error { return syncUntil(ctx, l) })
	failed := protocol.LSN(0)
	loops.Go(func() error {
		return l.Seal(ctx, func(dst []byte, h link.WindowHeader, frames iter.Seq2[*link.Frame, error]) ([]byte, error) {
			if failed == 0 && h.Start > 0x500000 {
				failed = h.Start
				return dst, fmt.Errorf("%w: in this test", link.ErrCorrupt)
			}
			return repack(dst, h, frames)
		})
	})
	for _, f := range frames[1:] {
		mustAppend(t, l, f)
	}
	if err := readers.Wait(); err != nil {
		t.Fatal(err)
	}
	for changed := l.Changed(); ; changed = l.Changed() {
		if _, live := l.kinds(); live <= 2 { // the newest, and the one that failed
			break
		}
		<-changed
	}
	cancel()
	if err := loops.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := readFrom(t.Context(), l, frames, 0); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sealed, _ := l.kinds()
	for _, f := range families {
		if f.GetName() == "walproxy_spool_sealed_windows_total" && f.GetMetric()[0].GetCounter().GetValue() != float64(sealed) {
			t.Fatalf("%v, %d are", f, sealed)
		}
	}
}

// readFrom reads the frames, waiting for them, and opens another reader at number i.
func readFrom(ctx context.Context, l *Log, frames []*link.Frame, i int) error {
	r, err := l.OpenReader(1, frames[0].Start)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	for n, want := range frames {
		if n == i {
			_ = r.Close()
			if r, err = l.OpenReader(1, want.Start); err != nil {
				return err
			}
		}
		got, err := r.Next(ctx)
		if err != nil {
			return fmt.Errorf("frame %d: %w", n, err)
		}
		if err := sameFrame(got, want); err != nil {
			return fmt.Errorf("frame %d: %w", n, err)
		}
	}
	return nil
}

// A sealed window's file is what an archive stores: opened by its place, readable on when the window goes.
func TestOpenSealed(t *testing.T) {
	d := newSealed(t)
	l := openLog(t, "data", Options{FS: d.disk})
	windows := l.Windows()
	for i, w := range windows {
		file, h, err := l.OpenSealed(w.Timeline, w.Start)
		if !w.Sealed {
			if !errors.Is(err, ErrNotYet) {
				t.Fatalf("a live window: %v", err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Retain(w.End); err != nil {
			t.Fatal(err)
		}
		content := make([]byte, h.FileBytes())
		if _, err := file.ReadAt(content, 0); err != nil {
			t.Fatal(err)
		}
		if got, err := link.ReadWindow(content, nil); err != nil || got != h || h.End != w.End || w.Bytes != h.FileBytes() {
			t.Fatalf("window %+v: header %+v, %v", w, got, err)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
		var removed *RemovedError
		if _, _, err := l.OpenSealed(w.Timeline, w.Start); i < 3 && !errors.As(err, &removed) {
			t.Fatalf("a removed window: %v", err)
		}
	}
}
