package link_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"walproxy/protocol"
	"walproxy/protocol/link"
)

// makeFrames returns valid frames in random forms: with jumps, changes of timeline, several streams, ends of timelines.
func makeFrames(random *rand.Rand, count int) []link.Frame {
	var frames []link.Frame
	tli, lsn := protocol.Timeline(1+random.IntN(3)), protocol.LSN(random.Uint64()>>8)
	var streams []uint32 // of this window
	for len(frames) < count {
		switch random.IntN(12) {
		case 0:
			lsn = protocol.LSN(random.Uint64() >> 1)
			streams = nil
		case 1:
			end, err := link.NewTimelineEnd(tli, lsn, tli+1, make([]byte, random.IntN(100)))
			if err != nil {
				panic(err)
			}
			frames = append(frames, end)
			tli++
			streams = nil
			continue
		}
		room := link.MinResetDistance - int(lsn%link.MinResetDistance)
		if room == link.MinResetDistance {
			streams = nil
		}
		f := link.Frame{Timeline: tli, Start: lsn, RawLen: uint32(1 + random.IntN(min(room, 1000))), RawSum: random.Uint32()}
		f.Codec = link.Codec(random.IntN(int(link.CodecModel) + 1))
		payload := int(f.RawLen)
		if f.Codec != link.CodecRaw {
			payload = random.IntN(int(f.RawLen))
			if len(streams) > 0 && random.IntN(2) == 0 {
				f.Continues, f.Stream = true, streams[random.IntN(len(streams))]
			} else {
				f.Starts = random.IntN(2) == 0
			}
		}
		f.Payload = make([]byte, payload)
		for i := range f.Payload {
			f.Payload[i] = byte(random.Uint32())
		}
		f.Seal()
		if f.Starts && f.Sum != 0 {
			streams = append(streams, f.Sum)
		}
		frames = append(frames, f)
		lsn = f.End()
	}
	return frames
}

func encode(frames []link.Frame) []byte {
	cursor := link.Cursor{ResetDistance: link.MinResetDistance}
	var b []byte
	for i := range frames {
		b = cursor.Append(b, &frames[i])
	}
	return b
}

// decode reads frames to the end of b, or to the first error.
func decode(b []byte) (frames []link.Frame, err error) {
	cursor := link.Cursor{ResetDistance: link.MinResetDistance}
	for len(b) > 0 {
		length, errLen := cursor.FrameLen(b)
		f, n, err := cursor.Decode(b)
		if err != nil {
			return frames, err
		}
		if errLen != nil || length != n {
			return frames, errors.New("FrameLen disagrees with Decode")
		}
		frames = append(frames, f)
		b = b[n:]
	}
	return frames, nil
}

func seeded(t *testing.T) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// TestRoundTrip: Decode(Append(f)) == f for whole sequences, and no prefix of one decodes to more than its whole frames.
func TestRoundTrip(t *testing.T) {
	random := seeded(t)
	for range 50 {
		want := makeFrames(random, 60)
		b := encode(want)
		got, err := decode(b)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatal("the frames differ")
		}
		cut := random.IntN(len(b))
		got, err = decode(b[:cut])
		if err != nil && !errors.Is(err, link.ErrShort) {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		if len(got) > 0 && !reflect.DeepEqual(got, want[:len(got)]) || err == nil && !bytes.Equal(encode(got), b[:cut]) {
			t.Fatalf("cut at %d: other frames", cut)
		}
	}
}

// TestEveryBit: whichever single bit of a sequence flips, decoding fails, and it never yields a frame that was not written.
func TestEveryBit(t *testing.T) {
	// Seeds are fixed: a bit that makes a brief header of another is noticed by a checksum of 16 bits.
	for seed := range uint64(6) {
		frames := makeFrames(rand.New(rand.NewPCG(seed, 9)), 12)
		for i := range frames {
			if f := &frames[i]; f.Codec != link.CodecTimelineEnd {
				f.Payload = f.Payload[:min(len(f.Payload), 40)]
				if f.Codec == link.CodecRaw {
					f.RawLen = uint32(len(f.Payload))
				}
			}
		}
		frames = resealed(frames)
		b := encode(frames)
		for bit := range 8 * len(b) {
			b[bit/8] ^= 1 << (bit % 8)
			got, err := decode(b)
			if err == nil {
				t.Fatalf("bit %d of byte %d flipped unnoticed", bit%8, bit/8)
			}
			for i := range got {
				if !reflect.DeepEqual(got[i], frames[i]) {
					t.Fatalf("bit %d of byte %d made another frame %d: %v", bit%8, bit/8, i, err)
				}
			}
			b[bit/8] ^= 1 << (bit % 8)
		}
	}
}

// resealed seals frames again after a change, and lets the continuing ones follow the new identities of their streams.
func resealed(frames []link.Frame) []link.Frame {
	identity := map[uint32]uint32{}
	for i := range frames {
		f := &frames[i]
		old := f.Sum
		if f.Continues {
			f.Stream = identity[f.Stream]
		}
		f.Seal()
		identity[old] = f.Sum
	}
	return frames
}

// TestRefused: every rule of the format has an error of its class.
func TestRefused(t *testing.T) {
	const mib = link.MinResetDistance
	frame := func(change func(*link.Frame)) []byte {
		f := link.Frame{Timeline: 1, Start: mib - 100, RawLen: 10, Payload: make([]byte, 10)}
		change(&f)
		f.Seal()
		return new(link.Cursor).Append(nil, &f)
	}
	good := frame(func(*link.Frame) {})
	with := func(at int, v byte) []byte {
		b := bytes.Clone(good)
		b[at] = v
		return b
	}
	var version *link.VersionError
	var unseen *link.UnseenStreamError
	for name, test := range map[string]struct {
		b    []byte
		want any
	}{
		"empty":               {nil, link.ErrShort},
		"head only":           {good[:1], link.ErrShort},
		"no payload":          {good[:len(good)-1], link.ErrShort},
		"version":             {with(1, 2), &version},
		"brief first":         {with(0, good[0]|0x80), link.ErrCorrupt},
		"codec 4":             {with(0, good[0]|4), &version},
		"compact first":       {[]byte{0, 1, 1}, link.ErrCorrupt},
		"timeline 0":          {frame(func(f *link.Frame) { f.Timeline = 0 }), link.ErrCorrupt},
		"starts, continues":   {frame(func(f *link.Frame) { f.Codec, f.Starts, f.Continues, f.Payload = 1, true, true, nil }), link.ErrCorrupt},
		"no WAL":              {frame(func(f *link.Frame) { f.RawLen, f.Payload = 0, nil }), link.ErrCorrupt},
		"over the boundary":   {frame(func(f *link.Frame) { f.RawLen = 101; f.Payload = make([]byte, 101) }), link.ErrCorrupt},
		"raw, short":          {frame(func(f *link.Frame) { f.Payload = f.Payload[1:] }), link.ErrCorrupt},
		"raw, starts":         {frame(func(f *link.Frame) { f.Starts = true }), link.ErrCorrupt},
		"larger than raw":     {frame(func(f *link.Frame) { f.Codec = link.CodecZstd }), link.ErrCorrupt},
		"continues at reset":  {frame(func(f *link.Frame) { f.Start, f.Codec, f.Continues, f.Stream, f.Payload = mib, 1, true, 7, nil }), link.ErrCorrupt},
		"end with WAL":        {frame(func(f *link.Frame) { f.Codec = link.CodecTimelineEnd }), link.ErrCorrupt},
		"end without a next":  {frame(func(f *link.Frame) { f.Codec, f.RawLen, f.Payload = link.CodecTimelineEnd, 0, nil }), link.ErrCorrupt},
		"long varint":         {append(bytes.Clone(good[:14]), 0x8a, 0x00), link.ErrCorrupt},
		"endless varint":      {append(bytes.Clone(good[:14]), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), link.ErrCorrupt},
		"varint of 2^32":      {append(bytes.Clone(good[:14]), 0x80, 0x80, 0x80, 0x80, 0x10), link.ErrCorrupt},
		"at the end of space": {frame(func(f *link.Frame) { f.Start = ^protocol.LSN(0) - 4 }), link.ErrCorrupt},
	} {
		cursor := link.Cursor{ResetDistance: mib}
		_, _, err := cursor.Decode(test.b)
		ok := false
		switch want := test.want.(type) {
		case error:
			ok = errors.Is(err, want)
		default:
			ok = errors.As(err, want)
		}
		if !ok || cursor != (link.Cursor{ResetDistance: mib}) {
			t.Errorf("%s: got %v; cursor %+v", name, err, cursor)
		}
	}
	cursor := link.Cursor{Timeline: 1, Next: 500}
	if _, _, err := cursor.Decode([]byte{0x21, 10, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0}); !errors.As(err, &unseen) || unseen.LSN != 500 {
		t.Errorf("continuing an unseen stream: %v", err)
	}
}

// TestNoAllocation: encoding and decoding a frame allocate nothing.
func TestNoAllocation(t *testing.T) {
	frames := makeFrames(rand.New(rand.NewPCG(1, 2)), 100)
	b := make([]byte, 0, 1<<20)
	n := testing.AllocsPerRun(10, func() {
		cursor := link.Cursor{ResetDistance: link.MinResetDistance}
		b = b[:0]
		for i := range frames {
			frames[i].Seal()
			b = cursor.Append(b, &frames[i])
		}
		cursor = link.Cursor{ResetDistance: link.MinResetDistance}
		for rest := b; len(rest) > 0; {
			_, n, err := cursor.Decode(rest)
			if err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
	})
	if n != 0 {
		t.Errorf("%.0f allocations for 100 frames", n)
	}
}

// TestEveryBitOfBriefFrames: what a synchronous load leaves. Flipped bits are noticed by structure, not by chance: no length can
// change alone, and the checksum notices up to three bits.
func TestEveryBitOfBriefFrames(t *testing.T) {
	random := seeded(t)
	lsn := protocol.LSN(1 << 30)
	first := link.Frame{Timeline: 1, Start: lsn, RawLen: 400, RawSum: 5, Codec: link.CodecModel, Starts: true, Payload: make([]byte, 40)}
	first.Seal()
	frames := []link.Frame{first}
	for range 30 {
		f := link.Frame{Timeline: 1, Start: frames[len(frames)-1].End(), RawLen: uint32(8 * (20 + random.IntN(99) + random.IntN(2)*random.IntN(1929))), RawSum: random.Uint32(),
			Codec: link.CodecModel, Continues: true, Stream: first.Sum, Payload: make([]byte, random.IntN(120))}
		for i := range f.Payload {
			f.Payload[i] = byte(random.Uint32())
		}
		f.Seal()
		frames = append(frames, f)
	}
	b := encode(frames)
	size := 40 + link.MaxFrameHeaderBytes
	for i := range frames[1:] {
		if f := &frames[1+i]; f.RawLen < 8*120 {
			size += 6 + len(f.Payload)
		} else {
			size += 7 + len(f.Payload)
		}
	}
	if len(b) > size {
		t.Fatalf("%d bytes, more than headers of 6 and 7 for brief frames make", len(b))
	}
	for bit := 8 * len(encode(frames[:1])); bit < 8*len(b); bit++ {
		bad := bytes.Clone(b)
		bad[bit/8] ^= 1 << (bit % 8)
		got, err := decode(bad)
		top := bit%8 == 7 // of a head: then it is a header of 11 bytes with checksums of 32 bits
		if err == nil || !top && !reflect.DeepEqual(got, frames[:len(got)]) {
			t.Fatalf("bit %d of byte %d flipped unnoticed: %v", bit%8, bit/8, err)
		}
	}
}
