package recompress

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"testing"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/protocol/wal/waltest"
)

// decodeHostile decodes f and checks what holds for every input: a typed error and dst untouched, or the WAL that RawSum is of.
func decodeHostile(t *testing.T, r *Reader, f *link.Frame) ([]byte, error) {
	t.Helper()
	out, err := r.Decode([]byte("kept"), f)
	if !bytes.HasPrefix(out, []byte("kept")) {
		t.Fatal("what dst held before is gone")
	}
	out = out[4:]
	if err != nil {
		var unseen *link.UnseenStreamError
		var version *link.VersionError
		if !errors.Is(err, link.ErrCorrupt) && !errors.As(err, &unseen) && !errors.As(err, &version) {
			t.Fatalf("untyped error %v", err)
		}
		if len(out) != 0 {
			t.Fatalf("%d bytes beside error %v", len(out), err)
		}
		return nil, err
	}
	if len(out) != int(f.RawLen) || !f.Holds(out) {
		t.Fatalf("%d bytes of WAL that the frame does not claim", len(out))
	}
	return out, nil
}

// Flip every bit of the payloads of a short stream, behind the frame's own checksum: an error or the same WAL, never another.
func TestBitFlips(t *testing.T) {
	r := waltest.Random(t)
	w, reader := mustWriter(t, Options{Codec: Zstd}), mustReader(t, Options{})
	wal := makeWAL(r, 3000)
	frames := append(write(t, w, 0, wal[:1500]), write(t, w, 1500, wal[1500:])...)
	if len(frames) != 2 || !frames[1].Continues {
		t.Fatal("want a stream of two frames")
	}
	survived := 0
	for i := range frames {
		for bit := range len(frames[i].Payload) * 8 {
			bad := frames[i]
			bad.Payload = bytes.Clone(bad.Payload)
			bad.Payload[bit/8] ^= 1 << (bit % 8)
			if i == 1 {
				decodeAll(t, reader, frames[:1])
			}
			out, err := decodeHostile(t, reader, &bad)
			if err == nil {
				survived++
				if !bytes.Equal(out, wal[bad.Start:bad.End()]) {
					t.Fatalf("frame %d, bit %d: other WAL", i, bit)
				}
			}
			if err != nil && i == 0 {
				wantUnseen(t, reader, &frames[1])
			}
		}
	}
	t.Logf("%d flips did not matter", survived)
	if got := decodeAll(t, reader, frames); !bytes.Equal(got, wal) {
		t.Error("the reader does not recover")
	}
}

// Cut payloads, and payloads with something behind them.
func TestWrongLengths(t *testing.T) {
	r := waltest.Random(t)
	w, reader := mustWriter(t, Options{Codec: Zstd}), mustReader(t, Options{})
	f := write(t, w, 0, makeWAL(r, 2000))[0]
	for n := range len(f.Payload) {
		bad := f
		bad.Payload = f.Payload[:n]
		if _, err := decodeHostile(t, reader, &bad); !errors.Is(err, link.ErrCorrupt) {
			t.Fatalf("payload of %d bytes cut to %d: %v", len(f.Payload), n, err)
		}
	}
	for _, change := range []func(*link.Frame){
		func(f *link.Frame) { f.Payload = append(bytes.Clone(f.Payload), 0, 0, 0) },
		func(f *link.Frame) { f.RawLen-- },
		func(f *link.Frame) { f.RawLen++ },
		func(f *link.Frame) { f.RawLen = 0 },
		func(f *link.Frame) { f.RawLen = 64 * mib },
		func(f *link.Frame) { f.Start = 4*mib - 1 },
		func(f *link.Frame) { f.RawSum++ },
		func(f *link.Frame) { f.Codec = link.CodecRaw },
	} {
		bad := f
		change(&bad)
		if _, err := decodeHostile(t, reader, &bad); !errors.Is(err, link.ErrCorrupt) {
			t.Errorf("frame changed to %+v: %v", bad, err)
		}
	}
	bad := f
	bad.Codec = 9
	var version *link.VersionError
	if _, err := decodeHostile(t, reader, &bad); !errors.As(err, &version) {
		t.Errorf("codec of a newer version: %v", err)
	}
}

// A zstd window above the limit, and a claim of 64 MiB in 9 bytes, cost little memory.
func TestHostileSizes(t *testing.T) {
	reader := mustReader(t, Options{ResetDistance: 64 * mib})
	magic := []byte{0x28, 0xb5, 0x2f, 0xfd}
	for name, payload := range map[string][]byte{
		"window of 16 MiB":       append(bytes.Clone(magic), 0x00, 14<<3, 0x03, 0, 0, 9),
		"window of 3.75 TiB":     append(bytes.Clone(magic), 0x00, 0xff, 0x03, 0, 0, 9),
		"single segment of 1 GB": append(bytes.Clone(magic), 0xa0, 0, 0, 0, 0x40, 0x03, 0, 0, 9),
		"skip 4 GB":              {0x50, 0x2a, 0x4d, 0x18, 0xff, 0xff, 0xff, 0xff, 1, 2, 3},
		"a dictionary":           append(bytes.Clone(magic), 0x01, 12<<3, 7, 0x03, 0, 0, 9),
		"one short RLE block":    append(bytes.Clone(magic), 0x00, 12<<3, 0x02, 0x10, 0, 9),
	} {
		f := link.Frame{Timeline: 1, Codec: link.CodecZstd, Starts: true, RawLen: 64 * mib, Payload: append(binary.AppendUvarint(nil, 64*mib), payload...)}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := reader.Decode(nil, &f); !errors.Is(err, link.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > 8*mib {
			t.Errorf("%s: %d bytes allocated", name, got)
		}
	}
}

// Decode is given three frames with the same payload, so that streams, continuations and what an error leaves behind are met.
func FuzzDecode(f *testing.F) {
	r := waltest.Random(f)
	w := mustWriter(f, Options{Codec: Zstd, Level: 1})
	wal := makeWAL(r, 4000)
	for _, fr := range append(write(f, w, 0, wal[:2500]), write(f, w, 2500, wal[2500:])...) {
		f.Add(fr.Payload, uint64(fr.Start), fr.RawLen, uint8(fr.Codec), fr.RawSum)
	}
	f.Add([]byte{0x28, 0xb5, 0x2f, 0xfd, 0, 0x58, 2, 0, 0x10, 9}, uint64(0), uint32(131072), uint8(1), uint32(0))
	f.Add([]byte("raw"), uint64(0), uint32(3), uint8(0), link.Checksum([]byte("raw")))
	reader := mustReader(f, Options{})
	f.Fuzz(func(t *testing.T, payload []byte, start uint64, rawLen uint32, codec uint8, sum uint32) {
		fr := link.Frame{Timeline: 1, Start: protocol.LSN(start), RawLen: rawLen, Codec: link.Codec(codec & 3), Starts: codec&3 != 0, RawSum: sum, Payload: payload}
		fr.Seal()
		if _, err := decodeHostile(t, reader, &fr); err == nil {
			fr.Starts, fr.Continues, fr.Stream, fr.Start = false, true, fr.Sum, fr.End()
			_, _ = decodeHostile(t, reader, &fr)
		}
		// The sum that the payload really has, found by decoding once more: then the WAL must come out the same again.
		fr = link.Frame{Timeline: 1, RawLen: min(rawLen, 4*mib), Codec: link.CodecZstd, Starts: true, Payload: payload}
		first, err := reader.undo(nil, &fr)
		if len(first) > int(fr.RawLen) {
			t.Fatalf("%d bytes for a frame of %d", len(first), fr.RawLen)
		}
		if err == nil && fr.RawLen > 0 {
			fr.RawSum = link.Checksum(first)
			if again, err := decodeHostile(t, reader, &fr); err != nil || !bytes.Equal(first, again) {
				t.Fatalf("decoded once, not twice: %v", err)
			}
		}
	})
}
