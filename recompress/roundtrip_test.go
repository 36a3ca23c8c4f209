package recompress

import (
	"bytes"
	"testing"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/protocol/wal/waltest"
	"walproxy/recompress/zstd"
)

const mib = 1 << 20

// Whatever the codec, the level, the start and the chunks: frames tile the WAL, keep to their windows, survive the wire form,
// and decode to the same bytes.
func TestRoundTrip(t *testing.T) {
	r := waltest.Random(t)
	for _, o := range []Options{
		{Codec: Zstd, ResetDistance: mib}, {Codec: Zstd, Level: 1, ResetDistance: mib}, {Codec: Zstd, Level: 5, ResetDistance: mib},
		{Codec: Zstd, Level: 10, ResetDistance: mib}, {Codec: None, ResetDistance: mib}, {Codec: Zstd, ResetDistance: 64 * mib},
		{Codec: Model, ResetDistance: mib}, {Codec: Model, Level: 10, ResetDistance: mib}, {Codec: LZ4, ResetDistance: mib}, {Codec: LZ4, Level: 10, ResetDistance: mib},
	} {
		w, reader := mustWriter(t, o), mustReader(t, o)
		for _, largest := range []int{300, 9000, 200_000, 3 * mib} {
			size := min(2*mib+r.IntN(mib), 400*largest)
			if o.Codec == Model { // some 5 MB/s on bytes that are no WAL
				size /= 4
			}
			wal := append(makeWAL(r, size), noise(r, r.IntN(300_000))...)
			start := protocol.LSN(r.Uint64N(1 << 40))
			frames := encode(t, r, w, start, wal, largest)
			checkTiling(t, w.distance, start, wal, frames)
			if got := decodeAll(t, reader, overWire(t, frames)); !bytes.Equal(got, wal) {
				t.Fatalf("%+v, chunks up to %d: the WAL came back changed", o, largest)
			}
		}
		if s := w.Stats(); s.Mismatches != 0 || s.PayloadBytes > s.RawBytes {
			t.Errorf("%+v: %+v", o, s)
		}
	}
}

func checkTiling(t *testing.T, distance uint64, start protocol.LSN, wal []byte, frames []link.Frame) {
	t.Helper()
	at, stream := start, uint32(0)
	for i := range frames {
		f := &frames[i]
		piece := wal[f.Start-start:][:f.RawLen]
		switch {
		case f.Start != at:
			t.Fatalf("frame %d starts at %s, want %s", i, f.Start, at)
		case f.Start.Floor(distance) != (f.End() - 1).Floor(distance):
			t.Fatalf("frame %d, %s to %s, crosses a boundary", i, f.Start, f.End())
		case f.Continues && (f.Stream != stream || stream == 0 || uint64(f.Start)%distance == 0):
			t.Fatalf("frame %d at %s continues stream %08x, want %08x", i, f.Start, f.Stream, stream)
		case f.Codec == link.CodecRaw && !bytes.Equal(f.Payload, piece):
			t.Fatalf("frame %d: raw payload differs", i)
		case !f.Holds(piece):
			t.Fatalf("frame %d: raw checksum", i)
		}
		if at = f.End(); f.StreamID() != 0 {
			stream = f.StreamID()
		}
	}
	if at != start+protocol.LSN(len(wal)) {
		t.Fatalf("frames end at %s, want %s", at, start+protocol.LSN(len(wal)))
	}
}

// overWire encodes and decodes frames as the link does, which checks every rule of the format and every checksum.
func overWire(t *testing.T, frames []link.Frame) []link.Frame {
	t.Helper()
	var to, from link.Cursor
	var wire []byte
	for i := range frames {
		wire = to.Append(wire, &frames[i])
	}
	var out []link.Frame
	for len(wire) > 0 {
		f, n, err := from.Decode(wire)
		if err != nil {
			t.Fatal(err)
		}
		out, wire = append(out, f), wire[n:]
	}
	return out
}

func TestOneFramePerWriteAndWindow(t *testing.T) {
	r := waltest.Random(t)
	w := mustWriter(t, Options{Codec: Zstd, ResetDistance: mib})
	frames := write(t, w, 3*mib-1000, makeWAL(r, 2*mib+3000))
	var spans [][2]protocol.LSN
	for _, f := range frames {
		spans = append(spans, [2]protocol.LSN{f.Start, f.End()})
		if !f.Starts || f.Codec != link.CodecZstd {
			t.Errorf("frame at %s: %s, starts %t", f.Start, f.Codec, f.Starts)
		}
	}
	want := [][2]protocol.LSN{{3*mib - 1000, 3 * mib}, {3 * mib, 4 * mib}, {4 * mib, 5 * mib}, {5 * mib, 5*mib + 2000}}
	if len(spans) != len(want) {
		t.Fatalf("frames %v, want %v", spans, want)
	}
	for i := range want {
		if spans[i] != want[i] {
			t.Errorf("frame %d is %v, want %v", i, spans[i], want[i])
		}
	}
}

// Every codec with levels takes each of them.
func TestLevels(t *testing.T) {
	r := waltest.Random(t)
	wal := makeWAL(r, 40_000)
	for _, codec := range []Codec{Auto, Model, Zstd, LZ4} {
		for _, level := range zstd.Levels {
			o := Options{Codec: codec, Level: level}
			frames := encode(t, r, mustWriter(t, o), 0, wal, 20_000)
			if got := decodeAll(t, mustReader(t, o), frames); !bytes.Equal(got, wal) {
				t.Errorf("%s at level %d: wrong bytes", codec, level)
			}
			coded := 0
			for i := range frames {
				if frames[i].Codec == o.linkCodec() { // a few bytes go raw
					coded += int(frames[i].RawLen)
				}
			}
			if coded < len(wal)/2 {
				t.Errorf("%s at level %d: %d of %d bytes coded", codec, level, coded, len(wal))
			}
		}
	}
}

// A Writer that has coded other WAL before makes the same bytes as a new one: frames are a function of the stream alone.
func TestSameBytesOnEveryRun(t *testing.T) {
	r := waltest.Random(t)
	for _, level := range zstd.Levels {
		wal, other := makeWAL(r, mib+mib/2), makeWAL(r, 700_000)
		o := Options{Codec: Zstd, Level: level, ResetDistance: mib}
		fresh, used := mustWriter(t, o), mustWriter(t, o)
		write(t, used, 12345, other)
		for at := 0; at < len(wal); at += 50_000 {
			piece := wal[at:min(at+50_000, len(wal))]
			a, b := write(t, fresh, protocol.LSN(at), piece), write(t, used, protocol.LSN(at), piece)
			for i := range a {
				if !bytes.Equal(a[i].Payload, b[i].Payload) || a[i].Sum != b[i].Sum {
					t.Fatalf("level %d: frame at %s differs between a new and a used writer", level, a[i].Start)
				}
			}
		}
	}
}

// Decoding may begin at every frame that does not continue a stream, and only there.
func TestStartAnywhere(t *testing.T) {
	r := waltest.Random(t)
	o := Options{Codec: Zstd, ResetDistance: mib}
	wal := makeWAL(r, 3*mib)
	copy(wal[mib+200_000:], noise(r, 100_000))
	frames := encode(t, r, mustWriter(t, o), 500, wal, 60_000)
	used := mustReader(t, o)
	starts := 0
	for i := range frames {
		if frames[i].Continues {
			wantUnseen(t, mustReader(t, o), &frames[i])
			continue
		}
		starts++
		end := min(i+12, len(frames))
		want := wal[frames[i].Start-500 : frames[end-1].End()-500]
		if got := decodeAll(t, used, frames[i:end]); !bytes.Equal(got, want) {
			t.Fatalf("from frame %d at %s: wrong bytes", i, frames[i].Start)
		}
	}
	if starts < 4 {
		t.Fatalf("only %d places to start at", starts)
	}
}

func FuzzRoundTrip(f *testing.F) {
	f.Add(makeWAL(waltest.Random(f), 30_000), uint64(mib-100), uint16(777))
	f.Add([]byte{0}, uint64(0), uint16(0))
	o := Options{Codec: Zstd, ResetDistance: mib, Level: 1}
	w, r := mustWriter(f, o), mustReader(f, o)
	f.Fuzz(func(t *testing.T, wal []byte, start uint64, cut uint16) {
		start &= 1<<48 - 1
		w.Reset()
		k := min(int(cut), len(wal))
		frames := append(write(t, w, protocol.LSN(start), wal[:k]), write(t, w, protocol.LSN(start)+protocol.LSN(k), wal[k:])...)
		if !bytes.Equal(decodeAll(t, r, frames), wal) {
			t.Fatal("the WAL came back changed")
		}
	})
}
