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
		m.imageTupleHeader(ctx, t, k, uint32(i+1))
		at := min(max(int(t[tupleHoff]), tupleHeadSize), length)
		for j := tupleHeadSize; j < at; j++ {
			place := class.ctx + ctxImageField + uint32(min(j, 64))<<8
			m.put8(t[j:], m.byteLike(place, m.image.bits[min(j, 64)], t[j]))
			m.image.bits[min(j, 64)] = t[j]
		}
		m.mark(costImageTuples)
		x.renew()
		m.row(class, t[at:], 0, version{}, x)
		m.mark(costImageValues)
	}
}

// imageTupleHeader codes the first 23 bytes of the tuple at an item: like those of the tuple before, as a rule.
func (m *model) imageTupleHeader(ctx uint32, t []byte, k *block, item uint32) {
	ref := &k.rel.page
	c := ctx + ctxImageTuple
	self := tidOf(k.number, uint16(item))
	last := ref.tuple[:]
	regular := !m.decoding && string(t[tupleCtid:tupleCtid+6]) == string(self[:]) && sameTupleHeader(t, last)
	if m.flag(c, 0, regular) {
		m.copyTupleHeader(t, last, self)
		return
	}
	other := ref.other[:]
	if m.flag(c, 1, !m.decoding && string(t[tupleCtid:tupleCtid+6]) == string(self[:]) && sameTupleHeader(t, other)) {
		m.copyTupleHeader(t, other, self)
		ref.tuple, ref.other = ref.other, ref.tuple
		return
	}
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
	ref.other = ref.tuple
	copy(ref.tuple[:], t)
	if block == k.number && to != item {
		m.store.item(k.rel, k.number, item).next = uint16(to)
	}
}

func sameTupleHeader(t, last []byte) bool {
	return string(t[:tupleCtid]) == string(last[:tupleCtid]) && string(t[tupleStart:tupleHeadSize]) == string(last[tupleStart:tupleHeadSize])
}

func (m *model) copyTupleHeader(t, last []byte, ctid [6]byte) {
	if m.decoding {
		copy(t[:tupleCtid], last)
		copy(t[tupleCtid:], ctid[:])
		copy(t[tupleStart:tupleHeadSize], last[tupleStart:])
	}
}
