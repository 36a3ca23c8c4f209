package inspect

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/recompress"
)

var update = flag.Bool("update", false, "write the golden files")

const (
	mib = 1 << 20
	// the top of a timeline's second window
	base = protocol.LSN(0x3000000)
)

// text returns bytes that compress the same way in every run.
func text(n int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	var b []byte
	for len(b) < n {
		b = fmt.Appendf(b, "record %d of page %d;", r.IntN(1000), len(b)/8192)
	}
	return b[:n]
}

// noise returns bytes that do not compress.
func noise(n int) []byte {
	r := rand.New(rand.NewPCG(3, 4))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.UintN(256))
	}
	return b
}

// builder writes window files as a spool lays them out.
type builder struct {
	t      *testing.T
	dir    string
	name   string
	bytes  []byte
	cursor link.Cursor
	w      *recompress.Writer
	tli    protocol.Timeline
	at     protocol.LSN
}

func newBuilder(t *testing.T, dir string) *builder {
	w, err := recompress.NewWriter(recompress.Options{Codec: recompress.Zstd, ResetDistance: mib})
	if err != nil {
		t.Fatal(err)
	}
	return &builder{t: t, dir: dir, w: w}
}

func (b *builder) window(tli protocol.Timeline, start protocol.LSN) {
	b.tli, b.at, b.cursor = tli, start, link.Cursor{}
	b.name = fmt.Sprintf("%08X/%016X.win", uint32(tli), uint64(start))
	b.bytes = link.WindowHeader{Kind: link.WindowLive, SystemID: 7300000000000000001, Timeline: tli, SegmentSize: 16 * mib,
		WALBlockSize: 8192, ResetDistance: mib, Start: start}.Append(nil)
}

func (b *builder) wal(wal []byte) {
	err := b.w.Write(b.tli, b.at, wal, func(f *link.Frame) error {
		b.bytes, b.at = b.cursor.Append(b.bytes, f), f.End()
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *builder) end(next protocol.Timeline) {
	f, err := link.NewTimelineEnd(b.tli, b.at, next, []byte("1\t0/3200000\tno recovery target specified\n"))
	if err != nil {
		b.t.Fatal(err)
	}
	b.bytes = b.cursor.Append(b.bytes, &f)
}

// seal puts the window so far into sealed form.
func (b *builder) seal() {
	h, err := link.DecodeWindowHeader(b.bytes)
	if err != nil {
		b.t.Fatal(err)
	}
	var sealed link.WindowBuilder
	sealed.Begin(nil, h)
	var cursor link.Cursor
	for rest := b.bytes[link.WindowHeaderBytes:]; len(rest) > 0; {
		f, n, err := cursor.Decode(rest)
		if err == nil {
			err = sealed.Add(&f)
		}
		if err != nil {
			b.t.Fatal(err)
		}
		rest = rest[n:]
	}
	if b.bytes, err = sealed.Finish(); err != nil {
		b.t.Fatal(err)
	}
}

func (b *builder) write() string {
	file := filepath.Join(b.dir, "spool", b.name)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(file, b.bytes, 0o600); err != nil {
		b.t.Fatal(err)
	}
	return file
}

// build makes a data directory of three windows over a fork, and returns the names of its window files.
func build(t *testing.T) (dir string, files []string) {
	dir = t.TempDir()
	b := newBuilder(t, dir)
	b.window(1, base+0x80000)
	b.wal(text(100_000))
	b.wal(text(20_000))
	b.wal(noise(5000))
	b.wal(text(0x80000 - 125_000))
	files = append(files, b.write())
	b.window(1, base+mib)
	b.wal(text(mib))
	b.w.Reset()
	files = append(files, b.write())
	b.window(1, base+2*mib)
	b.wal(text(50_000))
	b.end(2)
	files = append(files, b.write())
	b.window(2, b.at)
	b.wal(text(3000))
	b.wal(noise(100))
	files = append(files, b.write())
	return dir, files
}

// buildSealed makes a data directory of two sealed windows and a live one, and returns the names of its window files.
func buildSealed(t *testing.T) (dir string, files []string) {
	dir = t.TempDir()
	b := newBuilder(t, dir)
	b.window(1, base)
	b.wal(text(mib / 2))
	b.wal(text(mib / 2))
	b.seal()
	files = append(files, b.write())
	b.window(1, base+mib)
	b.wal(noise(3000))
	b.at -= 1000 // the rest was sent before the switch was known
	b.end(2)
	b.seal()
	files = append(files, b.write())
	b.window(2, b.at)
	b.wal(text(3000))
	return dir, append(files, b.write())
}

// TestSealed: sealed windows are listed with their index, and no damage in them goes unnoticed.
func TestSealed(t *testing.T) {
	dir, files := buildSealed(t)
	got, err := list(t, dir, Options{Check: true})
	if err != nil {
		t.Error(err)
	}
	golden(t, "sealed.txt", got)
	whole, err := os.ReadFile(files[1])
	if err != nil {
		t.Fatal(err)
	}
	damaged := func(name string, b []byte) {
		if err := os.WriteFile(files[1], b, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := list(t, dir, Options{}); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v\n%s", name, err, got)
		}
	}
	for at := 0; at < len(whole); at++ {
		if middle := at > 120 && at < len(whole)-120; middle && at%37 != 0 {
			continue
		}
		b := bytes.Clone(whole)
		b[at] ^= 4
		if version := at == 8 || at == 9; !version {
			damaged(fmt.Sprintf("byte %d", at), b)
		}
	}
	for _, n := range []int{1, 30, 100} {
		damaged(fmt.Sprintf("%d bytes cut off", n), whole[:len(whole)-n])
	}
	damaged("a byte more", append(bytes.Clone(whole), 0))
}

func list(t *testing.T, path string, o Options) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := List(&out, path, o)
	return out.String(), err
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || got != string(want) {
		t.Errorf("%s (%v): got\n%s\nwant\n%s", name, err, got, want)
	}
}

func TestGolden(t *testing.T) {
	dir, files := build(t)
	for name, c := range map[string]struct {
		path string
		o    Options
	}{
		"directory.txt": {dir, Options{}},
		"windows.txt":   {filepath.Join(dir, "spool"), Options{WindowsOnly: true}},
		"window.txt":    {files[3], Options{Check: true}},
	} {
		got, err := list(t, c.path, c.o)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		golden(t, name, got)
	}
}

// A frame that is cut off at the end of the newest window is no damage, anywhere else it is; so is whatever does not check.
func TestDamage(t *testing.T) {
	cases := []struct {
		name    string
		file    int
		change  func([]byte) []byte
		damaged bool
		want    string
	}{
		{"torn tail", 3, func(b []byte) []byte { return b[:len(b)-5] }, false, "incomplete frame"},
		{"torn header of the newest", 3, func(b []byte) []byte { return b[:50] }, false, "incomplete frame"},
		{"empty newest", 3, func([]byte) []byte { return nil }, false, "incomplete frame"},
		{"zeros behind the newest's frames", 3, func(b []byte) []byte { return append(b, make([]byte, 200<<10)...) }, false, ""},
		{"zeros and then something", 3, func(b []byte) []byte { return append(append(b, make([]byte, 200<<10)...), 1) }, true, "DAMAGED: "},
		{"zeros behind frames in the middle", 1, func(b []byte) []byte { return append(b, make([]byte, 1000)...) }, false, ""},
		{"torn in the middle", 1, func(b []byte) []byte { return b[:len(b)-5] }, true, "DAMAGED: link: more bytes needed, WAL from 0/3100000 on timeline 1"},
		{"flipped", 0, func(b []byte) []byte { b[500] ^= 1; return b }, true, "DAMAGED: corrupt frame at 0/3080000 on timeline 1: frame checksum"},
		{"header", 0, func(b []byte) []byte { b[20] ^= 1; return b }, true, "DAMAGED: link: corrupt window header: checksum"},
		{"another file", 2, func([]byte) []byte { return []byte("something else, long enough") }, true, "this is not a window file"},
		{"newer format", 2, func(b []byte) []byte { b[8] = 9; return b }, true, "unknown window format version 9"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir, files := build(t)
			content, err := os.ReadFile(files[c.file])
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(files[c.file], c.change(content), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := list(t, dir, Options{})
			if errors.Is(err, ErrDamaged) != c.damaged || err != nil && !c.damaged {
				t.Errorf("error %v, want damage: %t", err, c.damaged)
			}
			if !strings.Contains(got, c.want) || strings.Count(got, "window ") < 4 {
				t.Errorf("want %q and all windows in\n%s", c.want, got)
			}
		})
	}
}

func TestGapAndWrongWAL(t *testing.T) {
	dir, files := build(t)
	if err := os.Remove(files[1]); err != nil {
		t.Fatal(err)
	}
	got, err := list(t, dir, Options{WindowsOnly: true})
	if err != nil || !strings.Contains(got, "gap: 0/3100000 to 0/3200000 on timeline 1 is not here") {
		t.Errorf("%v\n%s", err, got)
	}
	// A frame whose own checksum is right and whose WAL is not what it claims is found by Check alone.
	b := newBuilder(t, t.TempDir())
	b.window(1, base)
	f := link.Frame{Timeline: 1, Start: base, RawLen: 3, RawSum: 7, Payload: []byte("abc")}
	f.Seal()
	b.bytes = b.cursor.Append(b.bytes, &f)
	file := b.write()
	if got, err := list(t, file, Options{}); err != nil {
		t.Errorf("%v\n%s", err, got)
	}
	if got, err := list(t, file, Options{Check: true}); !errors.Is(err, ErrDamaged) || !strings.Contains(got, "checksum of the decoded WAL") {
		t.Errorf("%v\n%s", err, got)
	}
	// A frame that jumps within its window.
	f.Start, f.RawSum = base+100, link.Checksum([]byte("abc"))
	f.Seal()
	b.bytes = b.cursor.Append(b.bytes, &f)
	if got, err := list(t, b.write(), Options{}); !errors.Is(err, ErrDamaged) || !strings.Contains(got, "expected 0/3000003") {
		t.Errorf("%v\n%s", err, got)
	}
}

func TestNothingToList(t *testing.T) {
	dir := t.TempDir()
	if _, err := list(t, dir, Options{}); err == nil || !strings.Contains(err.Error(), "is it a data directory?") {
		t.Errorf("empty directory: %v", err)
	}
	if _, err := list(t, filepath.Join(dir, "x"), Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	for content, want := range map[string]string{`{"system_identifier": 7}`: "is not a window file", "": "is not a window file", "WALPROXA...": "is an object of an archive"} {
		file := filepath.Join(t.TempDir(), "identity")
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := list(t, file, Options{}); err == nil || out != "" || errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v\n%s", content, err, out)
		}
	}
	if _, err := list(t, os.DevNull, Options{}); err == nil {
		t.Error("a device was listed")
	}
	if err := List(failing{}, build1(t), Options{}); err == nil || !strings.Contains(err.Error(), "no more room") {
		t.Errorf("output that fails: %v", err)
	}
}

func build1(t *testing.T) string { dir, _ := build(t); return dir }

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("no more room") }

// FuzzList: whatever a file holds, a listing of it ends, and finds it good or damaged; a record is found, not found, or damaged.
func FuzzList(f *testing.F) {
	b := &builder{}
	b.window(1, base)
	f.Add(b.bytes, uint64(base))
	frame := link.Frame{Timeline: 1, Start: base, RawLen: 3, RawSum: link.Checksum([]byte("abc")), Payload: []byte("abc")}
	frame.Seal()
	encoded := b.cursor.Append(b.bytes, &frame)
	f.Add(encoded, uint64(base))
	f.Add(append(bytes.Clone(encoded), make([]byte, 1000)...), uint64(base+1))
	f.Add(append(append(bytes.Clone(encoded), make([]byte, 1000)...), 1), uint64(base+1))
	frame.Start += 100 // a frame that begins behind the record
	frame.Seal()
	f.Add((&link.Cursor{}).Append(bytes.Clone(b.bytes), &frame), uint64(base+8))
	file := filepath.Join(f.TempDir(), "0.win")
	f.Fuzz(func(t *testing.T, content []byte, lsn uint64) {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := list(t, file, Options{Check: true}); err != nil && !errors.Is(err, ErrDamaged) {
			t.Fatalf("%v\n%s", err, out)
		}
		if err := Record(io.Discard, file, protocol.LSN(lsn)); err != nil && !errors.Is(err, ErrNoRecord) && !errors.Is(err, ErrDamaged) {
			t.Fatal(err)
		}
	})
}
