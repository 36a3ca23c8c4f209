package recompress

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"os"
	"reflect"
	"testing"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/protocol/wal/waltest"
)

// each yields frames as a spool does: valid until the next one.
func each(frames []link.Frame) iter.Seq2[*link.Frame, error] {
	return func(yield func(*link.Frame, error) bool) {
		var payload []byte
		var f link.Frame
		for i := range frames {
			f = frames[i]
			payload = append(payload[:0], f.Payload...)
			f.Payload = payload
			if !yield(&f, nil) {
				return
			}
			clear(payload)
		}
	}
}

func windowHeader(start protocol.LSN) link.WindowHeader {
	return link.WindowHeader{Kind: link.WindowLive, SystemID: 5, Timeline: 1, SegmentSize: 16 << 20, WALBlockSize: 8192, ResetDistance: mib, Start: start}
}

func mustSealer(t testing.TB, o Options) *Sealer {
	t.Helper()
	s, err := NewSealer(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// unseal decodes a sealed window, its timeline's end apart, and returns its frames too.
func unseal(t testing.TB, window []byte) (wal []byte, frames []link.Frame) {
	t.Helper()
	reader := mustReader(t, Options{ResetDistance: mib})
	if _, err := link.ReadWindow(window, func(f *link.Frame) (err error) {
		frames = append(frames, *f)
		wal, err = reader.Decode(wal, f)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return wal, frames
}

// Whatever the live frames are, the sealed window holds the same WAL, is no larger than they are but for the index, and is the
// same on every run, with whatever the sealer did before.
func TestSealAnything(t *testing.T) {
	r := waltest.Random(t)
	reused := mustSealer(t, Options{Codec: Zstd, ResetDistance: 4 * mib})
	for round := range 12 {
		codec := []Codec{Zstd, Zstd, None, Model}[round%4]
		start := protocol.LSN(r.Uint64N(1<<40)).Floor(mib) + protocol.LSN(r.IntN(2)*r.IntN(mib))
		length := 1 + r.IntN(int(start.Next(mib)-start))
		if codec == Model { // what is no WAL is slow work for it
			length = min(length, 20_000)
		}
		wal := makeWAL(r, length)
		for range r.IntN(4) {
			at := r.IntN(length)
			copy(wal[at:], noise(r, r.IntN(length-at)+1))
		}
		frames := encode(t, r, mustWriter(t, Options{Codec: codec, ResetDistance: mib}), start, wal, 1+r.IntN(1<<r.IntN(20)))
		var end *link.Frame
		if r.IntN(3) == 0 {
			f, err := link.NewTimelineEnd(1, start+protocol.LSN(r.IntN(length+1)), 2, []byte("1\t0/5\twhy\n"))
			if err != nil {
				t.Fatal(err)
			}
			end = &f
			frames = append(frames, f)
		}
		h := windowHeader(start)
		window, stats, err := reused.Seal([]byte("kept"), h, each(frames))
		if err != nil || string(window[:4]) != "kept" {
			t.Fatalf("round %d: %v", round, err)
		}
		window = window[4:]
		got, sealed := unseal(t, window)
		if !bytes.Equal(got, wal) {
			t.Fatalf("round %d: the WAL came back changed", round)
		}
		if last := sealed[len(sealed)-1]; end != nil && !reflect.DeepEqual(last, *end) {
			t.Fatalf("round %d: the end of the timeline is %+v, was %+v", round, last, *end)
		}
		kept := stats.BytesBefore + 8 + 13*int64(len(frames)) // with an index of all of them
		if stats.Bytes != int64(len(window)) || stats.Bytes > kept || stats.Frames != len(sealed) ||
			stats.FramesBefore != len(frames) || stats.WALBytes != int64(len(wal)) || stats.Mismatches != 0 {
			t.Fatalf("round %d: %+v", round, stats)
		}
		again, _, err := mustSealer(t, Options{Codec: Zstd}).Seal(nil, h, each(frames))
		if err != nil || !bytes.Equal(again, window) {
			t.Fatalf("round %d: another sealer makes another window, %v", round, err)
		}
		twice, stats, err := reused.Seal(nil, h, each(sealed))
		if err != nil || !bytes.Equal(twice, window) {
			t.Fatalf("round %d: sealed again it changes: %+v, %v", round, stats, err)
		}
	}
}

// Small frames become few, and frames that are as good as can be stay.
func TestSealSavesWhereItCan(t *testing.T) {
	r := waltest.Random(t)
	wal := makeWAL(r, mib)
	commits := encode(t, r, mustWriter(t, Options{Codec: Zstd, ResetDistance: mib}), 0, wal, 400)
	window, stats, err := mustSealer(t, Options{Codec: Zstd}).Seal(nil, windowHeader(0), each(commits))
	if err != nil || !stats.Encoded || stats.Frames != 4 || stats.Bytes*3 > stats.BytesBefore*2 {
		t.Fatalf("%+v, %v", stats, err)
	}
	_, frames := unseal(t, window)
	if !frames[0].Starts || !frames[3].Continues {
		t.Fatal("the window is not one stream")
	}
	if _, stats, err = mustSealer(t, Options{Codec: Zstd}).Seal(nil, windowHeader(0), each(frames)); err != nil || stats.Encoded {
		t.Fatalf("frames that are sealed already: %+v, %v", stats, err)
	}
}

// A window keeps a codec that is better than the sealer's own, and gets the sealer's own if that is better.
func TestSealTakesTheBetterCodec(t *testing.T) {
	r := waltest.Random(t)
	wal := makeWAL(r, 30_000)
	for _, own := range []Codec{None, Zstd, Model} {
		s := mustSealer(t, Options{Codec: own})
		for _, came := range []Codec{None, Zstd, Model} {
			frames := encode(t, r, mustWriter(t, Options{Codec: came, ResetDistance: mib}), 0, wal, 400)
			window, stats, err := s.Seal(nil, windowHeader(0), each(frames))
			if err != nil {
				t.Fatal(err)
			}
			got, sealed := unseal(t, window)
			want := max(mustWriter(t, Options{Codec: own}).codec, mustWriter(t, Options{Codec: came}).codec)
			if sealed[0].Codec != want || !stats.Encoded || len(sealed) != 1 || !bytes.Equal(got, wal) {
				t.Errorf("%s frames, sealer for %s: codec %s, %+v", came, own, sealed[0].Codec, stats)
			}
		}
	}
}

// Frames that are not those of a window, and such that do not decode, are refused with their place; the sealer stays usable.
func TestSealRefuses(t *testing.T) {
	r := waltest.Random(t)
	wal := makeWAL(r, 300_000)
	good := encode(t, r, mustWriter(t, Options{Codec: Zstd, ResetDistance: mib}), mib, wal, 50_000)
	s := mustSealer(t, Options{Codec: Zstd})
	changed := func(change func(f []link.Frame) []link.Frame) []link.Frame {
		frames := append([]link.Frame(nil), good...)
		return change(frames)
	}
	errDisk := errors.New("disk")
	for name, test := range map[string]struct {
		frames iter.Seq2[*link.Frame, error]
		want   error
	}{
		"none":     {each(nil), link.ErrCorrupt},
		"gap":      {each(changed(func(f []link.Frame) []link.Frame { return append(f[:2], f[3:]...) })), link.ErrCorrupt},
		"timeline": {each(changed(func(f []link.Frame) []link.Frame { f[1].Timeline = 2; return f })), link.ErrCorrupt},
		"payload": {each(changed(func(f []link.Frame) []link.Frame {
			f[3].Payload = bytes.Clone(f[3].Payload)
			f[3].Payload[len(f[3].Payload)/2] ^= 1
			return f
		})), link.ErrCorrupt},
		"other window": {each(encode(t, r, mustWriter(t, Options{Codec: Zstd, ResetDistance: mib}), 2*mib, wal, 50_000)), link.ErrCorrupt},
		"two windows":  {each(encode(t, r, mustWriter(t, Options{Codec: Zstd, ResetDistance: mib}), mib, makeWAL(r, mib+1), 50_000)), link.ErrCorrupt},
		"read error":   {func(yield func(*link.Frame, error) bool) { _ = yield(&good[0], nil) && yield(nil, errDisk) }, errDisk},
	} {
		out, _, err := s.Seal([]byte("kept"), windowHeader(mib), test.frames)
		if !errors.Is(err, test.want) || string(out) != "kept" {
			t.Errorf("%s: %q, %v", name, out, err)
		}
	}
	window, _, err := s.Seal(nil, windowHeader(mib), each(good))
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := unseal(t, window); !bytes.Equal(got, wal) {
		t.Fatal("the WAL came back changed")
	}
}

// Once warm, sealing allocates by window, not by frame.
func TestSealDoesNotAllocatePerFrame(t *testing.T) {
	wal := makeWAL(waltest.Random(t), 400_000)
	w, s := mustWriter(t, Options{Codec: Zstd, ResetDistance: mib}), mustSealer(t, Options{Codec: Zstd})
	var frames []link.Frame
	for at := 0; at < len(wal); at += 200 {
		frames = append(frames, write(t, w, protocol.LSN(at), wal[at:at+200])...)
	}
	var out []byte
	n := testing.AllocsPerRun(3, func() {
		var err error
		if out, _, err = s.Seal(out[:0], windowHeader(0), each(frames)); err != nil {
			t.Fatal(err)
		}
	})
	if n > float64(len(frames)/10) {
		t.Fatalf("%.0f allocations for %d frames", n, len(frames))
	}
}

// An encoder that goes wrong costs ratio, never WAL.
func TestSealWithAFaultyEncoder(t *testing.T) {
	r := waltest.Random(t)
	wal := makeWAL(r, mib)
	frames := encode(t, r, mustWriter(t, Options{Codec: Zstd, ResetDistance: mib}), 0, wal, 400)
	s := mustSealer(t, Options{Codec: Zstd})
	if _, _, err := s.Seal(nil, windowHeader(0), each(frames)); err != nil {
		t.Fatal(err)
	}
	calls := 0
	s.writers[form{codec: link.CodecZstd}].best.encoder = &faulty{encoder: s.writer.encoder, fault: func(dst, wal []byte, real encoder) ([]byte, error) {
		out, err := real.Append(dst, wal)
		if calls++; calls%4 == 2 {
			out[len(out)/2] ^= 4
		}
		return out, err
	}}
	window, stats, err := s.Seal(nil, windowHeader(0), each(frames))
	if err != nil || stats.Mismatches == 0 {
		t.Fatalf("%+v, %v", stats, err)
	}
	if got, _ := unseal(t, window); !bytes.Equal(got, wal) {
		t.Fatal("the WAL came back changed")
	}
}

// sample is WAL of a real server, from the beginning of a page.
type sample struct {
	start protocol.LSN
	wal   []byte
}

// samples returns the WAL that is checked in for the model, or the segment that WALPROXY_BENCH_WAL names.
func samples(t testing.TB) []sample {
	t.Helper()
	all := waltest.Samples(t)
	if segment := os.Getenv("WALPROXY_BENCH_WAL"); segment != "" {
		b, err := os.ReadFile(segment)
		if err != nil {
			t.Fatal(err)
		}
		all = []waltest.Sample{{Start: protocol.LSN(binary.LittleEndian.Uint64(b[8:])), WAL: b}}
	}
	var out []sample
	for _, s := range all {
		const window = 4 * mib
		for b, at := s.WAL, s.Start; len(b) > 0; {
			n := min(len(b), int(at.Next(window)-at))
			out = append(out, sample{at, b[:n]})
			b, at = b[n:], at+protocol.LSN(n)
		}
	}
	return out
}

// BenchmarkSeal seals windows of real WAL that came in chunks of a given length, and reports bytes per MiB of WAL. The samples
// are short; WALPROXY_BENCH_WAL=SEGMENT takes a segment instead.
func BenchmarkSeal(b *testing.B) {
	for _, c := range []struct {
		codec Codec
		chunk int
	}{{Zstd, 300}, {Zstd, 2000}, {Zstd, 16 << 10}, {Zstd, 128 << 10}, {None, 128 << 10}, {Model, 300}, {Model, 2000}, {Model, 128 << 10}} {
		b.Run(fmt.Sprintf("%s/chunk=%d", c.codec, c.chunk), func(b *testing.B) { benchmarkSeal(b, c.codec, c.chunk) })
	}
}

func benchmarkSeal(b *testing.B, codec Codec, chunk int) {
	all := samples(b)
	w := mustWriter(b, Options{Codec: codec})
	windows, total := make([][]link.Frame, len(all)), 0
	for i, s := range all {
		for at := 0; at < len(s.wal); at += chunk {
			windows[i] = append(windows[i], write(b, w, s.start+protocol.LSN(at), s.wal[at:min(at+chunk, len(s.wal))])...)
		}
		total += len(s.wal)
	}
	s := mustSealer(b, Options{Codec: Zstd})
	var out []byte
	var before, after int64
	b.SetBytes(int64(total))
	b.ReportAllocs()
	for b.Loop() {
		before, after = 0, 0
		for i, frames := range windows {
			h := windowHeader(all[i].start)
			h.ResetDistance = 4 * mib
			var stats SealStats
			var err error
			if out, stats, err = s.Seal(out[:0], h, each(frames)); err != nil {
				b.Fatal(err)
			}
			before, after = before+stats.BytesBefore, after+stats.Bytes
		}
	}
	b.ReportMetric(float64(before)*mib/float64(total), "live-B/MiB")
	b.ReportMetric(float64(after)*mib/float64(total), "sealed-B/MiB")
}
