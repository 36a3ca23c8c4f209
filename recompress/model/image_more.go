package model

import "walproxy/recompress/rangecoder"

// pageForm is a kind of page beside heap and btree.
type pageForm int

const (
	formHash pageForm = iota
	formGist
	formSPGist
	formGinItems // entries or the pending list
	formGinLeaf  // of a posting tree: posting lists
	formGinTree  // of a posting tree, not a leaf: keys with blocks
	formBrin     // ranges
	formRevmap   // of BRIN: where the ranges are
	formSequence
	formVisibility
	formFreeSpace
	formCount
	formNone = formCount
)

// Marks at the end of the special area.
//
// Source: PostgreSQL src/include/access/hash.h, gist.h, spgist_private.h, brin_page.h, ginblock.h; src/backend/commands/sequence.c (13-18).
const (
	hashPageID    = 0xff80 // HASHO_PAGE_ID
	gistPageID    = 0xff81 // GIST_PAGE_ID
	spgistPageID  = 0xff82 // SPGIST_PAGE_ID
	firstPageMark = hashPageID
	brinRevmap    = 0xf092 // BRIN_PAGETYPE_REVMAP
	brinRegular   = 0xf093 // BRIN_PAGETYPE_REGULAR
	sequenceMagic = 0x1717 // SEQ_MAGIC, at the begin
	smallSpecial  = 8      // bytes, of all but btree, hash and GiST

	ginData     = 0x01 // GIN_DATA
	ginLeaf     = 0x02 // GIN_LEAF
	ginMeta     = 0x08 // GIN_META
	ginPending  = 0x10 // GIN_LIST
	ginCompress = 0x80 // GIN_COMPRESSED
	ginFlags    = 0xff // all there are

	hashBucketPages = 0x03 // LH_OVERFLOW_PAGE, LH_BUCKET_PAGE

	ginContentAt = pageHeaderBytes + 8 // behind the right bound of a page of a posting tree
	ginTreeItem  = 10                  // PostingItem
	moreRefLog   = 6
)

// morePages is what is known of pages beside heap and btree: what the last one looked like, per relation and form. Relations may share it.
type morePages struct {
	form pageForm // encoder: of the page in m.image.page
	refs [1 << moreRefLog]imageRef
	again
}

func (p *morePages) reset() { clear(p.refs[:]) }

func (p *morePages) ref(ctx uint32) *imageRef { return &p.refs[ctx*0x9E3779B1>>(32-moreRefLog)] }

// special returns the bytes of the special area.
func (f pageForm) special() int {
	switch f {
	case formHash, formGist:
		return btreeSpecial
	case formVisibility, formFreeSpace:
		return 0
	}
	return smallSpecial
}

// hasItems reports whether pages of the form have line pointers.
func (f pageForm) hasItems() bool {
	switch f {
	case formGinLeaf, formGinTree, formRevmap, formVisibility, formFreeSpace:
		return false
	}
	return true
}

// comesAgain reports whether pages of the form are remembered, to tell what a later image has of them. Of GIN's the posting lists are.
func (f pageForm) comesAgain() bool {
	switch f {
	case formHash, formGist, formSPGist, formBrin:
		return true
	}
	return false
}

// formOf returns the form of the page p of a fork, formNone if there is no model for it.
func formOf(p []byte, fork byte) pageForm {
	special := int(at16(p, pdSpecial))
	mark := at16(p, blockBytes-2)
	switch {
	case fork != 0:
		switch {
		case special != blockBytes:
		case fork == 1:
			return formFreeSpace
		case fork == 2:
			return formVisibility
		}
	case special == blockBytes-btreeSpecial && mark == hashPageID:
		if p[blockBytes-4]&hashBucketPages != 0 {
			return formHash
		}
	case special == blockBytes-btreeSpecial && mark == gistPageID:
		return formGist
	case special != blockBytes-smallSpecial:
	case mark == spgistPageID:
		return formSPGist
	case mark == brinRegular:
		return formBrin
	case mark == brinRevmap:
		return formRevmap
	case le.Uint64(p[special:]) == sequenceMagic:
		return formSequence
	case mark&^ginFlags != 0 || mark&ginMeta != 0:
	case mark&ginData == 0:
		return formGinItems
	case mark&(ginLeaf|ginCompress) == ginLeaf|ginCompress:
		return formGinLeaf
	case mark&ginLeaf == 0:
		return formGinTree
	}
	return formNone
}

// moreKind is imageKind for a page that is neither heap nor btree.
func (m *model) moreKind(k *block) imageKind {
	if m.more.form = m.moreForm(k); m.more.form == formNone {
		return imageRaw
	}
	return imageMore
}

// moreForm is formOf for the page in m.image.page, if its parts account for all of it.
func (m *model) moreForm(k *block) pageForm {
	p := m.image.page[:]
	f := formOf(p, k.fork&0x0f)
	if f == formNone {
		return f
	}
	special := blockBytes - f.special()
	lower, upper := int(at16(p, pdLower)), int(at16(p, pdUpper))
	if lower < pageHeaderBytes || lower > upper || upper > special {
		return formNone
	}
	from := lower
	switch {
	case f.hasItems():
		if lower%4 != 0 {
			return formNone
		}
	case f == formGinLeaf || f == formGinTree:
		if lower < ginContentAt {
			return formNone
		}
	default:
		from = special
	}
	if !m.covered(f.hasItems(), lower, from, upper, special) {
		return formNone
	}
	return f
}

// covered counts the stale bytes from from on and reports whether all items are within bounds and there are not too many of them.
func (m *model) covered(items bool, lower, from, upper, special int) bool {
	p, c := m.image.page[:], m.image.cover[:]
	clear(c)
	for at := pageHeaderBytes; items && at < lower; at += 4 {
		offset, state, n := linePointer(le.Uint32(p[at:]))
		if !hasStorage(state, n) {
			continue
		}
		if offset < upper || offset+n > special {
			return false
		}
		copy(c[offset:], p[offset:offset+n])
	}
	m.image.stale = 0
	if string(p[from:special]) != string(c[from:special]) {
		for at := from; at < special; at++ {
			if p[at] != c[at] {
				m.image.stale++
			}
		}
	}
	return m.image.stale <= maxPatches
}

const (
	ctxMore = 0x0e03_0000 + iota
	ctxMoreForm
	ctxMoreBounds
	ctxMoreTuple
	ctxMoreBody
	ctxMoreKey
	ctxMoreLink
)

// moreImage codes the page in m.image.page, which is of form m.more.form.
func (m *model) moreImage(k *block) {
	f := m.more.form
	f = pageForm(m.Nibble(rangecoder.Hash(k.rel.ctx, ctxMoreForm), int(f)))
	if f >= formCount {
		m.corrupt("form of a page")
		return
	}
	ctx := rangecoder.Hash(k.rel.ctx, ctxMore+uint32(f)<<8)
	ref := m.more.ref(ctx)
	p := m.image.page[:]
	special := blockBytes - f.special()
	lower, upper := at16(ref.header[:], pdLower), at16(ref.header[:], pdUpper)
	if k.holeBytes > 0 {
		lower, upper = uint32(k.holeOffset), uint32(k.holeOffset+k.holeBytes)
	}
	lower = m.u16(ctx+ctxMoreBounds, []uint32{lower, pageHeaderBytes}, at16(p, pdLower))
	upper = m.u16(ctx+ctxMoreBounds+2, []uint32{upper, uint32(special), lower}, at16(p, pdUpper))
	m.put16(p[pdLower:], lower)
	m.put16(p[pdUpper:], upper)
	m.put16(p[pdSpecial:], uint32(special))
	if lower < pageHeaderBytes || lower > upper || int(upper) > special {
		m.corrupt("bounds of a page")
		return
	}
	m.imageHeader(ctx, p, ref)
	m.moreSpecial(ctx, p[special:], k, ref)
	m.mark(costImageHeader)
	from := int(lower)
	switch {
	case f.hasItems():
		m.moreItems(ctx, f, p, k, ref, int(lower), int(upper))
	case f == formGinLeaf || f == formGinTree:
		m.ginContent(ctx, f, p, k, int(lower))
	default:
		m.moreBody(ctx, f, p[pageHeaderBytes:special], ref)
		from = special
	}
	if m.err != nil {
		return
	}
	m.mark(costImageValues)
	m.patches(p, from, special)
	m.mark(costImageHeader)
	copy(ref.header[:], p)
}

// moreSpecial codes the special area.
func (m *model) moreSpecial(ctx uint32, special []byte, k *block, ref *imageRef) {
	c := ctx + ctxImageSpecial
	for i := 0; i < len(special); i += 4 {
		was := at32(ref.special[:], i)
		candidates := [...]uint32{was, was + 1, k.number + 1, k.number - 1, 0, 0xffffffff}
		m.put32(special[i:], m.u32(c+uint32(i)<<8, candidates[:], at32(special, i)))
	}
	copy(ref.special[:], special)
}

// moreItems codes line pointers and tuples.
func (m *model) moreItems(ctx uint32, f pageForm, p []byte, k *block, ref *imageRef, lower, upper int) {
	special := blockBytes - f.special()
	n := (lower - pageHeaderBytes) / 4
	if lower%4 != 0 {
		m.corrupt("bounds of a page")
		return
	}
	a := &m.more.again
	if a.items = 0; f.comesAgain() {
		a.begin(&m.store, k.rel, k.number)
	}
	if a.items > 0 && !m.itemsAgain(ctx, p, ref, n, upper, special) || a.items == 0 && !m.imageItems(ctx, p, ref, n, upper, special) {
		return
	}
	m.mark(costImageItems)
	if f == formSequence {
		m.heapTuples(ctx, p, k, n)
		return
	}
	t := moreTuples{ctx: ctx, form: f, ref: ref, class: m.rows.class(rangecoder.Hash(ctx, ctxMoreKey))}
	switch f {
	case formGinItems:
		t.leaf = at16(p, blockBytes-2)&ginPending != 0
	case formGist:
		t.class = m.rows.class(rangecoder.Hash(k.rel.ctx, ctxKey))
	case formSPGist:
		t.leaf = p[special]&spgistLeaf != 0
		if !t.leaf {
			t.class = m.rows.class(rangecoder.Hash(ctx, ctxMoreKey) + 1)
		}
	case formHash:
		m.hashBits(&t, p, n)
	}
	for i := range n {
		offset, state, length := linePointer(le.Uint32(p[pageHeaderBytes+4*i:]))
		if hasStorage(state, length) && m.err == nil {
			b := p[offset : offset+length]
			if m.tupleAgain(b, i) {
				if f == formHash && length == hashTupleBytes {
					t.last = at32(b, 8) >> t.shared
				}
				continue
			}
			m.image.xact.renew()
			m.moreTuple(&t, b, k, uint32(i+1))
		}
	}
	if f.comesAgain() {
		copy(m.store.put(m.store.key(k.rel, k.number, 0), blockBytes), p)
	}
}

// moreTuples is a page whose tuples are being coded.
type moreTuples struct {
	ctx    uint32
	form   pageForm
	ref    *imageRef
	class  *rowClass
	leaf   bool   // or a list of pending entries, whose tuples have TIDs too
	shared int    // hash: low bits of a hash value that all tuples have in common
	low    uint32 // hash: these bits
	last   uint32 // hash: other bits of the last tuple
	gap    int    // hash: bits of the distance to the next tuple
}

// moreTuple codes the tuple at an item.
func (m *model) moreTuple(t *moreTuples, b []byte, k *block, item uint32) {
	switch {
	case t.form == formBrin || t.form == formSPGist && !t.leaf:
		m.row(t.class, b, 0, version{}, &m.image.xact)
	case t.form == formSPGist:
		m.spgistTuple(t, b, item)
	case len(b) < indexTupleHead:
		m.bytes(t.ctx+ctxMoreTuple, b, nil)
	case t.form == formHash:
		m.hashTuple(t, b)
	case t.form == formGinItems && !t.leaf:
		m.ginEntry(t.ctx, b, k.rel)
	default:
		m.moreTID(t.ctx, b, t.ref)
		m.indexInfo(t.ctx, b, t.ref, uint32(len(b)))
		m.row(t.class, b[indexTupleHead:], 0, version{}, &m.image.xact)
	}
}

// moreTID codes the TID at the start of b.
func (m *model) moreTID(ctx uint32, b []byte, ref *imageRef) {
	if !m.image.scattered(ref) || !m.scatteredTID(ctx, b, ref, true) {
		m.imageTID(ctx, b, ref)
	}
}
