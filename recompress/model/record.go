package model

import (
	"hash/crc32"

	"walproxy/protocol"
	"walproxy/protocol/wal"
)

// Record facts, by short names. Source of the last: PostgreSQL src/include/access/xlogrecord.h (13-18).
const (
	recordHeader = wal.RecordHeaderBytes
	maxBlockID   = wal.MaxBlockID

	forkImage   = byte(wal.BlockHasImage)
	forkData    = byte(wal.BlockHasData)
	forkSameRel = byte(wal.BlockSameRel)

	idMainShort = wal.IDMainShort
	idMainLong  = wal.IDMainLong
	idOrigin    = wal.IDOrigin
	idTopXid    = wal.IDTopXID

	imageHole = 0x01 // BKPIMAGE_HAS_HOLE
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// relation is the identity of a relation's files: tablespace, database, relfilenode, little endian.
type relation [12]byte

// block is one block reference of a record.
type block struct {
	id, fork   byte
	imageInfo  byte
	rel        *relState
	relation   relation
	number     uint32
	dataBytes  int
	imageBytes int
	holeOffset int
	holeBytes  int
	image      []byte // in the record
	data       []byte // in the record
}

func (b *block) hasImage() bool { return b.fork&forkImage != 0 }

// record is a record taken apart. In an encoder its slices are parts of raw; in a decoder parts of the record being decoded.
type record struct {
	start      protocol.LSN
	raw        []byte // the whole record, without page headers
	physical   int    // encoder: bytes of WAL from its start, page headers included
	xid        uint32
	rmid, info byte
	origin     uint16
	topXid     uint32
	shape      byte // which of the optional parts there are
	prev       uint64
	linked     bool // prev is known
	blocks     [maxBlockID + 1]block
	n          int // blocks
	main       []byte
	mainBytes  int

	kind *kind
	plan *plan
	xact *xact
}

// What a record's shape holds.
const (
	shapeMainShort = 1 << iota
	shapeMainLong
	shapeOrigin
	shapeTopXid
)

// drop forgets the slices into the caller's buffers.
func (r *record) drop() {
	r.raw, r.main = nil, nil
	for i := range r.blocks {
		r.blocks[i].image, r.blocks[i].data = nil, nil
	}
}

// op is the resource manager and the operation: the info byte without the bits that are the server's own.
func (r *record) op() uint32 { return uint32(r.rmid)<<8 | uint32(r.info&0xf0) }

// compressedMask returns the bits of bimg_info that say an image is compressed. They moved in PostgreSQL 15.
func (m *model) compressedMask() byte {
	if m.page.magic != 0 && m.page.magic < firstMagicOf15 {
		return 0x02
	}
	return 0x1c
}

// gather looks for a whole, sound record at the position and parses it into m.rec. It reports false for anything that the
// decoder could not rebuild exactly: that is carried as bytes.
func (m *model) gather() bool {
	r := &m.rec
	b := m.wal[m.at:m.end]
	if len(b) < recordHeader || uint64(m.page.pos)%alignment != 0 {
		return false
	}
	size := int64(le.Uint32(b))
	if size < recordHeader || size > maxRecordSize || size > int64(len(b)) {
		return false
	}
	r.start = m.page.pos
	room := walPageBytes - int(uint64(r.start)%walPageBytes)
	if int(size) <= room {
		r.raw, r.physical = b[:size], int(size)
	} else if !m.join(b, int(size), room) {
		return false
	}
	sum := crc32.Update(0, castagnoli, r.raw[recordHeader:])
	sum = crc32.Update(sum, castagnoli, r.raw[:20])
	return sum == le.Uint32(r.raw[20:]) && r.raw[18] == 0 && r.raw[19] == 0 && m.parse(r) && m.rebuilds(r) && m.dict.holds(r)
}

// join copies a record of size bytes that page headers interrupt to m.scratch. It reports false if the record is not whole.
func (m *model) join(b []byte, size, room int) bool {
	m.scratch = append(m.scratch[:0], b[:room]...)
	at := room
	for len(m.scratch) < size {
		pos := m.page.pos + protocol.LSN(at)
		n := wal.PageHeaderBytes(b[at:], pos)
		left := size - len(m.scratch)
		if n == 0 || le.Uint16(b[at+2:])&infoContinue == 0 || int(le.Uint32(b[at+16:])) != left {
			return false
		}
		at += n
		take := min(left, walPageBytes-n)
		if take > len(b)-at {
			return false
		}
		m.scratch = append(m.scratch, b[at:at+take]...)
		at += take
	}
	m.rec.raw, m.rec.physical = m.scratch, at
	return true
}

// rebuilds reports whether the header and the block headers written from the parsed fields are those of the record.
func (m *model) rebuilds(r *record) bool {
	n := r.headBytes(m.compressedMask())
	if cap(m.headCheck) < n {
		m.headCheck = make([]byte, n+256)
	}
	head := m.headCheck[:n]
	r.writeHead(head, m.compressedMask(), len(r.raw))
	return string(head[recordHeader:]) == string(r.raw[recordHeader:n])
}

// inPage reports whether a record of n bytes at the position ends in its page. Such a one is decoded where it belongs.
func (m *model) inPage(n int) bool { return n <= walPageBytes-int(uint64(m.page.pos)%walPageBytes) }

// lay moves the decoded record to the WAL, with the page headers between its parts. The encoder codes the headers only.
func (m *model) lay(r *record) {
	p := &m.page
	left := len(r.raw)
	for {
		n := min(left, walPageBytes-int(uint64(p.pos)%walPageBytes))
		if n > m.end-m.at {
			m.corrupt("record crosses the end")
			return
		}
		switch {
		case !m.decoding:
		case n == len(r.raw):
			m.wal = m.wal[:m.at+n]
		default:
			m.wal = append(m.wal, r.raw[len(r.raw)-left:][:n]...)
		}
		m.at += n
		p.pos += protocol.LSN(n)
		if left -= n; left == 0 {
			break
		}
		p.rest = int64(left)
		if m.at >= m.end {
			m.corrupt("record crosses the end")
			return
		}
		if m.pageHeader(); m.err != nil || p.lastKind == headerNone {
			m.corrupt("record without page header")
			return
		}
	}
	p.rest = 0
	p.last = r.start
}
