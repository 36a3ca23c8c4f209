// Package undo takes out of WAL what the other side can compute, and puts it back bit for bit: page headers, xl_tot_len, xl_prev,
// xl_crc, alignment and long zeros go; a record is told by what differs from the last record of its kind and relation; page images
// that the server did not compress are laid out in columns. What is left is for a general compressor. It is pure, and its
// decoder never panics and never works without bound on any input.
//
// The undone form of a piece of WAL is one or several sections; the two layouts hold the same:
//
//	rows      a byte 0, then everything in the order in which it is needed
//	columns   a byte 1, the lengths of the sections but the last as varints, then the sections
//
// The sections are: operations, page headers, masks, values, plain bytes, heads of page images, tuples of page images. See
// place for what an operation is.
package undo

import (
	"encoding/binary"
	"errors"
	"hash/crc32"

	"walproxy/protocol"
	"walproxy/protocol/wal"
)

var (
	le         = binary.LittleEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)

	errCorrupt = errors.New("undone WAL breaks a rule of its form")
)

// Sections of the undone form.
const (
	secOps    = iota // one operation for each item
	secPages         // what each WAL page begins with
	secMasks         // which bytes of a record differ
	secValues        // these bytes
	secPlain         // bytes of no known meaning, long rows
	secHeads         // page images: headers and line pointers
	secTuples        // page images: the rest
	sections
)

// Operations. Each says what comes next in the WAL, from the position of the item on.
const (
	opBytes      = iota // plain bytes up to the end of the page, of the record in progress, of the padding, or of the piece
	opZeros             // a varint of zero bytes, over any number of pages
	opRecord            // a record of a kind not met before, coded against an empty one; takes the next slot
	opRecordPrev        // the same, with xl_prev in full in front of its row
	opSlot              // and up: a record coded against the one last met in slot op - opSlot
)

const (
	slots     = 256 - opSlot
	slotBytes = 1024 // of a row that are coded as a difference; what lies behind is plain
	minZeros  = 64   // shorter runs of zeros are not worth an item

	columnBytes = 1 << 10 // pieces from here on are laid out in columns: below, their lengths cost more than columns save
)

// Facts of the format. Source: PostgreSQL src/include/access/xlog_internal.h, xlogrecord.h; storage/bufpage.h (13-18).
const (
	walPageBytes = wal.DefaultPageSize
	blockBytes   = 8192
	alignment    = 8
	recordHeader = wal.RecordHeaderBytes
	maxRecord    = 64 << 20 // a stream's window is never larger

	shortHeader  = wal.ShortHeaderBytes
	longHeader   = wal.LongHeaderBytes
	infoContinue = uint16(wal.FirstIsContrecord)
	infoLong     = uint16(wal.LongHeader)
	infoBackup   = uint16(wal.BackupRemovable)

	firstMagicOf15 = 0xD110
)

// place is where a stream is and what both sides know there.
type place struct {
	pos      protocol.LSN
	last     protocol.LSN // start of the last record: the next one's xl_prev
	rest     int64        // bytes of the record in progress that are still to come; 0 if none or unknown
	xid      uint32       // of the last record that has one
	tli      uint32
	segment  uint32 // bytes
	walBlock uint32
	system   uint64
	magic    uint16
	info     uint16
	next     int // the slot that the next new kind takes
	assigned int // slots that were ever taken
	rows     [slots][slotBytes]byte
}

// reset begins a stream.
func (p *place) reset(tli protocol.Timeline, start protocol.LSN) {
	p.pos, p.last, p.rest, p.xid = start, 0, 0, 0
	p.tli, p.segment, p.walBlock, p.system, p.magic, p.info = uint32(tli), 16<<20, walPageBytes, 0, 0, 0
	p.next, p.assigned = 0, 0 // rows are cleared when they are taken
}

// newSlot returns the slot of a new kind, whose last row is nothing but zeros.
func (p *place) newSlot() int {
	s := p.next
	p.next = (p.next + 1) % slots
	p.assigned = max(p.assigned, s+1)
	p.rows[s] = [slotBytes]byte{}
	return s
}

// expect writes the header that the page at the position should begin with and returns its length.
func (p *place) expect(h *[longHeader]byte) int {
	info := p.info & infoBackup
	if p.rest > 0 {
		info |= infoContinue
	}
	n := shortHeader
	if uint64(p.pos)%uint64(p.segment) == 0 {
		info |= infoLong
		n = longHeader
	}
	le.PutUint16(h[0:], p.magic)
	le.PutUint16(h[2:], info)
	le.PutUint32(h[4:], p.tli)
	le.PutUint64(h[8:], uint64(p.pos))
	le.PutUint64(h[16:], uint64(uint32(p.rest)))
	le.PutUint64(h[24:], p.system)
	le.PutUint32(h[32:], p.segment)
	le.PutUint32(h[36:], p.walBlock)
	return n
}

// learn takes over what an unexpected header says.
func (p *place) learn(h []byte) {
	p.magic, p.info, p.tli, p.rest = le.Uint16(h), le.Uint16(h[2:]), le.Uint32(h[4:]), int64(le.Uint32(h[16:]))
	if p.info&infoContinue == 0 {
		p.rest = 0
	}
	if p.info&infoLong != 0 {
		p.system, p.segment, p.walBlock = le.Uint64(h[24:]), max(le.Uint32(h[32:]), walPageBytes), le.Uint32(h[36:])
	}
}

// What a page begins with.
const (
	headerExpected = iota
	headerOther    // in full
	headerNone
)

// plainBytes returns how many bytes an opBytes takes with so many left in the piece.
func (p *place) plainBytes(left int) int {
	n := min(walPageBytes-int(uint64(p.pos)%walPageBytes), left)
	if p.rest > 0 {
		return int(min(int64(n), p.rest))
	}
	if padding := int(-uint64(p.pos) & (alignment - 1)); padding > 0 {
		return min(n, padding)
	}
	return n
}

// follow moves behind b, plain bytes. If they are the head of a record, its length says how many bytes the next pages continue.
func (p *place) follow(b []byte) {
	switch {
	case p.rest > 0:
		p.rest -= int64(len(b))
	case uint64(p.pos)%alignment == 0 && len(b) >= 4:
		if size := int64(le.Uint32(b)); size >= recordHeader && size < 1<<30 && size > int64(len(b)) {
			p.rest, p.last = size-int64(len(b)), p.pos
		}
	}
	p.pos += protocol.LSN(len(b))
}

// distance maps an xid to its distance from the last one; atDistance is its inverse. Records without an xid,
// which would be any distance away, are told by one that does not occur.
func (p *place) distance(xid uint32) uint32 {
	const none = 1 << 31
	d := xid - p.xid
	switch d {
	case -p.xid:
		return none
	case none:
		return -p.xid
	}
	return d
}

func (p *place) atDistance(d uint32) uint32 {
	const none = 1 << 31
	switch d {
	case none:
		d = -p.xid
	case -p.xid:
		d = none
	}
	return p.xid + d
}
