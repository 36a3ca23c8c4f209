package model

import "walproxy/recompress/rangecoder"

// Layout of a MULTI INSERT. Source: PostgreSQL src/include/access/heapam_xlog.h, xl_heap_multi_insert,
// xl_multi_insert_tuple (13-18).
const (
	multiMain  = 4 // flags, padding, ntuples; then the items, unless the page is new
	multiTuple = 2 // datalen, in front of the tuple header
)

// multiInsert codes the main data: how many tuples there are, and their items if the page is not new.
func (m *model) multiInsert(r *record, ctx uint32) {
	b, last := r.main, r.plan.main
	k := &r.blocks[0]
	m.put8(b, m.byteLike(ctx+ctxHeapFlags, at8(last, 0), b[0]))
	m.put8(b[1:], m.byteLike(ctx+ctxHeapFlags+1<<8, at8(last, 1), b[1]))
	expected := uint32(len(b)-multiMain) / 2
	m.put16(b[2:], m.u16(ctx+ctxHeapItem, []uint32{expected, at16(last, 2)}, at16(b, 2)))
	p := m.store.page(k.rel, k.number)
	item := m.store.nextItem(p)
	for at := multiMain; at+2 <= len(b); at += 2 {
		item = m.u16(ctx+ctxHeapOld, []uint32{item, uint32(p.newest) + 1}, at16(b, at))
		m.put16(b[at:], item)
		m.store.use(p, item)
		item++
	}
	if len(b)&1 != 0 {
		m.put8(b[len(b)-1:], m.byteLike(ctx+ctxHeapFlags+2<<8, 0, b[len(b)-1]))
	}
	m.mark(costMain)
}

// multiInsertData codes the tuples, back to back and aligned to two bytes.
func (m *model) multiInsertData(r *record, b []byte, ctx uint32) {
	k := &r.blocks[0]
	class := m.rows.class(rangecoder.Hash(k.rel.ctx, ctxRow))
	h := rangecoder.Hash(k.rel.ctx, ctxHeapHeader)
	x := &m.image.xact
	last := m.rows.head[:]
	i, at := uint32(0), 0
	for len(b)-at >= multiTuple+tupleHeader {
		if at&1 != 0 {
			m.put8(b[at:], m.byteLike(ctx, 0, b[at]))
			at++
			continue
		}
		n := m.u16(h+ctxHeapPrefix, []uint32{m.rows.size}, at16(b, at))
		m.put16(b[at:], n)
		m.rows.size = n
		t := b[at+multiTuple:]
		t = t[:min(int(n)+tupleHeader, len(t))]
		m.mark(costLength)
		head := m.tupleHead(h, t, last)
		last = m.rows.head[:copy(m.rows.head[:], t[:head])]
		x.renew()
		m.row(class, t[head:], 0, version{}, x)
		item := i + 1
		if j := multiMain + 2*int(i); j+2 <= len(r.main) {
			item = at16(r.main, j)
		}
		copy(m.store.putTuple(k.rel, k.number, item, len(t)-head, 0, len(t)-head), t[head:])
		at += multiTuple + len(t)
		i++
	}
	m.bytes(ctx, b[at:], nil)
	m.mark(costText)
}
