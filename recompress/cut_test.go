package recompress

import (
	"encoding/binary"
	"testing"

	"walproxy/protocol"
)

// pages makes n WAL pages from start on; rest says how much of a record the page continues, by page.
func pages(start protocol.LSN, n int, rest map[int]uint32) []byte {
	const size = 8192
	wal := make([]byte, n*size)
	for i := range n {
		h := wal[i*size:]
		info := uint16(0)
		if rest[i] > 0 {
			info |= pageContinues
		}
		if i == 2 {
			info |= pageLongHeader
		}
		binary.LittleEndian.PutUint16(h, 0xD110)
		binary.LittleEndian.PutUint16(h[2:], info)
		binary.LittleEndian.PutUint64(h[8:], uint64(start)+uint64(i*size))
		binary.LittleEndian.PutUint32(h[16:], rest[i])
	}
	return wal
}

func TestRecordStart(t *testing.T) {
	const start, size = 0x3000000, 8192
	wal := pages(start, 6, map[int]uint32{1: 101, 2: 9000, 3: 801, 4: 8168})
	for _, c := range []struct{ at, limit, want int }{
		{0, len(wal), 0},
		{1, len(wal), size + pageHeaderShort + 104},           // the continued record ends, aligned
		{size + 1, len(wal), 3*size + pageHeaderShort + 808},  // all of page 2 is one record's
		{3*size + 9, len(wal), 5 * size},                      // page 4 is full, page 5 begins with a record
		{3*size + 9, 5*size + pageHeaderLong - 1, 3*size + 9}, // too far
		{5*size + 1, len(wal), 5*size + 1},                    // no page follows
		{len(wal), len(wal) + size, len(wal)},                 // nothing is left
		{size + 1, 3*size + pageHeaderShort + 808, size + 1},  // not before the limit
		{2*size + 8, 1 << 40, 3*size + pageHeaderShort + 808}, // the limit lies behind the end
	} {
		if got := recordStart(wal, start, size, c.at, c.limit); got != c.want {
			t.Errorf("record start from %d before %d: %d, want %d", c.at, c.limit, got, c.want)
		}
	}
	if got := recordStart(wal, start+size, size, 1, len(wal)); got != 1 {
		t.Errorf("pages of another place: cut at %d", got)
	}
	if got := recordStart(wal, start, 0, 1, len(wal)); got != 1 {
		t.Errorf("unknown page size: cut at %d", got)
	}
	if got := recordStart(wal[8:], start+8, size, 1, len(wal)); got != size-8+pageHeaderShort+104 {
		t.Errorf("WAL that begins within a page: cut at %d", got)
	}
}
