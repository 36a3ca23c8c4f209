package spool

import (
	"errors"
	"fmt"
	"testing"

	"walproxy/protocol/link"
	"walproxy/slots/fs/memfs"
)

// fileBytes returns the length of a file.
func fileBytes(t *testing.T, disk *memfs.FS, name string) int64 {
	t.Helper()
	file, err := disk.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	size, err := file.Size()
	if err != nil {
		t.Fatal(err)
	}
	return size
}

// TestFramesOverwriteZeros: the newest window's file keeps its length while small frames come in, and gets that of its frames when it
// is complete, when its timeline ends, and when the log is closed. What a crash leaves behind the frames is no damage.
func TestFramesOverwriteZeros(t *testing.T) {
	d := &damaged{t: t, disk: memfs.New()}
	l := openLog(t, "data", Options{FS: d.disk})
	add := func(f *link.Frame) { d.frames = append(d.frames, mustAppend(t, l, f)) }
	add(raw(1, 0x400000, 100))
	for range 50 {
		add(raw(1, l.State().End, 300))
		if got := fileBytes(t, d.disk, l.current.path); got != aheadBytes {
			t.Fatalf("%d bytes after %d frames", got, len(d.frames))
		}
	}
	for range 8 {
		add(raw(1, l.State().End, 9000))
	}
	if got := fileBytes(t, d.disk, l.current.path); got != 2*aheadBytes {
		t.Fatalf("%d bytes after %d frames", got, len(d.frames))
	}
	add(raw(1, l.State().End, 2*aheadBytes)) // a large frame brings no zeros with it
	exact := func(w *window) {
		t.Helper()
		if got, want := fileBytes(t, d.disk, w.path), w.size.Load(); got != want {
			t.Fatalf("%s has %d bytes, its frames end at %d", w.path, got, want)
		}
	}
	exact(l.current)
	add(raw(1, l.State().End, 10))
	old := l.current
	add(filling(l.State().End, 40))
	add(raw(1, l.State().End, 200))
	exact(old)
	add(endFrame(t, 1, l.State().End, 2))
	old = l.current
	killed, walked := d.disk.Kill(), 0
	if err := Walk(killed, "data", func(e Entry) error {
		if e.Frame != nil {
			walked++
		}
		return e.Err
	}); err != nil || walked != len(d.frames) {
		t.Fatalf("%d frames of %d, %v", walked, len(d.frames), err)
	}
	running := d.disk
	d.disk = killed
	if n, err := d.survivors(); n != len(d.frames) || err != nil {
		t.Fatalf("%d frames of %d survive, %v", n, len(d.frames), err)
	}
	d.disk = running
	add(raw(2, l.State().End, 200))
	exact(old)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	exact(l.current)
	if n, err := d.survivors(); n != len(d.frames) || err != nil {
		t.Fatalf("%d frames of %d, %v", n, len(d.frames), err)
	}
}

// TestWalkBesideFramesInProgress: of a frame that is being written over zeros, some may be there, as when a crash cut it.
func TestWalkBesideFramesInProgress(t *testing.T) {
	d := &damaged{t: t, disk: memfs.New()}
	l := openLog(t, "data", Options{FS: d.disk})
	mustAppend(t, l, raw(1, 0x400000, 100))
	size := l.current.size.Load()
	mustAppend(t, l, raw(1, l.State().End, 5000))
	d.disk = d.disk.Kill()
	for _, c := range []struct {
		kept  int64
		short bool
	}{{4000, true}, {1000, true}, {100, true}, {0, false}} {
		d.edit(l.current.path, func(b []byte) []byte { clear(b[size+c.kept:]); return b })
		frames, short := 0, false
		if err := Walk(d.disk, "data", func(e Entry) error {
			if e.Frame != nil {
				frames++
			}
			short = e.Err == link.ErrShort
			return nil
		}); err != nil || frames != 1 || short != c.short {
			t.Errorf("%d bytes of a frame: %d frames, short %t, %v", c.kept, frames, short, err)
		}
	}
}

// TestWalkFindsDamageOfLastFrame: a last frame that is all there and fails its checksum is damage, with and without zeros behind it.
func TestWalkFindsDamageOfLastFrame(t *testing.T) {
	for _, payload := range []int{3000, 2 * aheadBytes} {
		d := &damaged{t: t, disk: memfs.New()}
		l := openLog(t, "data", Options{FS: d.disk})
		mustAppend(t, l, raw(1, 0x400000, 100))
		mustAppend(t, l, raw(1, l.State().End, payload))
		end := l.current.size.Load()
		d.disk = d.disk.Kill()
		d.edit(l.current.path, flip(int(end)-300))
		var found error
		if err := Walk(d.disk, "data", func(e Entry) error { found = e.Err; return nil }); err != nil || !errors.Is(found, link.ErrCorrupt) {
			t.Errorf("last frame of %d bytes, damaged: %v, %v", payload, found, err)
		}
	}
}

// TestWalkBesideACompletedWindow: a window whose file gets the length of its frames while it is walked has no damage.
func TestWalkBesideACompletedWindow(t *testing.T) {
	for completeAt := range 3 { // header, first frame, second frame
		disk := memfs.New()
		l := openLog(t, "data", Options{FS: disk})
		mustAppend(t, l, raw(1, 0x400000, 100))
		mustAppend(t, l, filling(l.State().End, 40))
		file, next := l.current.path, raw(1, l.State().End, 100)
		seen := 0
		err := WalkWindow(disk, file, func(e Entry) error {
			if e.Err != nil {
				return e.Err
			}
			if seen == completeAt {
				mustAppend(t, l, next)
			}
			seen++
			return nil
		})
		if err != nil || seen != 3 {
			t.Errorf("window completed at entry %d: %d entries, %v", completeAt, seen, err)
		}
	}
}

// TestWalkBesideAWindowThatBegins: the zeros ahead of a window's first frame come before its header.
func TestWalkBesideAWindowThatBegins(t *testing.T) {
	for _, length := range []int{0, 10, 100, aheadBytes} {
		d := &damaged{t: t, disk: memfs.New()}
		l := openLog(t, "data", Options{FS: d.disk})
		mustAppend(t, l, raw(1, 0x400000, 100))
		d.disk = d.disk.Kill()
		d.edit(l.current.path, func([]byte) []byte { return make([]byte, length) })
		entries := 0
		if err := Walk(d.disk, "data", func(e Entry) error {
			if entries++; !errors.Is(e.Err, link.ErrShort) {
				return fmt.Errorf("entry %+v", e)
			}
			return nil
		}); err != nil || entries != 1 {
			t.Errorf("%d zeros: %d entries, %v", length, entries, err)
		}
	}
}
