package model

import (
	"walproxy/protocol"
	"walproxy/protocol/wal"
)

// Page header facts, by short names.
const (
	shortHeader  = wal.ShortHeaderBytes
	longHeader   = wal.LongHeaderBytes
	infoContinue = uint16(wal.FirstIsContrecord)
	infoLong     = uint16(wal.LongHeader)
	infoBackup   = uint16(wal.BackupRemovable)
)

const (
	firstMagicOf15 = 0xD110
	firstMagicOf17 = 0xD116
)

// pageState is where a stream is, and what the next page header should say.
type pageState struct {
	pos      protocol.LSN
	last     protocol.LSN // start of the last record: the next one's xl_prev
	rest     int64        // bytes of the record in progress that are still to come; 0 if none or unknown
	lastItem itemKind
	lastKind int // of page header

	tli      uint32
	segment  uint32 // bytes
	walBlock uint32
	system   uint64
	magic    uint16
	info     uint16
}

// expect writes the header that the page at pos should begin with and returns its length.
func (p *pageState) expect(h *[longHeader]byte) int {
	info := p.info & infoBackup
	if p.rest > 0 {
		info |= infoContinue
	}
	n := shortHeader
	if p.segment != 0 && uint64(p.pos)%uint64(p.segment) == 0 {
		info |= infoLong
		n = longHeader
	}
	p.fill(h, info, p.tli, uint32(p.rest), 0)
	return n
}

func (p *pageState) fill(h *[longHeader]byte, info uint16, tli, rest, pad uint32) {
	le.PutUint16(h[0:], p.magic)
	le.PutUint16(h[2:], info)
	le.PutUint32(h[4:], tli)
	le.PutUint64(h[8:], uint64(p.pos))
	le.PutUint32(h[16:], rest)
	le.PutUint32(h[20:], pad)
	le.PutUint64(h[24:], p.system)
	le.PutUint32(h[32:], p.segment)
	le.PutUint32(h[36:], p.walBlock)
}

// Kinds of page header.
const (
	headerExpected = iota
	headerOther
	headerNone
)

const (
	ctxHeader = 0x0102_0000 + iota
	ctxHeaderField
)

// pageHeader codes what the page at the position begins with, and moves behind it. No header at all is a kind too.
func (m *model) pageHeader() {
	p := &m.page
	var want [longHeader]byte
	n := p.expect(&want)
	kind := headerNone
	if !m.decoding {
		if got := wal.PageHeaderBytes(m.wal[m.at:m.end], p.pos); got != 0 {
			kind = headerOther
			if got == n && string(m.wal[m.at:m.at+n]) == string(want[:n]) {
				kind = headerExpected
			}
		}
	}
	kind = m.Symbol(ctxHeader+uint32(p.lastKind)<<8, 2, kind)
	p.lastKind = kind
	switch kind {
	case headerExpected:
		if n > m.end-m.at {
			m.corrupt("page header crosses the end")
			return
		}
		if m.decoding {
			m.wal = append(m.wal, want[:n]...)
		}
		m.skipHeader(n)
	case headerOther:
		m.otherHeader()
	case headerNone:
		p.rest = 0
	default:
		m.corrupt("unknown kind of page header")
	}
	m.mark(costPageHeader)
}

func (m *model) skipHeader(n int) {
	m.at += n
	m.page.pos += protocol.LSN(n)
}

// otherHeader codes a header that differs from the expected one, field by field, and learns from it.
func (m *model) otherHeader() {
	p := &m.page
	var h [longHeader]byte
	if !m.decoding {
		copy(h[:], m.wal[m.at:m.end])
	}
	info := uint16(m.number(0, uint64(p.info), uint64(le.Uint16(h[2:]))))
	p.magic = uint16(m.number(1, uint64(p.magic), uint64(le.Uint16(h[0:]))))
	tli := uint32(m.number(2, uint64(p.tli), uint64(le.Uint32(h[4:]))))
	rest := uint32(m.number(3, uint64(p.rest), uint64(le.Uint32(h[16:]))))
	pad := uint32(m.number(4, 0, uint64(le.Uint32(h[20:]))))
	n := shortHeader
	if info&infoLong != 0 {
		n = longHeader
		p.system = m.number(5, p.system, le.Uint64(h[24:]))
		p.segment = uint32(m.number(6, uint64(p.segment), uint64(le.Uint32(h[32:]))))
		p.walBlock = uint32(m.number(7, walPageBytes, uint64(le.Uint32(h[36:]))))
	}
	if n > m.end-m.at {
		m.corrupt("page header crosses the end")
		return
	}
	if m.decoding {
		p.fill(&h, info, tli, rest, pad)
		m.wal = append(m.wal, h[:n]...)
	}
	p.info, p.tli, p.rest = info, tli, int64(rest)
	if info&infoContinue == 0 {
		p.rest = 0
	}
	m.skipHeader(n)
}

// number codes v as expected or in full.
func (m *model) number(place int, expected, v uint64) uint64 {
	if m.Flag(ctxHeaderField, place, v == expected) {
		return expected
	}
	return m.Uint(ctxHeaderField+uint32(place+1)<<8, v)
}

// followBytes learns from b, bytes of unknown meaning at pos; first tells that no record was in progress. If they are the head
// of a record, its length says how many bytes the next pages continue.
func (p *pageState) followBytes(b []byte, pos protocol.LSN, first bool) {
	switch {
	case !first:
		p.rest -= int64(len(b))
	case uint64(pos)%alignment == 0 && len(b) >= 4:
		if size := int64(le.Uint32(b)); size >= recordHeader && size < 1<<30 && size > int64(len(b)) {
			p.rest = size - int64(len(b))
			p.last = pos
		}
	}
}
