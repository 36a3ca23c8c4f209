package model

import "walproxy/recompress/rangecoder"

const (
	ctxTid = 0x0a01_0000 + iota
	ctxTidBlock
	ctxTidItem
	ctxTupleInfo
	ctxKey
)

// tidOf returns the six bytes of a heap TID. Source: PostgreSQL src/include/storage/itemptr.h (13-18).
func tidOf(block uint32, item uint16) (t [6]byte) {
	le.PutUint16(t[0:], uint16(block>>16))
	le.PutUint16(t[2:], uint16(block))
	le.PutUint16(t[4:], item)
	return t
}

// btreeInsert codes an index tuple: the TID of the tuple that its transaction wrote last, its length, its key.
func (m *model) btreeInsert(r *record, k *block, ctx uint32) {
	b, x, last := k.data, r.xact, r.plan.blocks[0].data
	tid := tidOf(x.block, x.offset)
	info := at16(last, 6)
	if m.Flag(ctx+ctxTid, 0, string(b[:6]) == string(tid[:]) && at16(b, 6) == info) {
		if m.decoding {
			copy(b, tid[:])
		}
		m.put16(b[6:], info)
	} else {
		m.tid(ctx, b, x.block, uint32(x.offset))
		m.put16(b[6:], m.u16(ctx+ctxTupleInfo, []uint32{info}, at16(b, 6)))
	}
	m.mark(costKey)
	m.row(m.rows.class(rangecoder.Hash(k.rel.ctx, ctxKey)), b[8:], 0, version{}, x)
}

// tid codes a TID near a block and item.
func (m *model) tid(ctx uint32, b []byte, block, item uint32) {
	v := at16(b, 0)<<16 | at16(b, 2)
	v = block + uint32(m.Int(ctx+ctxTidBlock, int64(int32(v-block))))
	m.put16(b, v>>16)
	m.put16(b[2:], v&0xffff)
	m.put16(b[4:], m.u16(ctx+ctxTidItem, []uint32{item + 1, item}, at16(b, 4)))
}

// btreeItem codes the main data of an insertion: the item of the new tuple, behind the one before if keys grow, or as far behind it
// as that was behind its own.
func (m *model) btreeItem(r *record, ctx uint32) {
	last := at16(r.plan.main, 0)
	c := [...]uint32{last + 1, last, last + r.plan.step}
	item := m.u16(ctx, c[:], at16(r.main, 0))
	m.put16(r.main, item)
	r.plan.stride(last, item)
	m.mark(costOffset)
}

// indexItems codes the tuples that a split moves to the new page, back to back and aligned to eight bytes.
//
// Source: PostgreSQL src/backend/access/nbtree/nbtxlog.c, btree_xlog_split (13-18).
func (m *model) indexItems(k *block, ctx uint32) {
	b, ref := k.data, &k.rel.page
	class := m.rows.class(rangecoder.Hash(k.rel.ctx, ctxKey))
	x := &m.image.xact
	for len(b) >= indexTupleHead {
		m.imageTID(ctx, b, ref)
		info := m.u16(ctx+ctxTupleInfo, []uint32{ref.info}, at16(b, 6))
		m.put16(b[6:], info)
		ref.info = info
		n := min(max(int(info&0x1fff+7)&^7, indexTupleHead), len(b))
		x.renew()
		m.row(class, b[indexTupleHead:n], 0, version{}, x)
		b = b[n:]
	}
	m.bytes(ctx, b, nil)
	m.mark(costKey)
}
