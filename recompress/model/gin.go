package model

import (
	"walproxy/protocol/wal"
	"walproxy/recompress/rangecoder"
)

// Facts of GIN. Source: PostgreSQL src/include/access/ginblock.h, ginxlog.h (13-18).
const (
	ginInsert     = rmGin<<8 | 0x20
	ginVacuumLeaf = rmGin<<8 | 0x90 // XLOG_GIN_VACUUM_DATA_LEAF_PAGE

	ginInsertData = 1 // GIN_INSERT_ISDATA
	ginInsertLeaf = 2 // GIN_INSERT_ISLEAF

	ginSegmentDelete  = 1
	ginSegmentInsert  = 2
	ginSegmentReplace = 3
	ginSegmentAdd     = 4

	ginTree      = 0xffff  // GIN_TREE_POSTING in place of a number of TIDs
	ginListMark  = 1 << 31 // GIN_ITUP_COMPRESSED
	ginEntryHead = 4       // ginxlogInsertEntry: offset, isDelete, padding
)

const (
	ctxGinEntry = 0x0e02_0000 + iota
	ctxGinOffset
	ctxGinAction
	ctxGinTree
	ctxGinRest
)

// Keys of posting lists in the store stand for items that no table has.
const (
	ginKeyItem     = 0xffe // of a key; in place of the block, its hash
	ginSegmentItem = 0x800 // and the segment's number
)

// ginBlock codes the data of a block of a GIN record: true if it is of a kind that is taken apart.
func (m *model) ginBlock(r *record, k *block, ctx uint32) bool {
	switch op := r.op(); {
	case op == ginVacuumLeaf:
		m.ginRecompress(k, ctx, r.xact)
	case op != ginInsert || len(r.main) < 2:
		return false
	case r.main[0]&ginInsertData == 0 && len(k.data) >= ginEntryHead+indexTupleHead:
		b := k.data
		last := r.plan.blocks[0].data
		likely := [...]uint32{at16(last, 0), at16(last, 0) + 1}
		m.put16(b, m.u16(ctx+ctxGinOffset, likely[:], at16(b, 0)))
		m.put8(b[2:], m.byteLike(ctx+ctxGinOffset+2, at8(last, 2), b[2]))
		m.put8(b[3:], m.byteLike(ctx+ctxGinOffset+4, at8(last, 3), b[3]))
		m.ginEntry(ctx, b[ginEntryHead:], k.rel)
	case r.main[0]&(ginInsertData|ginInsertLeaf) == ginInsertData|ginInsertLeaf:
		m.ginRecompress(k, ctx, r.xact)
	default:
		return false
	}
	m.mark(costKey)
	return true
}

// ginEntry codes a tuple of an entry tree, at least indexTupleHead bytes: a key with its posting list, or with a block.
func (m *model) ginEntry(ctx uint32, t []byte, rel *relState) {
	ref := m.postings.of(rel)
	class := m.rows.class(rangecoder.Hash(rel.ctx, ctxKey))
	x := &m.image.xact
	x.renew()
	list := !m.decoding && m.isGinList(t)
	offset := 0
	if list {
		offset = int(le.Uint16(t[2:]))
	}
	list = m.Flag(ctx+ctxGinEntry, 0, list)
	m.put16(t[6:], m.u16(ctx+ctxGinEntry+1, []uint32{uint32(len(t))&0x1fff | ref.info&^0x1fff}, at16(t, 6)))
	ref.info = at16(t, 6)
	if !list {
		block := at16(t, 0)<<16 | at16(t, 2)
		block = m.u32(ctx+ctxGinTree, []uint32{ref.block + 1, ref.block, 0}, block)
		ref.block = block
		m.put16(t, block>>16)
		m.put16(t[2:], block&0xffff)
		m.put16(t[4:], m.u16(ctx+ctxGinTree+2, []uint32{ginTree, 0, 1}, at16(t, 4)))
		m.row(class, t[indexTupleHead:], 0, version{}, x)
		return
	}
	offset = int(m.u16(ctx+ctxGinOffset+6, []uint32{ref.offset}, uint32(offset)))
	if offset < indexTupleHead || offset > len(t) {
		m.corrupt("offset of a posting list")
		return
	}
	ref.offset = uint32(offset)
	m.row(class, t[indexTupleHead:offset], 0, version{}, x)
	key := m.store.key(rel, hashBytes(t[indexTupleHead:offset]), ginKeyItem)
	n := m.postingList(t[offset:], m.store.list(key), ref, false)
	if m.err != nil || n == 0 {
		m.corrupt("posting list of a key")
		return
	}
	m.store.putList(key, t[offset:offset+n])
	if m.decoding {
		le.PutUint16(t, ginListMark>>16)
		le.PutUint16(t[2:], uint16(offset))
		le.PutUint16(t[4:], uint16(postingCount(t[offset:])))
		clear(t[offset+n:])
	}
}

// isGinList reports whether a tuple of an entry tree has a posting list that can be taken apart, and nothing behind it.
func (m *model) isGinList(t []byte) bool {
	offset := int(le.Uint16(t[2:]))
	if le.Uint16(t) != ginListMark>>16 || offset < indexTupleHead || offset > len(t) {
		return false
	}
	n, size := parsePostings(t[offset:], m.postings.items[:])
	return n > 0 && n == int(le.Uint16(t[4:])) && wal.IsZero(t[offset+size:])
}

// postingCount returns how many TIDs the sound list at the start of b has.
func postingCount(b []byte) int {
	n := 1
	for _, c := range b[postingHead:][:le.Uint16(b[6:])] {
		if c < 0x80 {
			n++
		}
	}
	return n
}

// ginRecompress codes what happens to the segments of a leaf of a posting tree.
//
// Source: PostgreSQL src/include/access/ginxlog.h, ginxlogRecompressDataLeaf (13-18).
func (m *model) ginRecompress(k *block, ctx uint32, x *xact) {
	b, ref := k.data, m.postings.of(k.rel)
	at := 0
	if len(b) >= 2 {
		m.put16(b, m.u16(ctx+ctxGinAction, []uint32{1}, at16(b, 0)))
		at = 2
	}
	was := byte(0)
	for at+2 <= len(b) && m.err == nil {
		c := ctx + ctxGinAction + uint32(was)<<12
		m.put8(b[at:], m.byteLike(c+2, ref.segment, b[at]))
		segment := b[at]
		ref.segment = segment + 1
		m.put8(b[at+1:], m.byteLike(c+4, was, b[at+1]))
		was = b[at+1]
		at += 2
		n := 0
		switch was {
		case ginSegmentDelete:
			continue
		case ginSegmentInsert, ginSegmentReplace:
			key := m.store.key(k.rel, k.number, ginSegmentItem|uint32(segment))
			if n = m.postingList(b[at:], m.store.list(key), ref, was == ginSegmentInsert); n > 0 && m.err == nil {
				m.store.putList(key, b[at:at+n])
			}
		case ginSegmentAdd:
			n = m.ginAdded(ctx, b[at:], x)
		}
		if n == 0 {
			break
		}
		at += n
	}
	if m.err == nil {
		m.bytes(ctx+ctxGinRest, b[at:], nil)
	}
}

// ginAdded codes the TIDs that a segment gets, behind their number.
func (m *model) ginAdded(ctx uint32, b []byte, x *xact) int {
	if len(b) < 2 {
		return 0
	}
	m.put16(b, m.u16(ctx+ctxGinAction+6, []uint32{1}, at16(b, 0)))
	block, item := x.block, uint32(x.offset)-1
	at := 2
	for range at16(b, 0) {
		if at+6 > len(b) {
			break
		}
		m.tid(ctx+ctxGinAction, b[at:], block, item)
		block, item = at16(b, at)<<16|at16(b, at+2), at16(b, at+4)
		at += 6
	}
	return at
}

// hashBytes is a hash of a key.
func hashBytes(b []byte) uint32 {
	h := uint32(len(b))
	for len(b) >= 4 {
		h = rangecoder.Hash(h, le.Uint32(b))
		b = b[4:]
	}
	for _, c := range b {
		h = rangecoder.Hash(h, uint32(c))
	}
	return h
}

// list returns the posting list that putList remembered, nil if there is none.
func (s *store) list(key uint64) []byte {
	b := s.get(key)
	if len(b) < 2 {
		return nil
	}
	return b[2:][:min(int(le.Uint16(b)), len(b)-2)]
}

// putList remembers a posting list, where its old version is if there is room: lists grow by little and often.
func (s *store) putList(key uint64, list []byte) {
	b := s.get(key)
	if len(b) < 2+len(list) {
		b = s.put(key, 2+len(list)+len(list)/8+8)
	}
	le.PutUint16(b, uint16(len(list)))
	copy(b[2:], list)
}
