package undo

import "walproxy/protocol/wal"

// Record facts, by short names. Source of imageHole: PostgreSQL src/include/access/xlogrecord.h (13-18).
const (
	maxBlockID = wal.MaxBlockID

	forkImage   = byte(wal.BlockHasImage)
	forkData    = byte(wal.BlockHasData)
	forkSameRel = byte(wal.BlockSameRel)

	idMainShort = wal.IDMainShort
	idMainLong  = wal.IDMainLong
	idOrigin    = wal.IDOrigin
	idTopXid    = wal.IDTopXID

	imageHole = 0x01 // BKPIMAGE_HAS_HOLE

	// rowHead is what a row has in front of the block headers: the distance of the xid, info, rmid, length of the block headers.
	rowHead    = 8
	maxHeaders = 2 << 10 // of block headers
)

// layout says where the parts of a record lie.
type layout struct {
	blocks  [maxBlockID + 1]part
	n       int // blocks
	headers int // bytes of block headers
	main    int // bytes of main data
	data    int // bytes of block data
	images  int // bytes of page images
	key     uint64
}

// part is a block reference.
type part struct {
	image, data, hole int  // bytes; hole: offset of the hole in the page, 0 if there is none
	plain             bool // the image is not compressed
}

// rowBytes returns the length of the row: everything but the images, xl_tot_len, xl_prev and xl_crc.
func (l *layout) rowBytes() int { return rowHead + l.headers + l.main + l.data }

// total returns xl_tot_len.
func (l *layout) total() int { return recordHeader + l.headers + l.main + l.data + l.images }

// mix makes the kind of a record out of what its headers consist of.
func (l *layout) mix(v uint64) {
	h := (l.key ^ v) * 0x9E3779B97F4A7C15
	l.key = h ^ h>>29
}

// parse reads the block headers at the start of b. If headers is not negative, that is how long they are; else b is all of the
// record behind its header, and parse finds out. It reports false if a rule of the format is broken.
//
// Source: PostgreSQL src/backend/access/transam/xlogreader.c, DecodeXLogRecord (13-18).
func (l *layout) parse(b []byte, headers int, compressed byte) bool {
	l.n, l.headers, l.main, l.data, l.images, l.key = 0, 0, 0, 0, 0, 0
	at := 0
	for headers < 0 && len(b)-at > l.main+l.data+l.images || at < headers {
		n := l.item(b[at:], compressed)
		if n == 0 {
			return false
		}
		at += n
		if l.main > 0 {
			break
		}
	}
	l.headers = at
	if headers >= 0 {
		return at == headers
	}
	return at <= maxHeaders && len(b) == at+l.main+l.data+l.images
}

// item reads what b begins with and returns its length, 0 if it is nothing that may stand there.
func (l *layout) item(b []byte, compressed byte) int {
	id := b[0]
	l.mix(uint64(id))
	switch {
	case id == idMainShort && len(b) >= 2 && b[1] > 0:
		l.main = int(b[1])
		return 2
	case id == idMainLong && len(b) >= 5 && le.Uint32(b[1:])-1 < maxRecord:
		l.main = int(le.Uint32(b[1:]))
		return 5
	case id == idOrigin && len(b) >= 3:
		return 3
	case id == idTopXid && len(b) >= 5:
		return 5
	case id <= maxBlockID && l.n <= maxBlockID:
		return l.block(b, compressed)
	}
	return 0
}

func (l *layout) block(b []byte, compressed byte) int {
	if len(b) < 8 {
		return 0
	}
	fork := b[1]
	l.mix(uint64(fork))
	k := &l.blocks[l.n]
	*k = part{data: int(le.Uint16(b[2:]))}
	at := 4
	if fork&forkImage != 0 {
		if len(b) < at+5 {
			return 0
		}
		k.image, k.hole = int(le.Uint16(b[at:])), int(le.Uint16(b[at+2:]))
		info := b[at+4]
		k.plain = info&compressed == 0
		l.mix(uint64(info))
		at += 5
		if info&imageHole == 0 {
			k.hole = 0
		} else if !k.plain {
			at += 2
		}
	}
	if fork&forkSameRel == 0 {
		if len(b) < at+12 {
			return 0
		}
		l.mix(le.Uint64(b[at:]))
		l.mix(uint64(le.Uint32(b[at+8:])))
		at += 12
	}
	if at += 4; len(b) < at {
		return 0
	}
	l.n++
	l.data += k.data
	l.images += k.image
	return at
}

// compressedMask returns the bits of bimg_info that say an image is compressed. They moved in PostgreSQL 15.
func compressedMask(magic uint16) byte {
	if magic != 0 && magic < firstMagicOf15 {
		return 0x02
	}
	return 0x1c
}
