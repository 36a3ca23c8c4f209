package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/recompress"
)

// inputs writes all sorts of WAL and returns the paths with their lengths.
func inputs(t testing.TB) map[string]int64 {
	t.Helper()
	dir := t.TempDir()
	g := generate(3*mib, 2*mib+mib/2)
	whole := filepath.Join(dir, "whole")
	if err := os.Mkdir(whole, 0o755); err != nil {
		t.Fatal(err)
	}
	g.segments(t, whole)
	write(t, filepath.Join(whole, "00000002.history"), []byte("1\t0/600000\tno recovery target specified\n"))
	noise := make([]byte, 300_000)
	r := rand.New(rand.NewPCG(2, 3))
	for i := range noise {
		noise[i] = byte(r.Uint32())
	}
	paths := map[string]int64{whole: 3 * mib}
	add := func(name string, b []byte) {
		write(t, filepath.Join(dir, name), b)
		paths[filepath.Join(dir, name)] = int64(len(b))
	}
	add(protocol.SegmentName(1, 4*mib, mib), g.bytes[mib:2*mib]) // from the middle of a life: it starts with a continued record
	add("any name", g.bytes[mib:2*mib])
	add(protocol.SegmentName(1, 5*mib, mib)+".partial", g.bytes[2*mib:2*mib+100_000])
	add("mid-page", g.bytes[12_345:400_000])
	add("garbage", noise)
	add("garbage behind WAL", append(slices.Clone(g.bytes[:200_000]), noise...))
	add("zeros", make([]byte, 100_000))
	add(protocol.SegmentName(9, 77*mib, mib), g.bytes[:mib]) // recycled: its pages have other addresses
	add("one byte", []byte{1})
	add("nothing", nil)
	return paths
}

// Whatever the input and however frames are cut, it comes back; every byte is counted once, and by kind too; the stored size does
// not hang on the number of processors.
func TestRunIdentical(t *testing.T) {
	all := inputs(t)
	paths := slices.Sorted(maps.Keys(all))
	for _, codec := range []recompress.Codec{recompress.Auto, recompress.Model, recompress.None} {
		for _, cut := range []Cut{{}, {Commits: true}, {Bytes: 50_000}} {
			t.Run(fmt.Sprint(codec, ", ", cut), func(t *testing.T) {
				o := Options{Recompress: recompress.Options{Codec: codec, Level: 1, ResetDistance: mib}, Cut: cut, CPUs: 1, ByKind: true}
				one, err := Run(t.Context(), paths, o)
				if err != nil {
					t.Fatal(err)
				}
				o.CPUs, o.ByKind = 3, false
				three, err := Run(t.Context(), paths, o)
				if err != nil {
					t.Fatal(err)
				}
				var total, stored int64
				for i, in := range one.Inputs {
					if in.Path != paths[i] || in.RawBytes != all[in.Path] || !in.Identical || in.PeakMemoryBytes <= 0 {
						t.Errorf("%+v, want %d bytes of %s", in, all[paths[i]], paths[i])
					}
					if other := three.Inputs[i]; other.EncodedBytes != in.EncodedBytes || other.RawFallbackFrames != in.RawFallbackFrames {
						t.Errorf("with 3 processors %+v, with 1 %+v", other, in)
					}
					var kinds int64
					for _, k := range in.ByKind {
						kinds += k.RawBytes
					}
					if kinds != in.RawBytes {
						t.Errorf("%s: kinds are %d bytes of %d: %+v", in.Path, kinds, in.RawBytes, in.ByKind)
					}
					total, stored = total+in.RawBytes, stored+in.EncodedBytes
				}
				if sum := one.Total; sum.RawBytes != total || sum.EncodedBytes != stored || !sum.Identical || sum.EncodeMBPerS <= 0 || sum.DecodeMBPerS <= 0 {
					t.Errorf("total %+v, want %d bytes stored in %d", sum, total, stored)
				}
			})
		}
	}
}

// What is stored of a stream in raw frames can be computed: its bytes and the headers of windows and frames.
func TestEncodedBytesCountHeaders(t *testing.T) {
	dir := t.TempDir()
	generate(3*mib, 3*mib).segments(t, dir)
	report, err := Run(t.Context(), []string{dir}, Options{
		Recompress: recompress.Options{Codec: recompress.None, ResetDistance: 2 * mib}, Cut: Cut{Bytes: 700_000},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := int64(0)
	for _, window := range [][]int{{700_000, mib - 700_000}, {700_000, 700_000, 2*mib - 1_400_000}, {700_000, mib - 700_000}} {
		cursor, b := link.Cursor{}, link.WindowHeader{}.Append(nil)
		for i, n := range window {
			f := link.Frame{Timeline: 1, Start: cursor.Next, RawLen: uint32(n), Payload: make([]byte, n)}
			if i == 0 {
				f.Start = 8 * mib
			}
			f.Seal()
			b = cursor.Append(b, &f)
		}
		want += int64(len(b))
	}
	if got := report.Total; got.RawBytes != 4*mib || got.EncodedBytes != want || got.RawFallbackFrames != 0 {
		t.Errorf("%+v, want %d bytes stored", got, want)
	}
}

// Without cuts, what is stored and counted is a sealed window, index included.
func TestSealed(t *testing.T) {
	dir := t.TempDir()
	generate(3*mib, mib/2).segments(t, dir)
	streams, err := findStreams(dir)
	if err != nil {
		t.Fatal(err)
	}
	w, err := newWorker(Options{Recompress: recompress.Options{Codec: recompress.Model}}.withDefaults())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.do(window{stream: &streams[0], start: 3 * mib, bytes: mib}); err != nil {
		t.Fatal(err)
	}
	h, err := link.ReadWindow(w.stored, nil)
	if err != nil || h.Kind != link.WindowSealed || h.Start != 3*mib || h.End != 4*mib || h.SystemID != 7 || h.FileBytes() != w.tally.encoded || w.tally.frames != 4 {
		t.Errorf("%+v, %v, %d bytes in %d frames", h, err, w.tally.encoded, w.tally.frames)
	}
}

// Other bytes in a good frame, and damage, are told from WAL that came back.
func TestDifferent(t *testing.T) {
	dir := t.TempDir()
	generate(3*mib, mib/2).segments(t, dir)
	streams, err := findStreams(dir)
	if err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(w *worker, f *link.Frame){
		"other bytes": func(_ *worker, f *link.Frame) {
			f.Payload = append([]byte(nil), f.Payload...)
			f.Payload[1000]++
			f.RawSum = link.Checksum(f.Payload)
			f.Seal()
		},
		"damage": func(_ *worker, f *link.Frame) { f.Sum++ },
	} {
		w, err := newWorker(Options{Recompress: recompress.Options{Codec: recompress.None}, Cut: Cut{Bytes: 2 * mib}}.withDefaults())
		if err != nil {
			t.Fatal(err)
		}
		emit := w.emit
		w.emit = func(f *link.Frame) error {
			spoil(w, f)
			return emit(f)
		}
		if err := w.do(window{stream: &streams[0], start: 3 * mib, bytes: mib}); err != nil {
			t.Fatal(err)
		}
		if !errors.Is(w.tally.different, ErrDifferent) || w.tally.result(w.options).Identical {
			t.Errorf("%s: %v", name, w.tally.different)
		}
	}
}

func TestCancelled(t *testing.T) {
	dir := t.TempDir()
	generate(3*mib, 2*mib).segments(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o := Options{Recompress: recompress.Options{Level: 1, ResetDistance: mib}, CPUs: 1, Progress: func(int64, int64) { cancel() }}
	if report, err := Run(ctx, []string{dir}, o); !errors.Is(err, context.Canceled) || report != nil {
		t.Errorf("%+v, %v", report, err)
	}
}

// FuzzFile: any file comes back, and each of its bytes is of one kind.
func FuzzFile(f *testing.F) {
	g := generate(3*mib, 20_000)
	f.Add(g.bytes, true)
	f.Add(g.bytes[5000:], false)
	f.Add(make([]byte, 9000), true)
	f.Add([]byte{}, false)
	path := filepath.Join(f.TempDir(), fmt.Sprint("wal", os.Getpid()))
	workers := map[bool]*worker{}
	for _, commits := range []bool{false, true} { // else sealed
		w, err := newWorker(Options{Recompress: recompress.Options{Codec: recompress.None, ResetDistance: mib}, Cut: Cut{Commits: commits}})
		if err != nil {
			f.Fatal(err)
		}
		workers[commits] = w
	}
	f.Fuzz(func(t *testing.T, b []byte, commits bool) {
		write(t, path, b)
		streams, err := findStreams(path)
		if err != nil {
			t.Fatal(err)
		}
		w := workers[commits]
		w.tally = newTally()
		streams[0].windows(mib, func(win window) bool {
			if err := w.do(win); err != nil {
				t.Fatal(err)
			}
			return true
		})
		kinds, err := countKinds(t.Context(), streams, w.tally)
		if err != nil {
			t.Fatal(err)
		}
		sum := int64(0)
		for _, k := range kinds {
			sum += k.RawBytes
		}
		if size := int64(len(b)); w.tally.different != nil || w.tally.raw != size || sum != size {
			t.Fatalf("%d bytes of %d, kinds %d, %v", w.tally.raw, size, sum, w.tally.different)
		}
	})
}

// With a policy, too, which worker codes a window does not matter.
func TestSameSizeOnAnyProcessors(t *testing.T) {
	dir := t.TempDir()
	generate(3*mib, 4*mib).segments(t, dir)
	o := recompress.Options{Codec: recompress.Zstd, Level: 1, ResetDistance: mib, MaxRecordBytes: 4000, RecordThreshold: 300, Compress: recompress.CompressLogical}
	for _, cut := range []Cut{{}, {Commits: true}} {
		first := int64(0)
		for _, cpus := range []int{1, 2, 8, 8} {
			report, err := Run(t.Context(), []string{dir}, Options{Recompress: o, Cut: cut, CPUs: cpus})
			if err != nil {
				t.Fatal(err)
			}
			if n := report.Total.EncodedBytes; first == 0 {
				first = n
			} else if n != first {
				t.Errorf("%s: %d bytes stored on %d processors, %d on one", cut, n, cpus, first)
			}
		}
	}
}
