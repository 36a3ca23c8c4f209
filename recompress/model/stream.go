package model

import (
	"encoding/binary"

	"walproxy/protocol"
	"walproxy/protocol/wal"
)

var le = binary.LittleEndian

// itemKind says what comes next in a stream.
type itemKind int

const (
	itemRecord itemKind = iota // a whole record, with the page headers inside it
	itemBytes                  // bytes up to the end of the page at most
	itemZeros                  // bytes that are zero, over any number of pages
)

const (
	minZeros  = 64 // shorter runs of zeros are not worth an item
	alignment = 8
)

// Contexts of the stream's own decisions. Every context constant of the package is distinct in its upper half.
const (
	ctxPadding = 0x0101_0000 + iota
	ctxItem
	ctxItemBytes
	ctxZeros
	ctxUsual
)

// item codes the next item: what a page begins with, padding, a record or bytes. It always moves on by a byte at least.
func (m *model) item() {
	if m.usual() {
		m.record()
		return
	}
	if m.padding(); m.at >= m.end {
		return
	}
	if uint64(m.page.pos)%walPageBytes == 0 {
		m.pageHeader()
		if m.at >= m.end || m.err != nil {
			return
		}
	}
	kind := itemRecord
	if !m.decoding {
		kind = m.choose()
	}
	p := &m.page
	place := 4 * int(p.lastItem)
	if p.rest > 0 {
		place += 16
	}
	kind = itemKind(m.Symbol(ctxItem+uint32(place)<<8, 2, int(kind)))
	p.lastItem = kind
	switch kind {
	case itemRecord:
		m.rec.linked = false
		m.record()
	case itemBytes:
		m.bytesItem()
	case itemZeros:
		m.zerosItem()
	default:
		m.corrupt("unknown item")
	}
}

// usual codes whether what comes next is what nearly always does: zeros up to the next record's place in the same page, and a
// record that links to the one before. If so, it moves on to the record.
func (m *model) usual() bool {
	p := &m.page
	n := int(-uint64(p.pos) & (alignment - 1))
	if p.rest > 0 || (uint64(p.pos)+uint64(n))%walPageBytes == 0 || m.end-m.at <= n {
		return false
	}
	at, pos, hit := m.at, p.pos, false
	if !m.decoding && wal.IsZero(m.wal[m.at:m.at+n]) {
		m.emitZeros(n)
		if hit = m.gather() && m.rec.prev == uint64(p.last); !hit {
			m.at, p.pos = at, pos
		}
	}
	place := int(p.lastItem)
	if n > 0 {
		place += 4
	}
	if !m.Flag(ctxUsual, place, hit) {
		return false
	}
	if m.decoding {
		m.emitZeros(n)
	}
	m.rec.prev = uint64(p.last)
	m.rec.linked = true
	p.lastItem = itemRecord
	return true
}

// padding codes the zero bytes up to the next record's place, if the position is not aligned.
func (m *model) padding() {
	p := &m.page
	n := int(-uint64(p.pos) & (alignment - 1))
	if n == 0 || p.rest > 0 {
		return
	}
	n = min(n, m.end-m.at)
	zero := !m.decoding && wal.IsZero(m.wal[m.at:m.at+n])
	if m.Flag(ctxPadding, int(p.lastItem), zero) {
		m.emitZeros(n)
	}
}

// choose is the encoder's choice. If it is a record, m.rec holds it parsed.
func (m *model) choose() itemKind {
	p := &m.page
	if p.rest == 0 {
		if m.gather() {
			return itemRecord
		}
		if n := m.end - m.at; n >= minZeros && wal.IsZero(m.wal[m.at:m.at+minZeros]) {
			return itemZeros
		}
	}
	return itemBytes
}

// zerosItem codes a run of zeros.
func (m *model) zerosItem() {
	n := 0
	if !m.decoding {
		for m.at+n+8 <= m.end && le.Uint64(m.wal[m.at+n:]) == 0 {
			n += 8
		}
		for m.at+n < m.end && m.wal[m.at+n] == 0 {
			n++
		}
	}
	left := m.end - m.at
	if m.Flag(ctxZeros, 0, n == left) {
		n = left
	} else if n = int(m.Uint(ctxZeros+0x100, uint64(n))); n < 1 || n > left {
		m.corrupt("run of zeros too long")
		return
	}
	m.page.rest = 0
	m.emitZeros(n)
}

// bytesItem codes bytes of unknown meaning up to the end of the page, of the record they belong to, or of the piece.
func (m *model) bytesItem() {
	p := &m.page
	room := walPageBytes - int(uint64(p.pos)%walPageBytes)
	n := min(room, m.end-m.at)
	if p.rest > 0 {
		n = int(min(int64(n), p.rest))
	}
	first := p.rest == 0
	start := m.at
	if m.decoding {
		m.wal = m.wal[:m.at+n]
	}
	b := m.wal[m.at : m.at+n]
	m.bytes(ctxItemBytes, b, nil)
	m.mark(costBytes)
	m.at += n
	pos := p.pos
	p.pos += protocol.LSN(n)
	p.followBytes(m.wal[start:m.at], pos, first)
}

// emitZeros moves on over n zero bytes.
func (m *model) emitZeros(n int) {
	if m.decoding {
		m.wal = m.wal[:m.at+n]
		clear(m.wal[m.at:])
	}
	m.at += n
	m.page.pos += protocol.LSN(n)
}
