package model

import "walproxy/recompress/rangecoder"

// Places in a heap tuple's header. Source: PostgreSQL src/include/access/htup_details.h, HeapTupleHeaderData (13-18).
const (
	tupleXmin     = 0
	tupleXmax     = 4
	tupleCid      = 8
	tupleCtid     = 12
	tupleStart    = 18 // t_infomask2, t_infomask
	tupleHoff     = 22
	tupleHeadSize = 23
)

// heapTuples codes the tuples of a heap page, item by item.
func (m *model) heapTuples(ctx uint32, p []byte, k *block, n int) {
	class := m.rows.class(rangecoder.Hash(k.rel.ctx, ctxRow))
	x := &m.image.xact
	known := m.store.knows(k.rel, k.number)
	for i := range n {
		offset, state, length := linePointer(le.Uint32(p[pageHeaderBytes+4*i:]))
		if !hasStorage(state, length) {
			continue
		}
		t := p[offset : offset+length]
		if length <= tupleHeadSize {
			m.bytes(ctx+ctxImageTuple, t, nil)
			continue
		}
		at := m.imageTupleHeader(ctx, t, k, uint32(i+1))
		m.mark(costImageTuples)
		if known && m.rowAgain(t[at:], k, uint32(i+1)) {
			continue
		}
		x.renew()
		m.row(class, t[at:], 0, version{}, x)
		m.mark(costImageValues)
	}
}

// imageTupleHeader codes the header and the null bitmap of the tuple at an item, like those of the tuple before, as a rule. It
// returns where the data begins.
func (m *model) imageTupleHeader(ctx uint32, t []byte, k *block, item uint32) int {
	ref := &k.rel.page
	c := ctx + ctxImageTuple
	self := tidOf(k.number, uint16(item))
	for place, last := range [...]*tupleHead{&ref.tuple, &ref.other} {
		at := tupleData(last[:], len(t))
		if !m.Flag(c, place, !m.decoding && string(t[tupleCtid:tupleCtid+6]) == string(self[:]) && last.same(t, at)) {
			continue
		}
		if at > len(last) {
			m.corrupt("tuple header")
			return len(t)
		}
		if m.decoding {
			copy(t[:at], last[:])
			copy(t[tupleCtid:], self[:])
		}
		if place > 0 {
			ref.tuple, ref.other = ref.other, ref.tuple
		}
		return at
	}
	return m.otherTupleHeader(c, t, k, item)
}

// otherTupleHeader codes a header and null bitmap field by field, and returns where the data begins.
func (m *model) otherTupleHeader(c uint32, t []byte, k *block, item uint32) int {
	ref := &k.rel.page
	last, other := ref.tuple[:], ref.other[:]
	xmin, xmax := at32(last, tupleXmin), at32(last, tupleXmax)
	m.put32(t, m.u32(c+0x100, []uint32{xmin, xmax, at32(other, 0), m.xacts.max}, at32(t, 0)))
	m.put32(t[4:], m.u32(c+0x200, []uint32{xmax, 0, at32(t, 0), m.xacts.max, at32(other, tupleXmax)}, at32(t, 4)))
	m.put32(t[8:], m.u32(c+0x300, []uint32{at32(last, tupleCid), 0}, at32(t, 8)))
	block := at16(t, tupleCtid)<<16 | at16(t, tupleCtid+2)
	block = m.u32(c+0x400, []uint32{k.number, at16(last, tupleCtid)<<16 | at16(last, tupleCtid+2)}, block)
	m.put16(t[tupleCtid:], block>>16)
	m.put16(t[tupleCtid+2:], block&0xffff)
	lastItem := at16(last, tupleCtid+4)
	to := m.u16(c+0x500, []uint32{item, lastItem + 1, item + 1}, at16(t, tupleCtid+4))
	m.put16(t[tupleCtid+4:], to)
	for i := tupleStart; i < tupleHeadSize; i++ {
		m.put8(t[i:], m.byteLike(c+uint32(i+1)<<12, last[i], t[i]))
	}
	at := tupleData(t, len(t))
	for j := tupleHeadSize; j < at; j++ {
		m.put8(t[j:], m.byteLike(c+ctxImageField+uint32(min(j, 64))<<8, at8(last, j), t[j]))
	}
	ref.other = ref.tuple
	copy(ref.tuple[:], t[:at])
	if block == k.number && to != item {
		m.store.item(k.rel, k.number, item).next = uint16(to)
	}
	return at
}

// tupleHead is a tuple's header and null bitmap, as far as there is room.
type tupleHead [64]byte

// tupleData returns where the data begins of a tuple of n bytes whose header is at the start of t.
func tupleData(t []byte, n int) int { return min(max(int(t[tupleHoff]), tupleHeadSize), n) }

// same reports whether t has the same header up to at, its place excepted.
func (h *tupleHead) same(t []byte, at int) bool {
	return at <= len(h) && string(t[:tupleCtid]) == string(h[:tupleCtid]) && string(t[tupleStart:at]) == string(h[tupleStart:at])
}
