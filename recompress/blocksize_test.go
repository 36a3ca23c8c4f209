package recompress

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"walproxy/protocol"
	"walproxy/protocol/wal/waltest"
)

// TestBlockSizes: WAL of servers that were built with other sizes of blocks and of WAL pages comes back unchanged, whatever the codec
// makes of it, and nothing in it is a defect of a codec.
func TestBlockSizes(t *testing.T) {
	r := waltest.Random(t)
	const start = 0x3000000
	for _, pageBytes := range []int{4096, 8192, 16384, 65536} {
		for _, blockBytes := range []int{1024, 4096, 16384, 32768} {
			b := imageRecords(r, start, 300_000, pageBytes, blockBytes)
			for _, c := range []Codec{Model, Zstd, LZ4} {
				w, reader := mustWriter(t, Options{Codec: c}), mustReader(t, Options{Codec: c})
				frames := encode(t, r, w, start, b, 100_000)
				if got := decodeAll(t, reader, frames); !bytes.Equal(got, b) {
					t.Fatalf("%s, WAL pages of %d, blocks of %d: the WAL came back changed", c, pageBytes, blockBytes)
				}
				s := w.Stats()
				if s.Mismatches != 0 || s.PayloadBytes*2 > s.RawBytes {
					t.Errorf("%s, WAL pages of %d, blocks of %d: %+v", c, pageBytes, blockBytes, s)
				}
			}
		}
	}
}

// imageRecords returns WAL from start on whose records have page images of blockBytes: heap pages, with and without hole, some of
// them marked as compressed.
func imageRecords(r *rand.Rand, start protocol.LSN, size, pageBytes, blockBytes int) (b []byte) {
	prev := protocol.LSN(0)
	for number := uint32(0); len(b) < size; number++ {
		page := make([]byte, blockBytes)
		lower, upper := 24, blockBytes
		for at := upper; at >= lower+4+64; {
			at -= 64
			tuple := page[at:]
			binary.LittleEndian.PutUint32(tuple, 700+number/20)
			tuple[18], tuple[21], tuple[22] = 2, 8, 24
			binary.LittleEndian.PutUint32(tuple[24:], uint32(lower)+number*1000)
			copy(tuple[28:64], "a text that all of these rows have")
			binary.LittleEndian.PutUint32(page[lower:], uint32(at&0x7fff|1<<15|60<<17))
			lower, upper = lower+4, at
			if r.IntN(30) == 0 {
				break
			}
		}
		for at, v := range map[int]int{12: lower, 14: upper, 16: blockBytes, 18: blockBytes | 4} {
			binary.LittleEndian.PutUint16(page[at:], uint16(v))
		}
		body := []byte{0, 0x10, 0, 0}
		image, info, hole := page, byte(2), 0
		switch {
		case r.IntN(8) == 0: // as if compressed, by whatever
			image, info, hole = noise(r, 300+r.IntN(200)), 2|1|1<<(2+r.IntN(3)), upper-lower
		case upper > lower:
			image, info, hole = append(page[:lower:lower], page[upper:]...), 2|1, lower
		}
		body = binary.LittleEndian.AppendUint16(body, uint16(len(image)))
		switch {
		case info&0x1c != 0:
			body = append(binary.LittleEndian.AppendUint16(body, uint16(lower)), info)
			body = binary.LittleEndian.AppendUint16(body, uint16(hole))
		default:
			body = append(binary.LittleEndian.AppendUint16(body, uint16(hole)), info)
		}
		for _, v := range []uint32{1663, 5, 16384, number} {
			body = binary.LittleEndian.AppendUint32(body, v)
		}
		body = append(body, image...)
		b, prev = appendRecord(b, pageBytes, start, prev, 700, 0, 0xb0, body)
	}
	return b
}
