package spool

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/slots/fs"
	"walproxy/slots/fs/memfs"
	"walproxy/slots/statefile"
)

// damaged is a closed log on a memory disk: timeline 1 with two windows, timeline 3 with two windows.
type damaged struct {
	t      *testing.T
	disk   *memfs.FS
	frames []*link.Frame
	files  []string // window files in order
}

func newDamaged(t *testing.T) *damaged {
	d := &damaged{t: t, disk: memfs.New()}
	l := openLog(t, "data", Options{FS: d.disk})
	add := func(f *link.Frame) *link.Frame {
		d.frames = append(d.frames, mustAppend(t, l, f))
		return f
	}
	a := add(coded(1, 0x4000000-3000, 1000, 0))
	add(coded(1, a.End(), 2000, a.Sum))
	add(raw(1, 0x4000000, 700))
	add(endFrame(t, 1, 0x4000000+700, 3))
	b := add(coded(3, 0x4000000+700, distance-700, 0))
	c := add(coded(3, b.End(), 900, 0))
	c = add(coded(3, c.End(), 800, c.Sum))
	add(coded(3, c.End(), 600, c.Stream))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	d.files = d.list()
	return d
}

func (d *damaged) list() (files []string) {
	err := Walk(d.disk, "data", func(e Entry) error {
		if e.Header != nil {
			files = append(files, e.File)
		}
		return nil
	})
	if err != nil {
		d.t.Fatal(err)
	}
	return files
}

func (d *damaged) edit(name string, change func([]byte) []byte) {
	d.t.Helper()
	content, err := fs.ReadFile(d.disk, name, 64<<20)
	if err != nil {
		d.t.Fatal(err)
	}
	if err := fs.WriteFile(d.disk, name, change(content)); err != nil {
		d.t.Fatal(err)
	}
}

func (d *damaged) remove(name string) {
	d.t.Helper()
	if err := d.disk.Remove(name); err != nil {
		d.t.Fatal(err)
	}
}

// survivors opens the log and returns how many frames it holds, which must be the first ones.
func (d *damaged) survivors() (int, error) {
	d.t.Helper()
	l, err := Open("data", Options{FS: d.disk, ResetDistance: distance})
	if err != nil {
		return 0, err
	}
	defer l.Close()
	m := &model{t: d.t, log: l}
	n := 0
	for _, span := range l.Timelines() {
		r := openReader(d.t, l, span.Timeline, span.Begin)
		for _, f := range m.drain(r) {
			if err := sameFrame(f, d.frames[n]); err != nil {
				d.t.Fatal(err)
			}
			n++
		}
		_ = r.Close()
	}
	return n, nil
}

// cut removes the last n bytes of what frames there are: zeros that were written ahead are not counted.
func cut(n int) func([]byte) []byte {
	return func(b []byte) []byte {
		b = bytes.TrimRight(b, "\x00")
		return b[:len(b)-n]
	}
}

func flip(offset int) func([]byte) []byte {
	return func(b []byte) []byte {
		if offset < 0 {
			offset += len(b)
		}
		b[offset] ^= 0x10
		return b
	}
}

func zeroFrom(n int) func([]byte) []byte {
	return func(b []byte) []byte {
		clear(b[len(b)-n:])
		return b
	}
}

// lastFrame is how long the last frame of the newest window is: payload and compact header.
const lastFrame = 300 + 1 + 2 + 2 + 8

// forget loses the mark of the durable length, as a loss of power may.
func forget(d *damaged) { d.remove("data/flushed") }

// damages is the table of what can be wrong with the files, and of how many of the eight frames survive it.
var damages = []struct {
	name      string
	damage    func(d *damaged)
	survivors int // 0: refused as corrupt
}{
	{"none", func(d *damaged) {}, 8},
	{"mark lost", forget, 8},
	{"mark damaged", func(d *damaged) { d.edit("data/flushed", flip(20)) }, 8},
	{"last frame incomplete", func(d *damaged) { forget(d); d.edit(d.files[3], cut(5)) }, 7},
	{"last frame incomplete, below the mark", func(d *damaged) { d.edit(d.files[3], cut(5)) }, 0},
	{"last frame's header incomplete", func(d *damaged) { forget(d); d.edit(d.files[3], cut(lastFrame-3)) }, 7},
	{"last frame missing, below the mark", func(d *damaged) { d.edit(d.files[3], cut(lastFrame)) }, 0},
	{"last frame flipped", func(d *damaged) { forget(d); d.edit(d.files[3], flip(-100)) }, 7},
	{"last frame flipped, below the mark", func(d *damaged) { d.edit(d.files[3], flip(-100)) }, 0},
	{"last frame zeroed", func(d *damaged) { forget(d); d.edit(d.files[3], zeroFrom(lastFrame)) }, 7},
	{"zeros appended", func(d *damaged) {
		d.edit(d.files[3], func(b []byte) []byte { return append(b, make([]byte, 4096)...) })
	}, 8},
	{"garbage appended", func(d *damaged) {
		d.edit(d.files[3], func(b []byte) []byte { return append(b, strings.Repeat("\x01", 1000)...) })
	}, 0},
	{"frame before the last flipped", func(d *damaged) { forget(d); d.edit(d.files[3], flip(-100-lastFrame)) }, 0},
	{"first frame of the newest window flipped", func(d *damaged) { forget(d); d.edit(d.files[3], flip(200)) }, 0},
	{"header of the newest window flipped", func(d *damaged) { forget(d); d.edit(d.files[3], flip(40)) }, 0},
	{"newest window empty", func(d *damaged) { forget(d); d.edit(d.files[3], func([]byte) []byte { return nil }) }, 5},
	{"newest window with half a header", func(d *damaged) { forget(d); d.edit(d.files[3], func(b []byte) []byte { return b[:40] }) }, 5},
	{"newest window without frames", func(d *damaged) {
		forget(d)
		d.edit(d.files[3], func(b []byte) []byte { return b[:link.WindowHeaderBytes] })
	}, 5},
	{"newest window empty, below the mark", func(d *damaged) { d.edit(d.files[3], func([]byte) []byte { return nil }) }, 0},
	{"newest window missing", func(d *damaged) { d.remove(d.files[3]) }, 0},
	{"all windows missing", func(d *damaged) {
		for _, file := range d.files {
			d.remove(file)
		}
	}, 0},
	{"window in the middle missing", func(d *damaged) { d.remove(d.files[2]) }, 0},
	{"window with the timeline's end missing", func(d *damaged) { d.remove(d.files[1]) }, 0},
	{"oldest window missing, as after retention", func(d *damaged) { d.remove(d.files[0]); d.frames = d.frames[2:] }, 6},
	{"header of an older window flipped", func(d *damaged) { d.edit(d.files[0], flip(30)) }, 0},
	{"end of the timeline flipped", func(d *damaged) { d.edit(d.files[1], flip(-3)) }, 0},
	{"end of the timeline cut off", func(d *damaged) { d.edit(d.files[1], cut(1)) }, 0},
	{"window under another name", func(d *damaged) {
		if err := d.disk.Rename(d.files[0], path.Dir(d.files[0])+"/0000000003F00000.win"); err != nil {
			d.t.Fatal(err)
		}
	}, 0},
	{"identity missing", func(d *damaged) { d.remove("data/identity") }, 0},
	{"identity flipped", func(d *damaged) { d.edit("data/identity", flip(60)) }, 0},
	{"history damaged", func(d *damaged) {
		d.edit("data/history/00000003.history", func([]byte) []byte { return []byte("3 nonsense") })
	}, 0},
	{"leftovers", func(d *damaged) {
		for _, name := range []string{"data/identity.tmp", "data/history/00000003.history.tmp", d.files[0] + ".tmp"} {
			if err := fs.WriteFile(d.disk, name, []byte("half")); err != nil {
				d.t.Fatal(err)
			}
		}
	}, 8},
}

func TestDamage(t *testing.T) {
	for _, c := range damages {
		t.Run(c.name, func(t *testing.T) {
			d := newDamaged(t)
			c.damage(d)
			n, err := d.survivors()
			if n != c.survivors {
				t.Fatalf("%d frames survive, error %v; want %d", n, err, c.survivors)
			}
			var corrupt *CorruptError
			if n == 0 && (!errors.As(err, &corrupt) || !errors.Is(err, link.ErrCorrupt) || corrupt.File == "" || corrupt.Hint == "") {
				t.Fatalf("got error %v, want a CorruptError", err)
			}
		})
	}
}

// TestEveryFlip flips each byte of each window in turn. What Sync confirmed is never dropped: the log is refused, or it is
// opened and the reader that comes to the damage says so.
func TestEveryFlip(t *testing.T) {
	whole := newDamaged(t)
	for _, name := range whole.files {
		content, err := fs.ReadFile(whole.disk, name, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		step := max(1, len(content)/100)
		for at := rand.IntN(step); at < len(content); at += step {
			d := &damaged{t: t, disk: whole.disk.Kill(), frames: whole.frames, files: whole.files}
			d.edit(name, flip(at))
			err := d.readAll()
			var version *link.VersionError
			if !errors.Is(err, link.ErrCorrupt) && !errors.As(err, &version) {
				t.Fatalf("byte %d of %s flipped: error %v", at, name, err)
			}
		}
	}
}

// readAll opens the log and reads all of it.
func (d *damaged) readAll() error {
	l, err := Open("data", Options{FS: d.disk, ResetDistance: distance})
	if err != nil {
		return err
	}
	defer l.Close()
	for _, span := range l.Timelines() {
		r := openReader(d.t, l, span.Timeline, span.Begin)
		for !r.ended {
			ok, err := r.try()
			if err != nil {
				return err
			}
			if !ok {
				break
			}
		}
	}
	return nil
}

func TestNewerVersionsAreNotCorrupt(t *testing.T) {
	d := newDamaged(t)
	d.edit(d.files[3], func(b []byte) []byte { b[8] = 9; return b })
	_, err := d.survivors()
	var version *link.VersionError
	if !errors.As(err, &version) || errors.Is(err, link.ErrCorrupt) {
		t.Fatalf("window of version 9: %v", err)
	}
	d = newDamaged(t)
	d.edit("data/identity", func(b []byte) []byte { return []byte(strings.Replace(string(b), "identity 1", "identity 2", 1)) })
	_, err = d.survivors()
	var newer *statefile.VersionError
	if !errors.As(err, &newer) || errors.Is(err, link.ErrCorrupt) {
		t.Fatalf("identity of version 2: %v", err)
	}
}

func TestWalk(t *testing.T) {
	d := newDamaged(t)
	var frames []*link.Frame
	headers := 0
	visit := func(e Entry) error {
		switch {
		case e.Err != nil:
			t.Fatalf("%s at %d: %v", e.File, e.Offset, e.Err)
		case e.Header != nil:
			headers++
		default:
			f := *e.Frame
			f.Payload = slices.Clone(f.Payload)
			frames = append(frames, &f)
		}
		return nil
	}
	for _, name := range []string{"data", "data/spool", "data/spool/00000003", d.files[0]} {
		frames, headers = nil, 0
		if err := Walk(d.disk, name, visit); err != nil {
			t.Fatal(err)
		}
		want := map[string][]*link.Frame{"data": d.frames, "data/spool": d.frames, "data/spool/00000003": d.frames[4:], d.files[0]: d.frames[:2]}[name]
		if len(frames) != len(want) || headers == 0 {
			t.Fatalf("%s: %d frames, %d headers", name, len(frames), headers)
		}
		for i := range want {
			if err := sameFrame(frames[i], want[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	d.edit(d.files[3], cut(2))
	var last Entry
	if err := Walk(d.disk, "data", func(e Entry) error { last = e; return nil }); err != nil || !errors.Is(last.Err, link.ErrShort) {
		t.Fatalf("walk with a torn tail: %v, last entry %+v", err, last)
	}
	if err := Walk(d.disk, "data/history", visit); err == nil {
		t.Fatal("a directory without a spool was walked")
	}
}

func FuzzDecodeMarker(f *testing.F) {
	f.Add(marker{timeline: 1, start: 0x5000028, size: 4096}.append(nil))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		m := decodeMarker(b)
		if m != (marker{}) && string(m.append(nil)) != string(b) {
			t.Fatalf("%x decodes to %+v, which is written otherwise", b, m)
		}
	})
}

func FuzzDecodeIdentity(f *testing.F) {
	content, err := encodeIdentity(identity)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(content)
	f.Fuzz(func(t *testing.T, b []byte) {
		id, err := decodeIdentity(b)
		if err != nil {
			return
		}
		again, err := encodeIdentity(id)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := decodeIdentity(again); err != nil || back.SystemID != id.SystemID || back.SegmentSize != id.SegmentSize {
			t.Fatalf("identity %+v comes back as %+v, %v", id, back, err)
		}
	})
}

// FuzzOpenWindow opens a log whose newest window holds any bytes behind its header: it is refused or read, never a panic.
func FuzzOpenWindow(f *testing.F) {
	seed := raw(1, 0x100000, 300)
	var cursor link.Cursor
	encoded := cursor.Append(nil, seed)
	f.Add(encoded)
	f.Add(append(slices.Clone(encoded), encoded[:50]...))
	f.Add(append(slices.Clone(encoded), make([]byte, 1000)...))
	f.Add(append(append(slices.Clone(encoded), encoded[:50]...), make([]byte, 1000)...))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		d := &damaged{t: t, disk: memfs.New()}
		l := openLog(t, "data", Options{FS: d.disk})
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		header := link.WindowHeader{Kind: link.WindowLive, SystemID: identity.SystemID, Timeline: 1, SegmentSize: identity.SegmentSize,
			WALBlockSize: identity.WALBlockSize, ResetDistance: distance, Start: protocol.LSN(0x100000)}
		name := windowPath("data/spool", 1, 0x100000)
		if err := d.disk.MkdirAll(path.Dir(name)); err != nil {
			t.Fatal(err)
		}
		if err := fs.WriteFile(d.disk, name, append(header.Append(nil), b...)); err != nil {
			t.Fatal(err)
		}
		_ = d.readAll()
	})
}
