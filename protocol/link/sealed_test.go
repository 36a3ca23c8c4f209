package link_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"reflect"
	"testing"

	"walproxy/protocol"
	"walproxy/protocol/link"
)

// makeWindow returns a window's frames in random forms, contiguous, some of them in streams; sometimes the timeline ends.
func makeWindow(random *rand.Rand, count, largest int) (link.WindowHeader, []link.Frame) {
	h := link.WindowHeader{SystemID: 7, Timeline: protocol.Timeline(1 + random.IntN(9)), SegmentSize: 16 << 20, WALBlockSize: 8192,
		ResetDistance: link.MinResetDistance, Start: protocol.LSN(random.Uint64()>>20) << 16}
	lsn, stream := h.Start, uint32(0)
	var frames []link.Frame
	for range count {
		room := int(h.Start.Next(link.MinResetDistance) - lsn)
		if room == 0 {
			break
		}
		f := link.Frame{Timeline: h.Timeline, Start: lsn, RawLen: uint32(1 + random.IntN(min(room, largest))), RawSum: random.Uint32()}
		f.Codec = link.Codec(random.IntN(int(link.CodecModel) + 1))
		payload := int(f.RawLen)
		if f.Codec != link.CodecRaw {
			payload = random.IntN(min(int(f.RawLen), 30))
			f.Starts = random.IntN(3) == 0
			if !f.Starts && stream != 0 && random.IntN(3) > 0 {
				f.Continues, f.Stream = true, stream
			}
		}
		f.Payload = make([]byte, payload)
		for i := range f.Payload {
			f.Payload[i] = byte(random.Uint32())
		}
		f.Seal()
		if f.Starts {
			stream = f.Sum
		}
		frames = append(frames, f)
		lsn = f.End()
	}
	if len(frames) == 0 || random.IntN(3) == 0 {
		at := h.Start + protocol.LSN(random.Uint64N(uint64(lsn-h.Start)+1))
		if random.IntN(4) == 0 {
			at = h.Start / 2
		}
		end, err := link.NewTimelineEnd(h.Timeline, at, h.Timeline+2, []byte("1\t0/5\twhy\n"))
		if err != nil {
			panic(err)
		}
		frames = append(frames, end)
	}
	return h, frames
}

// build returns the sealed window of frames, behind what dst holds.
func build(t testing.TB, b *link.WindowBuilder, dst []byte, h link.WindowHeader, frames []link.Frame) []byte {
	t.Helper()
	b.Begin(dst, h)
	for i := range frames {
		if err := b.Add(&frames[i]); err != nil {
			t.Fatal(err)
		}
	}
	out, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Every window comes back frame by frame, and from every entry of its index, without the bytes before it.
func TestWindowRoundTrip(t *testing.T) {
	random := seeded(t)
	var builder link.WindowBuilder
	for range 300 {
		h, frames := makeWindow(random, random.IntN(60), 1+random.IntN(1<<random.IntN(20)))
		file := build(t, &builder, []byte("kept"), h, frames)
		if string(file[:4]) != "kept" {
			t.Fatal("the buffer was not appended to")
		}
		file = file[4:]
		var got []link.Frame
		read, err := link.ReadWindow(file, func(f *link.Frame) error { got = append(got, *f); return nil })
		if err != nil || !reflect.DeepEqual(got, frames) {
			t.Fatalf("equal %v, %v", reflect.DeepEqual(got, frames), err)
		}
		last := frames[len(frames)-1]
		if read.End != last.End() || read.FileBytes() != int64(len(file)) || read.Start != h.Start {
			t.Fatalf("header %+v", read)
		}
		index, err := link.DecodeIndex(read, file[read.IndexOffset:])
		if err != nil {
			t.Fatal(err)
		}
		checkIndex(t, random, file[:read.IndexOffset], index, frames)
		if _, ends := index.Ends(); ends != (last.Codec == link.CodecTimelineEnd) {
			t.Fatalf("ends: %v", ends)
		}
	}
}

// checkIndex decodes from each entry to the end, and looks up random places.
func checkIndex(t *testing.T, random *rand.Rand, file []byte, index link.Index, frames []link.Frame) {
	t.Helper()
	at, lone := 0, 0
	for i := range index.Len() {
		e := index.At(i)
		for frames[at].Start != e.Start || frames[at].Codec != e.Codec {
			at++
		}
		cursor, rest := index.Cursor(i), file[e.Offset:]
		for j := at; len(rest) > 0; j++ {
			f, n, err := cursor.Decode(rest)
			if err != nil || !reflect.DeepEqual(f, frames[j]) {
				t.Fatalf("from entry %d: frame %d is %+v, %v", i, j, f, err)
			}
			rest = rest[n:]
		}
		if e.Enterable() {
			lone++
		}
	}
	want := 0
	for i := range frames {
		if !frames[i].Continues {
			want++
		}
		f := &frames[i]
		if f.RawLen == 0 {
			continue
		}
		lsn := f.Start + protocol.LSN(random.IntN(int(f.RawLen)))
		e := index.At(index.Enter(lsn))
		if !e.Enterable() || e.Start > lsn || !f.Continues && (e.Start != f.Start || e.Starts != f.Starts) {
			t.Fatalf("entry for %s, which frame %+v holds: %+v", lsn, f, e)
		}
		cursor, piece := index.Cursor(index.Enter(lsn)), file[e.Offset:index.Behind(lsn)]
		for {
			g, n, err := cursor.Decode(piece)
			if err != nil {
				t.Fatalf("the bytes up to Behind(%s) do not hold it: %v", lsn, err)
			}
			if piece = piece[n:]; g.End() > lsn {
				break
			}
		}
	}
	if lone != want {
		t.Fatalf("%d entries, %d frames that do not continue", lone, want)
	}
}

// The index stays within its limit however many frames there are, and reaches all of them.
func TestIndexIsBounded(t *testing.T) {
	h := link.WindowHeader{Timeline: 1, SegmentSize: 16 << 20, WALBlockSize: 8192, ResetDistance: link.MaxResetDistance, Start: link.MaxResetDistance}
	var builder link.WindowBuilder
	builder.Begin(nil, h)
	const count = 300_000
	f := link.Frame{Timeline: 1, Start: h.Start, RawLen: 200, Codec: link.CodecZstd, Payload: []byte{1}}
	for range count {
		f.Seal()
		if err := builder.Add(&f); err != nil {
			t.Fatal(err)
		}
		f.Start = f.End()
	}
	file, err := builder.Finish()
	if err != nil {
		t.Fatal(err)
	}
	read, err := link.ReadWindow(file, nil)
	if err != nil || read.IndexBytes > link.MaxIndexBytes || read.IndexBytes < 13*count*200>>10 {
		t.Fatalf("index of %d bytes, %v", read.IndexBytes, err)
	}
	index, err := link.DecodeIndex(read, file[read.IndexOffset:])
	if err != nil {
		t.Fatal(err)
	}
	for lsn := h.Start; lsn < read.End; lsn += 7777 {
		if e := index.At(index.Enter(lsn)); e.Start > lsn || lsn-e.Start > 1500 {
			t.Fatalf("entry for %s begins at %s", lsn, e.Start)
		}
	}
}

// TestWindowEveryBit: whichever single bit of a sealed window flips, reading it fails with an error of a class.
func TestWindowEveryBit(t *testing.T) {
	random := seeded(t)
	for range 3 {
		h, frames := makeWindow(random, 8, 60)
		file := build(t, new(link.WindowBuilder), nil, h, frames)
		for bit := range 8 * len(file) {
			file[bit/8] ^= 1 << (bit % 8)
			_, err := link.ReadWindow(file, nil)
			var corrupt *link.CorruptError
			if err == nil || !known(err) || bit/8 >= link.WindowHeaderBytes && errors.As(err, &corrupt) && corrupt.Timeline != h.Timeline {
				t.Fatalf("bit %d of byte %d flipped: %v", bit%8, bit/8, err)
			}
			file[bit/8] ^= 1 << (bit % 8)
		}
		for n := range len(file) {
			if _, err := link.ReadWindow(file[:n], nil); !errors.Is(err, link.ErrShort) {
				t.Fatalf("%d of %d bytes: %v", n, len(file), err)
			}
		}
		if _, err := link.ReadWindow(append(file, 0), nil); !errors.Is(err, link.ErrCorrupt) {
			t.Fatalf("a byte more: %v", err)
		}
	}
}

// An index does not check behind another window, and frames that do not belong are not taken.
func TestWindowRefuses(t *testing.T) {
	h := link.WindowHeader{Timeline: 3, SegmentSize: 16 << 20, WALBlockSize: 8192, ResetDistance: link.MinResetDistance, Start: 100}
	frame := func(change func(*link.Frame)) *link.Frame {
		f := &link.Frame{Timeline: 3, Start: 100, RawLen: 10, Codec: link.CodecZstd, Payload: []byte{1}}
		change(f)
		f.Seal()
		return f
	}
	for name, f := range map[string]*link.Frame{
		"timeline":  frame(func(f *link.Frame) { f.Timeline = 4 }),
		"gap":       frame(func(f *link.Frame) { f.Start = 101 }),
		"before":    frame(func(f *link.Frame) { f.Start = 99 }),
		"too long":  frame(func(f *link.Frame) { f.RawLen = link.MinResetDistance }),
		"continues": frame(func(f *link.Frame) { f.Continues, f.Stream = true, 9 }),
	} {
		var b link.WindowBuilder
		b.Begin(nil, h)
		var corrupt *link.CorruptError
		if err := b.Add(f); !errors.As(err, &corrupt) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := b.Finish(); !errors.As(err, &corrupt) {
			t.Errorf("%s: an empty window was finished: %v", name, err)
		}
	}
	one, two := *frame(func(*link.Frame) {}), *frame(func(f *link.Frame) { f.Start = 200 })
	a := build(t, new(link.WindowBuilder), nil, h, []link.Frame{one})
	h.Start = 200
	b := build(t, new(link.WindowBuilder), nil, h, []link.Frame{two})
	ah, err := link.DecodeWindowHeader(a)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := link.DecodeIndex(ah, b[ah.IndexOffset:]); !errors.Is(err, link.ErrCorrupt) {
		t.Errorf("another window's index: %v", err)
	}
}

func FuzzReadWindow(f *testing.F) {
	for seed := range uint64(6) {
		h, frames := makeWindow(rand.New(rand.NewPCG(seed, 5)), 6, 100)
		f.Add(build(f, new(link.WindowBuilder), nil, h, frames))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var frames []link.Frame
		h, err := link.ReadWindow(b, func(f *link.Frame) error { frames = append(frames, *f); return nil })
		if err != nil {
			if !known(err) {
				t.Fatalf("an error of no class: %v", err)
			}
			return
		}
		again := build(t, new(link.WindowBuilder), nil, h, frames)
		if got, err := link.ReadWindow(again, nil); err != nil || got.End != h.End {
			t.Fatalf("not the same after a round trip: %+v, %+v, %v", h, got, err)
		}
	})
}

// FuzzIndex gives arbitrary entries a good checksum.
func FuzzIndex(f *testing.F) {
	random := rand.New(rand.NewPCG(1, 6))
	h, frames := makeWindow(random, 6, 100)
	file := build(f, new(link.WindowBuilder), nil, h, frames)
	h, err := link.ReadWindow(file, nil)
	if err != nil {
		f.Fatal(err)
	}
	index := file[h.IndexOffset:]
	f.Add(index[:len(index)-4], h.IndexOffset)
	f.Add(make([]byte, 30), uint64(100))
	f.Fuzz(func(t *testing.T, body []byte, offset uint64) {
		h := h
		h.IndexOffset, h.IndexBytes = offset, uint32(len(body)+4)
		sum := link.Checksum(append(h.Append(nil)[:link.WindowHeaderBytes-4], body...))
		b := append(bytes.Clone(body), byte(sum), byte(sum>>8), byte(sum>>16), byte(sum>>24))
		x, err := link.DecodeIndex(h, b)
		if err != nil {
			if !known(err) {
				t.Fatal(err)
			}
			return
		}
		for _, lsn := range []protocol.LSN{0, h.Start, h.Start + 50, h.End, ^protocol.LSN(0)} {
			e := x.At(x.Enter(lsn))
			if !e.Enterable() || e.Offset < link.WindowHeaderBytes || e.Offset >= x.Behind(lsn) && lsn >= h.Start || uint64(x.Behind(lsn)) > h.IndexOffset {
				t.Fatalf("entry for %s: %+v, behind %d", lsn, e, x.Behind(lsn))
			}
		}
	})
}
