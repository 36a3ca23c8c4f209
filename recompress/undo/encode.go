package undo

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"

	"walproxy/protocol"
	"walproxy/protocol/wal"
)

// Encoder undoes the WAL of one stream, piece by piece. Not safe for concurrent use.
type Encoder struct {
	place
	wal    []byte // the piece
	at     int    // next byte of it
	out    [sections][]byte
	byRows bool

	layout  layout
	record  []byte // the record, without page headers
	scratch []byte // a record that page headers interrupt
	row     []byte // and alignment bytes behind it
	pad     int    // zero bytes behind the record
	known   map[uint64]uint8
	keys    [slots]uint64
	used    [slots]bool
}

// NewEncoder returns an Encoder that needs Reset before its first piece.
func NewEncoder() *Encoder { return &Encoder{known: make(map[uint64]uint8, slots)} }

// Reset begins a stream at start on tli. Memory is kept.
func (e *Encoder) Reset(tli protocol.Timeline, start protocol.LSN) {
	e.place.reset(tli, start)
	clear(e.known)
	e.used = [slots]bool{}
}

// Append appends the undone form of wal, which follows what was undone since Reset, to dst and returns the extended buffer.
// wal may begin and end anywhere and hold anything; it is not changed and not retained.
func (e *Encoder) Append(dst, wal []byte) []byte {
	e.wal, e.at = wal, 0
	e.byRows = len(wal) < columnBytes
	for i := range e.out {
		e.out[i] = e.out[i][:0]
	}
	for e.at < len(e.wal) {
		if uint64(e.pos)%walPageBytes == 0 && e.pageHeader() {
			continue
		}
		e.item()
	}
	e.wal = nil
	if e.byRows {
		return append(append(dst, 0), e.out[0]...)
	}
	dst = append(dst, 1)
	for i := range sections - 1 {
		dst = binary.AppendUvarint(dst, uint64(len(e.out[i])))
	}
	for i := range e.out {
		dst = append(dst, e.out[i]...)
	}
	return dst
}

// section returns the section called i, which is the only one in rows.
func (e *Encoder) section(i int) *[]byte {
	if e.byRows {
		i = 0
	}
	return &e.out[i]
}

func (e *Encoder) put(section int, b ...byte) {
	s := e.section(section)
	*s = append(*s, b...)
}

// pageHeader tells what the page at the position begins with and reports whether it has moved on.
func (e *Encoder) pageHeader() bool {
	b := e.wal[e.at:]
	n := wal.PageHeaderBytes(b, e.pos)
	if n == 0 {
		e.put(secPages, headerNone)
		e.rest = 0
		return false
	}
	var want [longHeader]byte
	if m := e.expect(&want); m == n && string(b[:n]) == string(want[:n]) {
		e.put(secPages, headerExpected)
	} else {
		e.put(secPages, headerOther)
		e.put(secPages, b[:n]...)
		e.learn(b[:n])
	}
	e.at += n
	e.pos += protocol.LSN(n)
	return true
}

func (e *Encoder) item() {
	left := e.wal[e.at:]
	if e.rest == 0 {
		if e.gather() {
			e.emit()
			return
		}
		if len(left) >= minZeros && wal.IsZero(left[:minZeros]) {
			n := minZeros
			for n < len(left) && left[n] == 0 {
				n++
			}
			e.put(secOps, opZeros)
			s := e.section(secOps)
			*s = binary.AppendUvarint(*s, uint64(n))
			e.at += n
			e.pos += protocol.LSN(n)
			return
		}
	}
	n := e.plainBytes(len(left))
	e.put(secOps, opBytes)
	e.put(secPlain, left[:n]...)
	e.follow(left[:n])
	e.at += n
}

// gather looks for a whole, sound record at the position. It reports false for anything that a decoder would not rebuild exactly.
func (e *Encoder) gather() bool {
	b := e.wal[e.at:]
	if len(b) < recordHeader || uint64(e.pos)%alignment != 0 {
		return false
	}
	size := int64(le.Uint32(b))
	if size < recordHeader || size > maxRecord || size > int64(len(b)) {
		return false
	}
	room, end := walPageBytes-int(uint64(e.pos)%walPageBytes), int(size)
	if end <= room {
		e.record = b[:size]
	} else if end = e.join(b, int(size), room); end == 0 {
		return false
	}
	r := e.record
	sum := crc32.Update(0, castagnoli, r[recordHeader:])
	if crc32.Update(sum, castagnoli, r[:20]) != le.Uint32(r[20:]) || r[18] != 0 || r[19] != 0 {
		return false
	}
	e.pad = min(-int(size)&(alignment-1), len(b)-end)
	for _, c := range b[end : end+e.pad] {
		if c != 0 {
			return false
		}
	}
	return e.layout.parse(r[recordHeader:], -1, compressedMask(e.magic))
}

// join copies a record of size bytes that page headers interrupt to e.scratch and returns how many bytes of b it takes; 0 if
// it is not whole.
func (e *Encoder) join(b []byte, size, room int) int {
	e.scratch = append(e.scratch[:0], b[:room]...)
	at := room
	for len(e.scratch) < size {
		n := wal.PageHeaderBytes(b[at:], e.pos+protocol.LSN(at))
		left := size - len(e.scratch)
		if n == 0 || le.Uint16(b[at+2:])&infoContinue == 0 || int(le.Uint32(b[at+16:])) != left {
			return 0
		}
		at += n
		take := min(left, walPageBytes-n)
		if take > len(b)-at {
			return 0
		}
		e.scratch = append(e.scratch, b[at:at+take]...)
		at += take
	}
	e.record = e.scratch
	return at
}

// emit tells the record that gather found and moves behind it.
func (e *Encoder) emit() {
	r, l := e.record, &e.layout
	slot := e.slot(uint64(le.Uint16(r[16:])), le.Uint64(r[8:]))
	xid := le.Uint32(r[4:])
	e.row = le.AppendUint32(e.row[:0], e.distance(xid))
	if xid != 0 {
		e.xid = xid
	}
	e.row = append(e.row, r[16], r[17])
	e.row = le.AppendUint16(e.row, uint16(l.headers))
	body := r[recordHeader:]
	e.row = append(e.row, body[:l.headers]...)
	e.row = append(e.row, body[len(body)-l.main:]...)
	at := l.headers
	for i := range l.blocks[:l.n] {
		k := &l.blocks[i]
		at += k.image
		e.row = append(e.row, body[at:at+k.data]...)
		at += k.data
	}
	e.difference(&e.rows[slot])
	at = l.headers
	for i := range l.blocks[:l.n] {
		k := &l.blocks[i]
		if k.image > 0 {
			e.image(body[at:at+k.image], k)
		}
		at += k.image + k.data
	}
	e.lay(len(r))
}

// slot tells which slot the record is coded against.
func (e *Encoder) slot(kind, prev uint64) int {
	key := e.layout.key ^ kind<<48
	expected := prev == uint64(e.last)
	if s, ok := e.known[key]; ok && expected {
		e.put(secOps, opSlot+s)
		return int(s)
	}
	s := e.newSlot()
	if e.used[s] && e.known[e.keys[s]] == uint8(s) {
		delete(e.known, e.keys[s])
	}
	e.known[key], e.keys[s], e.used[s] = uint8(s), key, true
	if expected {
		e.put(secOps, opRecord)
	} else {
		e.put(secOps, opRecordPrev)
		v := e.section(secValues)
		*v = le.AppendUint64(*v, prev)
	}
	return s
}

// difference tells how the row differs from the slot's, and puts it there.
func (e *Encoder) difference(old *[slotBytes]byte) {
	n := len(e.row)
	end := min(n, slotBytes)
	if tail := -end & 7; tail > 0 {
		e.row = append(e.row, old[end:end+tail]...)
	}
	row := e.row
	masks, values := e.section(secMasks), e.section(secValues)
	full, at := 0, 0
	for ; at < end && full < 2; at += 8 {
		v := le.Uint64(row[at:])
		x := v ^ le.Uint64(old[at:])
		if x == 0 {
			full = 0
			*masks = append(*masks, 0)
			continue
		}
		m := differs(x)
		*masks = append(*masks, m)
		if m == 0xff {
			full++
			*values = le.AppendUint64(*values, v)
			continue
		}
		full = 0
		for ; m != 0; m &= m - 1 {
			*values = append(*values, byte(v>>(8*bits.TrailingZeros8(m))))
		}
	}
	if at < n {
		e.put(secPlain, row[at:n]...)
	}
	copy(old[:], row[:end])
}

// differs returns a mask of the bytes of x that are not zero.
func differs(x uint64) byte {
	const low7 = 0x7f7f7f7f7f7f7f7f
	t := ((x & low7) + low7 | x) >> 7 & 0x0101010101010101
	return byte(t * 0x0102040810204080 >> 56)
}

// lay moves behind the record of size bytes and tells the page headers inside it.
func (e *Encoder) lay(size int) {
	start, left := e.pos, size
	for {
		n := min(left, walPageBytes-int(uint64(e.pos)%walPageBytes))
		e.at += n
		e.pos += protocol.LSN(n)
		if left -= n; left == 0 {
			break
		}
		e.rest = int64(left)
		e.pageHeader()
	}
	e.rest, e.last = 0, start
	e.at += e.pad
	e.pos += protocol.LSN(e.pad)
}
