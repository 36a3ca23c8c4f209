package recompress

import (
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/protocol/wal"
	"walproxy/protocol/wal/waltest"
)

// noiseInserts returns well-formed WAL from start, a page's, on: transactions that insert one row of noise each, of the given number
// of bytes on average, and where each of them ends.
func noiseInserts(r *rand.Rand, start protocol.LSN, size, row int) (b []byte, ends []int) {
	xid, prev := uint32(1000), protocol.LSN(0)
	for len(b) < size {
		xid++
		body := []byte{0, 0x20, 0, 0} // block 0, with data
		n := row/2 + r.IntN(row+1)
		body = binary.LittleEndian.AppendUint16(body[:2], uint16(5+n))
		for _, v := range []uint32{1663, 5, 16384, xid / 50} {
			body = binary.LittleEndian.AppendUint32(body, v)
		}
		body = append(append(body, 255, 3), 3, 0, 8, 2, 24)
		body = append(append(body, noise(r, n)...), byte(xid%50), 0, 0)
		b, prev = appendRecord(b, walPageBytes, start, prev, xid, 10, 0, body)
		commit := binary.LittleEndian.AppendUint64([]byte{255, 8}, 700_000_000_000_000+uint64(xid)*1000+r.Uint64N(1000))
		b, prev = appendRecord(b, walPageBytes, start, prev, xid, 1, 0, commit)
		ends = append(ends, len(b))
	}
	return b, ends
}

// appendRecord appends a record with the headers of the WAL pages of pageBytes before and within it, and padding.
func appendRecord(b []byte, pageBytes int, start, prev protocol.LSN, xid uint32, rmgr, info byte, body []byte) ([]byte, protocol.LSN) {
	record := make([]byte, wal.RecordHeaderBytes, wal.RecordHeaderBytes+len(body)+8)
	record = append(record, body...)
	binary.LittleEndian.PutUint32(record, uint32(len(record)))
	binary.LittleEndian.PutUint32(record[4:], xid)
	binary.LittleEndian.PutUint64(record[8:], uint64(prev))
	record[16], record[17] = info, rmgr
	table := crc32.MakeTable(crc32.Castagnoli)
	sum := crc32.Update(crc32.Update(0, table, record[wal.RecordHeaderBytes:]), table, record[:20])
	binary.LittleEndian.PutUint32(record[20:], sum)
	size := len(record)
	record = append(record, make([]byte, -size&7)...)
	at := protocol.LSN(0)
	for left := size; len(record) > 0; {
		pos := start + protocol.LSN(len(b))
		if int(pos)%pageBytes == 0 {
			header := [wal.LongHeaderBytes]byte{0x10, 0xd1, 0, 0, 1}
			n := wal.ShortHeaderBytes
			if at != 0 {
				header[2] = byte(wal.FirstIsContrecord)
				binary.LittleEndian.PutUint32(header[16:], uint32(left))
			}
			if pos%(16<<20) == 0 {
				header[2] |= byte(wal.LongHeader)
				n = wal.LongHeaderBytes
				binary.LittleEndian.PutUint64(header[24:], 7)
				binary.LittleEndian.PutUint32(header[32:], 16<<20)
				binary.LittleEndian.PutUint32(header[36:], uint32(pageBytes))
			}
			binary.LittleEndian.PutUint64(header[8:], uint64(pos))
			b = append(b, header[:n]...)
			pos += protocol.LSN(n)
		}
		if at == 0 {
			at = pos
		}
		n := min(len(record), pageBytes-int(pos)%pageBytes)
		b, record = append(b, record[:n]...), record[n:]
		left -= n
	}
	return b, at
}

// wireBytes returns what the frames take that carry b cut at ends, headers included, and how many there are.
func wireBytes(t *testing.T, w *Writer, start protocol.LSN, b []byte, ends []int) (bytes, frames int) {
	t.Helper()
	var cursor link.Cursor
	var buf []byte
	at := 0
	for _, end := range ends {
		err := w.Write(1, start+protocol.LSN(at), b[at:end], func(f *link.Frame) error {
			buf = cursor.Append(buf[:0], f)
			bytes += len(buf)
			frames++
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		at = end
	}
	return bytes, frames
}

// What a frame may take beyond its WAL: its header, which is shorter where the frame goes on from the one before.
const (
	frameHeader = 16
	firstHeader = 32
)

// TestNeverLarger holds every codec to what docs/sizing.md says of WAL that nothing can compress. Frames of WAL that is noise take
// their headers more and nothing else; so no more than a thousandth is lost where they carry 16 KiB. Transactions that insert rows of noise never take more
// than their WAL, however small: what surrounds the rows pays for the headers.
func TestNeverLarger(t *testing.T) {
	r := waltest.Random(t)
	const start, size = 0x3000000, 100_000
	for _, c := range []Codec{None, Model, Zstd, LZ4} {
		for _, chunk := range []int{8, 100, 1000, 16 << 10, size} {
			b := noise(r, min(size, 300*chunk))
			ends := chunkEnds(r, len(b), chunk)
			n, frames := wireBytes(t, mustWriter(t, Options{Codec: c}), start, b, ends)
			if most := len(b) + firstHeader + frameHeader*(frames-1); n > most {
				t.Errorf("%s, noise in chunks of %d: %d bytes became %d in %d frames", c, chunk, len(b), n, frames)
			}
			if chunk >= 16<<10 && n > len(b)+len(b)/1000+firstHeader {
				t.Errorf("%s, noise in chunks of %d: %d bytes became %d", c, chunk, len(b), n)
			}
		}
		for _, row := range []int{1, 30, 300, 3000, 30000} {
			b, commits := noiseInserts(r, start, min(size, 400*row), row)
			n, frames := wireBytes(t, mustWriter(t, Options{Codec: c}), start, b, commits)
			t.Logf("%-6s rows of %5d: %6d bytes became %6d in %4d frames", c, row, len(b), n, frames)
			if c != None && n > len(b)+firstHeader {
				t.Errorf("%s, rows of %d: %d bytes became %d in %d frames", c, row, len(b), n, frames)
			}
		}
	}
}

// chunkEnds cuts n bytes into chunks of about the given size.
func chunkEnds(r *rand.Rand, n, chunk int) (ends []int) {
	for at := 0; at < n; {
		at = min(n, at+chunk-chunk/8+r.IntN(chunk/4+1))
		ends = append(ends, at)
	}
	return ends
}

// noiseRecords returns pages from start on, a page's, full of records that are noise but for their lengths, of 160 bytes or so, and what
// kind of work they are for: VACUUM's and others in turn.
func noiseRecords(r *rand.Rand, start protocol.LSN, pages int) (b []byte) {
	for range pages {
		page := noise(r, walPageBytes)
		copy(page, []byte{0x10, 0xd1, 0, 0, 1, 0, 0, 0})
		binary.LittleEndian.PutUint64(page[8:], uint64(start)+uint64(len(b)))
		binary.LittleEndian.PutUint64(page[16:], 0)
		for at, i := wal.ShortHeaderBytes, 0; at < len(page); i++ {
			n := 160
			if left := len(page) - at; left < 2*n {
				n = left
			}
			binary.LittleEndian.PutUint32(page[at:], uint32(n))
			page[at+16], page[at+17] = 0, 10 // Heap/INSERT
			if i%2 == 0 {
				page[at+16], page[at+17] = 0x40, 9 // Heap2/VISIBLE
			}
			at += n
		}
		b = append(b, page...)
	}
	return b
}

// Where a policy leaves out every other record and nothing can be made of the rest, what is not coded shares raw frames: no more is lost
// than without a policy.
func TestNeverLargerWithPolicy(t *testing.T) {
	r := waltest.Random(t)
	const start = 0x3000000
	b := noiseRecords(r, start, 12)
	for _, c := range []Codec{Model, Zstd, LZ4} {
		for _, chunk := range []int{16 << 10, len(b)} {
			o := Options{Codec: c, Compress: CompressVacuum}
			n, frames := wireBytes(t, mustWriter(t, o), start, b, chunkEnds(r, len(b), chunk))
			if n > len(b)+len(b)/1000+firstHeader+maxLostBetween {
				t.Errorf("%s, chunks of %d: %d bytes became %d in %d frames", c, chunk, len(b), n, frames)
			}
		}
	}
}
