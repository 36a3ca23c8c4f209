package undo

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"
	"slices"

	"walproxy/protocol"
	"walproxy/protocol/datapage"
	"walproxy/protocol/wal"
)

// Decoder puts back what an Encoder has undone. Not safe for concurrent use.
type Decoder struct {
	place
	in     [sections][]byte // what is left of each
	byRows bool
	bad    bool // a rule was broken; nothing counts after it

	wal    []byte // the caller's buffer with what was put back so far
	end    int    // length of wal when the piece is complete
	layout layout
	row    []byte
	record []byte
}

// NewDecoder returns a Decoder that needs Reset before its first piece.
func NewDecoder() *Decoder { return &Decoder{} }

// Reset begins a stream at start on tli, as the Encoder's Reset did.
func (d *Decoder) Reset(tli protocol.Timeline, start protocol.LSN) {
	d.place.reset(tli, start)
	d.bad = false
}

// MaxBytes returns how long the undone form of rawBytes of WAL is at most.
func MaxBytes(rawBytes int) int { return rawBytes + rawBytes/4 + 64 }

// Append appends the rawBytes bytes of WAL that undone holds to dst and returns the extended buffer. Pieces come in the order in
// which they were made. undone is not retained.
//
// It fails if undone is nothing that an Encoder makes; the stream is over then, and every later call fails until Reset. Damaged
// input may also yield other bytes.
func (d *Decoder) Append(dst, undone []byte, rawBytes int) ([]byte, error) {
	if d.bad || !d.split(undone) {
		d.bad = true
		return dst, errCorrupt
	}
	from := len(dst)
	d.wal, d.end = slices.Grow(dst, rawBytes), from+rawBytes
	for len(d.wal) < d.end && !d.bad {
		if uint64(d.pos)%walPageBytes == 0 && d.pageHeader() {
			continue
		}
		d.item()
	}
	for i := range d.in {
		d.bad = d.bad || len(d.in[i]) > 0
		d.in[i] = nil
	}
	out := d.wal
	d.wal = nil
	if d.bad || len(out) != d.end {
		d.bad = true
		return out[:from], errCorrupt
	}
	return out, nil
}

// split finds the sections.
func (d *Decoder) split(undone []byte) bool {
	if len(undone) == 0 || undone[0] > 1 {
		return false
	}
	d.byRows = undone[0] == 0
	undone = undone[1:]
	if d.byRows {
		d.in = [sections][]byte{undone}
		return true
	}
	var sizes [sections]uint64
	for i := range sections - 1 {
		v, n := binary.Uvarint(undone)
		if n <= 0 || v > 1<<31 {
			return false
		}
		sizes[i], undone = v, undone[n:]
	}
	for i := range sections - 1 {
		if sizes[i] > uint64(len(undone)) {
			return false
		}
		d.in[i], undone = undone[:sizes[i]], undone[sizes[i]:]
	}
	d.in[sections-1] = undone
	return true
}

// take returns the next n bytes of a section; nil and a broken rule if there are fewer.
func (d *Decoder) take(section, n int) []byte {
	if d.byRows {
		section = 0
	}
	s := d.in[section]
	if n < 0 || n > len(s) {
		d.bad = true
		return nil
	}
	d.in[section] = s[n:]
	return s[:n]
}

func (d *Decoder) takeByte(section int) byte {
	if d.byRows {
		section = 0
	}
	s := d.in[section]
	if len(s) == 0 {
		d.bad = true
		return 0
	}
	d.in[section] = s[1:]
	return s[0]
}

// put appends to the WAL and moves on.
func (d *Decoder) put(b []byte) {
	if len(b) > d.end-len(d.wal) {
		d.bad = true
		return
	}
	d.wal = append(d.wal, b...)
	d.pos += protocol.LSN(len(b))
}

// pageHeader puts back what the page at the position begins with and reports whether it has moved on.
func (d *Decoder) pageHeader() bool {
	switch d.takeByte(secPages) {
	case headerExpected:
		var want [longHeader]byte
		d.put(want[:d.expect(&want)])
	case headerOther:
		s := d.in[secPages]
		if d.byRows {
			s = d.in[0]
		}
		n := wal.PageHeaderBytes(s, d.pos)
		h := d.take(secPages, n)
		if n == 0 || d.bad {
			d.bad = true
			return true
		}
		d.learn(h)
		d.put(h)
	case headerNone:
		d.rest = 0
		return d.bad
	default:
		d.bad = true
	}
	return true
}

func (d *Decoder) item() {
	left := d.end - len(d.wal)
	switch op := d.takeByte(secOps); op {
	case opBytes:
		b := d.take(secPlain, d.plainBytes(left))
		if d.bad {
			return
		}
		d.wal = append(d.wal, b...)
		d.follow(b)
	case opZeros:
		s := &d.in[secOps] // also in rows
		v, n := binary.Uvarint(*s)
		if n <= 0 || v == 0 || v > uint64(left) {
			d.bad = true
			return
		}
		*s = (*s)[n:]
		d.zeros(int(v))
	case opRecord:
		d.putRecord(d.newSlot(), uint64(d.last))
	case opRecordPrev:
		slot := d.newSlot()
		if b := d.take(secValues, 8); !d.bad {
			d.putRecord(slot, le.Uint64(b))
		}
	default:
		slot := int(op - opSlot)
		if d.bad || slot >= d.assigned {
			d.bad = true
			return
		}
		d.putRecord(slot, uint64(d.last))
	}
}

func (d *Decoder) zeros(n int) {
	from := len(d.wal)
	d.wal = d.wal[:from+n]
	clear(d.wal[from:])
	d.pos += protocol.LSN(n)
}

// putRecord puts back a record coded against slot.
func (d *Decoder) putRecord(slot int, prev uint64) {
	old := &d.rows[slot]
	if !d.fillRow(old) || d.bad {
		d.bad = true
		return
	}
	l, row := &d.layout, d.row
	size := l.total()
	if size > d.end-len(d.wal) {
		d.bad = true
		return
	}
	xid := d.atDistance(le.Uint32(row))
	if xid != 0 {
		d.xid = xid
	}
	r := d.record[:0]
	r = le.AppendUint32(r, uint32(size))
	r = le.AppendUint32(r, xid)
	r = le.AppendUint64(r, prev)
	r = append(r, row[4], row[5], 0, 0, 0, 0, 0, 0)
	r = append(r, row[rowHead:rowHead+l.headers]...)
	at := rowHead + l.headers + l.main
	for i := range l.blocks[:l.n] {
		k := &l.blocks[i]
		if k.image > 0 {
			r = d.image(r, k)
		}
		r = append(r, row[at:at+k.data]...)
		at += k.data
	}
	r = append(r, row[rowHead+l.headers:][:l.main]...)
	d.record = r
	if d.bad || len(r) != size {
		d.bad = true
		return
	}
	sum := crc32.Update(0, castagnoli, r[recordHeader:])
	le.PutUint32(r[20:], crc32.Update(sum, castagnoli, r[:20]))
	copy(old[:], row)
	d.lay(r)
}

// fillRow leaves the row in d.row, and its layout.
func (d *Decoder) fillRow(old *[slotBytes]byte) bool {
	f := filler{Decoder: d, old: old}
	d.row = d.row[:0]
	if !f.fill(rowHead) {
		return false
	}
	headers := int(le.Uint16(d.row[6:]))
	if headers > maxHeaders || !f.fill(rowHead+headers) {
		return false
	}
	l := &d.layout
	if !l.parse(d.row[rowHead:rowHead+headers], headers, compressedMask(d.magic)) || l.total() > d.end-len(d.wal) {
		return false
	}
	n := l.rowBytes()
	if !f.fill(n) {
		return false
	}
	d.row = d.row[:n]
	return true
}

// filler decodes a row as far as it is needed.
type filler struct {
	*Decoder
	old  *[slotBytes]byte
	full int // groups in a row of which every byte differs
}

// fill makes d.row at least n bytes long. Up to 7 bytes more were decoded if it is coded by difference there.
func (f *filler) fill(n int) bool {
	d := f.Decoder
	masks, values := secMasks, secValues
	if d.byRows {
		masks, values = 0, 0
	}
	for len(d.row) < n {
		at := len(d.row)
		if at >= slotBytes || f.full >= 2 {
			b := d.take(secPlain, n-at)
			if d.bad {
				return false
			}
			d.row = append(d.row, b...)
			return true
		}
		s := d.in[masks]
		if len(s) == 0 {
			d.bad = true
			return false
		}
		m := s[0]
		d.in[masks] = s[1:]
		group := le.Uint64(f.old[at:])
		if m == 0 {
			f.full = 0
			d.row = le.AppendUint64(d.row, group)
			continue
		}
		count := bits.OnesCount8(m)
		if s = d.in[values]; count > len(s) {
			d.bad = true
			return false
		}
		d.in[values] = s[count:]
		if m == 0xff {
			f.full++
			d.row = append(d.row, s[:8]...)
			continue
		}
		f.full = 0
		for ; m != 0; m &= m - 1 {
			shift := 8 * bits.TrailingZeros8(m)
			group = group&^(0xff<<shift) | uint64(s[0])<<shift
			s = s[1:]
		}
		d.row = le.AppendUint64(d.row, group)
	}
	return true
}

// image appends a page image to r.
func (d *Decoder) image(r []byte, k *part) []byte {
	form := int(d.takeByte(secHeads))
	if form == imagePlain {
		return append(r, d.take(secTuples, k.image)...)
	}
	h := d.take(secHeads, pageHeader)
	if d.bad || !k.plain {
		d.bad = true
		return r
	}
	lower := imageLower(h, k)
	if lower == 0 {
		d.bad = true
		return r
	}
	pointers := d.take(secHeads, lower-pageHeader)
	special := min(max(blockBytes-int(le.Uint16(h[16:])), 0), k.image-lower)
	tuples := d.take(secTuples, k.image-lower)
	if d.bad {
		return r
	}
	r = append(r, h...)
	r = datapage.AppendPointers(r, pointers)
	r = datapage.AppendRows(r, tuples[:len(tuples)-special], (form-imageColumns)*8)
	return append(r, tuples[len(tuples)-special:]...)
}

// lay puts the record into the WAL, with the page headers between its parts and the zero bytes behind it.
func (d *Decoder) lay(r []byte) {
	start := d.pos
	for {
		n := min(len(r), walPageBytes-int(uint64(d.pos)%walPageBytes))
		if d.put(r[:n]); d.bad {
			return
		}
		if r = r[n:]; len(r) == 0 {
			break
		}
		d.rest = int64(len(r))
		if !d.pageHeader() || d.bad {
			d.bad = true
			return
		}
	}
	d.rest, d.last = 0, start
	d.zeros(min(int(-uint64(d.pos)&(alignment-1)), d.end-len(d.wal)))
}
