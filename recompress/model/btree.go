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
	if m.flag(ctx+ctxTid, 0, string(b[:6]) == string(tid[:])) {
		if m.decoding {
			copy(b, tid[:])
		}
	} else {
		m.tid(ctx, b, x.block, uint32(x.offset))
	}
	m.put16(b[6:], m.u16(ctx+ctxTupleInfo, []uint32{at16(last, 6)}, at16(b, 6)))
	m.mark(costKey)
	m.row(m.rows.class(rangecoder.Hash(k.rel.ctx, ctxKey)), b[8:], 0, version{}, x)
}

// tid codes a TID near a block and item.
func (m *model) tid(ctx uint32, b []byte, block, item uint32) {
	v := at16(b, 0)<<16 | at16(b, 2)
	v = block + uint32(m.Int(m.table, ctx+ctxTidBlock, int64(int32(v-block))))
	m.put16(b, v>>16)
	m.put16(b[2:], v&0xffff)
	m.put16(b[4:], m.u16(ctx+ctxTidItem, []uint32{item + 1, item}, at16(b, 4)))
}
