package model

import (
	"math/bits"

	"walproxy/recompress/rangecoder"
)

// Facts of SP-GiST and hash. Source: PostgreSQL src/include/access/spgist_private.h, hash.h (13-18).
const (
	spgistLeaf     = 4  // SPGIST_LEAF
	spgistLeafHead = 12 // SpGistLeafTupleData: state and size, next tuple of the chain, TID

	hashTupleBytes = 16 // TID, t_info, hash value, padding
	hashBucketAt   = 8  // in the special area: hasho_bucket
	hashFewTuples  = 16 // that may have more bits in common by chance
)

// spgistTuple codes a tuple of a leaf page, or what is left of one.
func (m *model) spgistTuple(t *moreTuples, b []byte, item uint32) {
	if len(b) < spgistLeafHead {
		m.bytes(t.ctx+ctxMoreTuple, b, nil)
		return
	}
	c := t.ctx + ctxMoreLink
	m.put32(b, m.u32(c, []uint32{uint32(len(b)) << 2, uint32(len(b))<<2 | 3}, at32(b, 0)))
	next := [...]uint32{item + 1, item - 1, 0, t.last + 1, t.last - 1, t.last}
	t.last = m.u16(c+0x100, next[:], at16(b, 4))
	m.put16(b[4:], t.last)
	m.moreTID(t.ctx, b[6:], t.ref)
	m.row(t.class, b[spgistLeafHead:], 0, version{}, &m.image.xact)
}

// hashBits codes how many low bits of their hash values the tuples of a page have in common with its bucket's number: as many as
// the index has buckets.
func (m *model) hashBits(t *moreTuples, p []byte, n int) {
	bucket := at32(p, blockBytes-btreeSpecial+hashBucketAt)
	shared, count := 31, 0
	for i := 0; i < n && !m.decoding; i++ {
		if offset, state, length := linePointer(le.Uint32(p[pageHeaderBytes+4*i:])); hasStorage(state, length) && length == hashTupleBytes {
			shared = min(shared, bits.TrailingZeros32(at32(p, offset+8)^bucket))
			count++
		}
	}
	was := int(t.ref.hashBits)
	if count < hashFewTuples {
		shared = min(shared, was)
	}
	shared = int(m.byteLike(t.ctx+ctxMoreLink, byte(was), byte(shared)))
	if shared > 31 {
		m.corrupt("bits of a hash value")
		return
	}
	t.ref.hashBits = uint8(shared)
	t.shared, t.low = shared, bucket&(1<<shared-1)
	t.gap = bits.Len32(0xffffffff >> shared / uint32(max(n, 1)))
}

// hashTuple codes a tuple of a bucket: its hash value is not below the one before.
func (m *model) hashTuple(t *moreTuples, b []byte) {
	info := uint32(hashTupleBytes)
	usual := !m.decoding && len(b) == hashTupleBytes && at16(b, 6) == info && at32(b, 12) == 0 && at32(b, 8)&(1<<t.shared-1) == t.low &&
		at32(b, 8)>>t.shared >= t.last
	if usual = m.Flag(t.ctx+ctxMoreTuple, 1, usual); usual && len(b) != hashTupleBytes {
		m.corrupt("tuple of a bucket")
		return
	}
	m.moreTID(t.ctx, b, t.ref)
	if !usual {
		m.indexInfo(t.ctx, b, t.ref, uint32(len(b)))
		m.row(t.class, b[indexTupleHead:], 0, version{}, &m.image.xact)
		return
	}
	m.put16(b[6:], info)
	d := m.Uint(ctxMoreKey+uint32(t.gap)<<8, uint64(at32(b, 8)>>t.shared-t.last))
	t.last += uint32(d)
	m.put32(b[8:], t.last<<t.shared|t.low)
	m.put32(b[12:], 0)
}

// ginContent codes a page of a posting tree: posting lists or keys with blocks, and the right bound in front of them.
func (m *model) ginContent(ctx uint32, f pageForm, p []byte, k *block, lower int) {
	if lower < ginContentAt {
		m.corrupt("bounds of a page")
		return
	}
	ref := m.postings.of(k.rel)
	b := p[ginContentAt:lower]
	chained := false
	for segment := uint32(0); f == formGinLeaf && len(b) > 0; segment++ {
		key := m.store.key(k.rel, k.number, ginSegmentItem|segment&0xff)
		n := m.postingList(b, m.store.list(key), ref, chained)
		if m.err != nil {
			return
		}
		if n == 0 {
			break
		}
		m.store.putList(key, b[:n])
		chained = true
		b = b[n:]
	}
	last := [2]uint32{}
	for f == formGinTree && len(b) >= ginTreeItem {
		block := at16(b, 0)<<16 | at16(b, 2)
		block = m.u32(ctx+ctxMoreLink, []uint32{ref.block + 1, ref.block}, block)
		ref.block = block
		m.put16(b, block>>16)
		m.put16(b[2:], block&0xffff)
		m.tid(ctx, b[4:], last[0], last[1])
		last[0], last[1] = at16(b, 4)<<16|at16(b, 6), at16(b, 8)
		b = b[ginTreeItem:]
	}
	m.bytes(ctx+ctxMoreBody, b, nil)
	bound := p[pageHeaderBytes:ginContentAt]
	end := tidOf(uint32(ref.last>>postingItems), uint16(ref.last&postingMaxItem))
	if f == formGinTree {
		end = tidOf(last[0], uint16(last[1]))
	}
	m.put32(bound, m.u32(ctx+ctxMoreLink+4, []uint32{0, le.Uint32(end[:])}, at32(bound, 0)))
	m.put32(bound[4:], m.u32(ctx+ctxMoreLink+6, []uint32{0, uint32(le.Uint16(end[4:]))}, at32(bound, 4)))
}

// moreBody codes the content of a page that has neither items nor bounds.
func (m *model) moreBody(ctx uint32, f pageForm, b []byte, ref *imageRef) {
	switch f {
	case formRevmap:
		m.revmap(ctx, b)
	case formFreeSpace:
		m.freeSpace(b)
	default:
		m.runs(ctxMoreBody, b)
	}
}

// revmap codes TIDs, most of which are those of the items of one page, one after the other.
func (m *model) revmap(ctx uint32, b []byte) {
	var block, item uint32
	last := 0
	for ; len(b) >= 6; b = b[6:] {
		candidates := [...][2]uint32{{block, item + 1}, {block, item}, {block + 1, 1}}
		is := [2]uint32{at16(b, 0)<<16 | at16(b, 2), at16(b, 4)}
		which := 0
		for which < len(candidates) && candidates[which] != is {
			which++
		}
		which = m.Symbol(ctx+ctxMoreLink+uint32(last)<<8, 2, which)
		last = which
		if which < len(candidates) {
			is = candidates[which]
			tid := tidOf(is[0], uint16(is[1]))
			if m.decoding {
				copy(b, tid[:])
			}
		} else {
			m.tid(ctx, b, block, item)
		}
		block, item = at16(b, 0)<<16|at16(b, 2), at16(b, 4)
	}
	m.bytes(ctx+ctxMoreBody, b, nil)
}

// runs codes bytes that are the same for long.
func (m *model) runs(context uint32, b []byte) {
	was := byte(0)
	for len(b) > 0 {
		was = m.Byte(rangecoder.Hash(context, uint32(was)), b[0])
		n := 1
		for !m.decoding && n < len(b) && b[n] == was {
			n++
		}
		if m.Flag(context, 0, n == len(b)) {
			n = len(b)
		} else if n = int(m.Uint(context+1<<8, uint64(n-1))) + 1; n < 1 || n > len(b) {
			m.corrupt("run of bytes")
			return
		}
		for i := 0; m.decoding && i < n; i++ {
			b[i] = was
		}
		b = b[n:]
	}
}

// Places in a page of the free space map. Source: PostgreSQL src/include/storage/fsm_internals.h, FSMPageData (13-18).
const (
	freeSpaceTree  = 4                // fp_nodes, behind fp_next_slot
	freeSpaceInner = blockBytes/2 - 1 // NonLeafNodesPerPage
)

// freeSpace codes a page of the free space map: a tree whose nodes are the larger of their children, as a rule.
func (m *model) freeSpace(b []byte) {
	m.put32(b, m.u32(ctxMoreBody+2, []uint32{0}, at32(b, 0)))
	tree := b[freeSpaceTree:]
	m.runs(ctxMoreBody+3, tree[freeSpaceInner:])
	at := freeSpaceInner - 1
	for at >= 0 && m.err == nil {
		differs := at
		for !m.decoding && differs >= 0 && tree[differs] == larger(tree, differs) {
			differs--
		}
		run := at - differs
		if m.Flag(ctxMoreBody+4, 0, differs < 0) {
			run = at + 1
		} else if run = int(m.Uint(ctxMoreBody+5, uint64(run))); run < 0 || run > at {
			m.corrupt("free space")
			return
		}
		for ; run > 0; run-- {
			m.put8(tree[at:], larger(tree, at))
			at--
		}
		if at >= 0 {
			m.put8(tree[at:], m.Byte(ctxMoreBody+6, tree[at]))
			at--
		}
	}
}

// larger returns the larger of a node's children; there is none behind the end.
func larger(tree []byte, at int) byte { return max(at8(tree, 2*at+1), at8(tree, 2*at+2)) }
