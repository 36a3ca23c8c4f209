package model

import (
	"math/bits"

	"walproxy/recompress/rangecoder"
)

const indexTupleHead = 8 // IndexTupleData: TID, t_info

// indexTuples codes the special area and the tuples of an index page.
func (m *model) indexTuples(ctx uint32, p []byte, k *block, n int) {
	ref := &k.rel.page
	special := p[blockBytes-btreeSpecial:]
	c := ctx + ctxImageSpecial
	for i := 0; i < btreeSpecial; i += 4 {
		candidates := [...]uint32{at32(ref.special[:], i), at32(ref.special[:], i) + 1, k.number + 1, k.number - 1, 0}
		m.put32(special[i:], m.u32(c+uint32(i)<<8, candidates[:], at32(special, i)))
	}
	copy(ref.special[:], special)
	m.mark(costImageHeader)
	class := m.rows.class(rangecoder.Hash(k.rel.ctx, ctxKey))
	x := &m.image.xact
	for i := range n {
		offset, state, length := linePointer(le.Uint32(p[pageHeaderBytes+4*i:]))
		if !hasStorage(state, length) {
			continue
		}
		t := p[offset : offset+length]
		if length < indexTupleHead {
			m.bytes(ctx+ctxImageTuple, t, nil)
			continue
		}
		usual := false
		if m.image.scattered(ref) {
			usual = m.scatteredTuple(ctx, t, ref, uint32(length))
		} else {
			usual = m.nextTuple(ctx, t, ref, uint32(length))
		}
		if !usual {
			m.imageTID(ctx, t, ref)
			m.indexInfo(ctx, t, ref, uint32(length))
		}
		m.mark(costImageTuples)
		x.renew()
		m.row(class, t[indexTupleHead:], 0, version{}, x)
		m.mark(costImageValues)
	}
}

// indexInfo codes an index tuple's t_info: its length, and the flags of the tuple before, as a rule.
func (m *model) indexInfo(ctx uint32, t []byte, ref *imageRef, length uint32) {
	candidates := [...]uint32{length | ref.info&^0x1fff, length}
	m.put16(t[6:], m.u16(ctx+ctxImageTuple, candidates[:], at16(t, 6)))
	ref.info = at16(t, 6)
}

// scattered reports whether the TIDs of an index have lately been all over its table.
func (*imageState) scattered(ref *imageRef) bool {
	return bits.OnesCount16(ref.strays) >= scatteredRun && ref.tidCost[0]+tidMargin >= ref.tidCost[1]
}

const (
	scatteredRun = 15    // of the last 16 TIDs were not near the one before
	tidMargin    = 3 * 8 // bits, in 1/8, that a TID may take less in full than as a distance before distances are better
	uniformLimit = 1 << 28
)

// scatteredTuple codes the TID and the t_info of a tuple whose TID may be anywhere in the part of the table that was met and whose flags
// are those of the one before, or reports false.
func (m *model) scatteredTuple(ctx uint32, t []byte, ref *imageRef, length uint32) bool {
	info := length | ref.info&^0x1fff
	if !m.scatteredTID(ctx, t, ref, at16(t, 6) == info) {
		return false
	}
	m.put16(t[6:], info)
	ref.info = info
	return true
}

// scatteredTID codes a TID that may be anywhere in the part of the table that was met, or reports false: it is outside, or usual,
// whatever else has to hold, does not.
func (m *model) scatteredTID(ctx uint32, t []byte, ref *imageRef, usual bool) bool {
	tid := (*[6]byte)(t)
	block, item := uint32(le.Uint16(tid[0:]))<<16|uint32(le.Uint16(tid[2:])), uint32(le.Uint16(tid[4:]))
	items := ref.lastItem
	size := (uint64(ref.lastBlock) + 1) * uint64(items)
	if size == 0 || size > uniformLimit {
		return false
	}
	if !m.Flag(ctx+ctxImageField, 14, usual && block <= ref.lastBlock && item-1 < items) {
		return false
	}
	v := m.Uniform(uint32(size), block*items+item-1)
	if m.decoding {
		block, item = v/items, v%items+1
		*tid = tidOf(block, uint16(item))
	}
	was := uint32(le.Uint16(ref.tid[0:]))<<16 | uint32(le.Uint16(ref.tid[2:]))
	ref.strays <<= 1
	if block-was+1 > 2 {
		ref.strays |= 1
	}
	ref.tid = *tid
	return true
}

// nextTuple codes whether an index tuple points to the heap tuple behind the last one's and has the same flags.
func (m *model) nextTuple(ctx uint32, t []byte, ref *imageRef, length uint32) bool {
	tid := ref.tid
	le.PutUint16(tid[4:], le.Uint16(tid[4:])+1)
	info := length | ref.info&^0x1fff
	if !m.Flag(ctx+ctxImageField, 15, !m.decoding && string(t[:6]) == string(tid[:]) && at16(t, 6) == info) {
		return false
	}
	ref.tid, ref.info = tid, info
	ref.strays <<= 1
	if m.decoding {
		copy(t, tid[:])
	}
	m.put16(t[6:], info)
	return true
}

// imageTID codes the TID of an index tuple: behind the one before, near it, or anywhere.
func (m *model) imageTID(ctx uint32, t []byte, ref *imageRef) {
	c := ctx + ctxImageField
	was := at16(ref.tid[:], 0)<<16 | at16(ref.tid[:], 2)
	wasItem := at16(ref.tid[:], 4)
	block := at16(t, 0)<<16 | at16(t, 2)
	candidates := [...]uint32{was, was + 1, was - 1}
	i := m.pick(c, candidates[:], block)
	ref.strays <<= 1
	if i == noPick {
		ref.strays |= 1
	}
	switch {
	case i != noPick:
		block = candidates[i]
	case ref.tidCost[0] < ref.tidCost[1]:
		block = was + uint32(m.Int(c+1, int64(int32(block-was))))
	default:
		block = uint32(m.Uint(c+2, uint64(block)))
	}
	if i == noPick {
		d := block - was
		near, full := bits.Len32(d<<1^uint32(int32(d)>>31)), bits.Len32(block)
		ref.tidCost[0] = uint16((int(ref.tidCost[0])*7 + near*8) / 8)
		ref.tidCost[1] = uint16((int(ref.tidCost[1])*7 + full*8) / 8)
	}
	m.put16(t, block>>16)
	m.put16(t[2:], block&0xffff)
	next := [...]uint32{wasItem + 1, 1, wasItem - 1, wasItem}
	place := c + 3
	if i == noPick {
		place = c + 5
	}
	item := m.u16(place, next[:], at16(t, 4))
	m.put16(t[4:], item)
	copy(ref.tid[:], t[:6])
	ref.lastBlock, ref.lastItem = max(ref.lastBlock, block), max(ref.lastItem, item)
}
