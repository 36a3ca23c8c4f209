package recompress

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"walproxy/protocol"
	"walproxy/protocol/link"
)

// makeWAL returns bytes that resemble WAL: pages with headers, records with rising numbers, some text, some noise.
func makeWAL(r *rand.Rand, bytes int) []byte {
	b := make([]byte, 0, bytes+256)
	for len(b) < bytes {
		if len(b)%8192 == 0 {
			b = binary.LittleEndian.AppendUint64(append(b, 0x10, 0xd1, 5, 0, 1, 0, 0, 0), uint64(len(b)))
		}
		n := 40 + r.IntN(120)
		b = binary.LittleEndian.AppendUint32(b, uint32(n))
		b = binary.LittleEndian.AppendUint32(b, 7000+uint32(len(b)/900))
		b = binary.LittleEndian.AppendUint32(b, r.Uint32())
		b = append(b, 0x7f, 0x06, 0, 0, 0x40, byte(r.IntN(8)))
		for range n / 8 {
			if r.IntN(4) == 0 {
				b = binary.LittleEndian.AppendUint32(b, r.Uint32())
			} else {
				b = append(b, "account"...)
			}
		}
	}
	return b[:bytes]
}

func noise(r *rand.Rand, bytes int) []byte {
	b := make([]byte, 0, bytes+8)
	for len(b) < bytes {
		b = binary.LittleEndian.AppendUint64(b, r.Uint64())
	}
	return b[:bytes]
}

func mustWriter(t testing.TB, o Options) *Writer {
	t.Helper()
	w, err := NewWriter(o)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func mustReader(t testing.TB, o Options) *Reader {
	t.Helper()
	r, err := NewReader(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// write collects copies of the frames of one Write.
func write(t testing.TB, w *Writer, start protocol.LSN, wal []byte) []link.Frame {
	t.Helper()
	var frames []link.Frame
	err := w.Write(1, start, wal, func(f *link.Frame) error {
		c := *f
		c.Payload = slices.Clone(f.Payload)
		frames = append(frames, c)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return frames
}

// encode writes wal in random chunks and collects the frames.
func encode(t testing.TB, r *rand.Rand, w *Writer, start protocol.LSN, wal []byte, largest int) []link.Frame {
	t.Helper()
	var frames []link.Frame
	for len(wal) > 0 {
		n := min(1+r.IntN(1+r.IntN(largest)), len(wal))
		frames = append(frames, write(t, w, start, wal[:n])...)
		wal, start = wal[n:], start+protocol.LSN(n)
	}
	return frames
}

func decodeAll(t testing.TB, r *Reader, frames []link.Frame) []byte {
	t.Helper()
	var out []byte
	for i := range frames {
		var err error
		if out, err = r.Decode(out, &frames[i]); err != nil {
			t.Fatalf("frame %d of %d at %s: %v", i, len(frames), frames[i].Start, err)
		}
	}
	return out
}
