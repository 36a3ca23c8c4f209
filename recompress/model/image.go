package model

import "walproxy/recompress/rangecoder"

// imageKind says how a page image is coded.
type imageKind int

const (
	imageRaw   imageKind = iota // bytes
	imageHeap                   // no special area: heap tuples
	imageIndex                  // 16 bytes of special area: index tuples
	imageMore                   // a form of its own
)

// imageState is the page being taken apart or put together.
type imageState struct {
	page  [blockBytes]byte
	cover [blockBytes]byte // encoder: the page as the decoder sees it before the patches
	stale int              // encoder: bytes in which the two differ
	xact  xact             // images belong to no transaction
}

func (s *imageState) reset() { *s = imageState{} }

// imageRef is what the last images of a relation looked like.
type imageRef struct {
	header    [pageHeaderBytes]byte
	itemSize  int       // bytes of the last item
	tuple     tupleHead // header of the last heap tuple
	other     tupleHead // one before it that differed
	special   [btreeSpecial]byte
	tid       [6]byte
	info      uint32
	hashBits  uint8     // that the tuples of a bucket have in common
	strays    uint16    // of the last TIDs, those that were not near the one before
	lastBlock uint32    // the largest block of a TID
	lastItem  uint32    // and item
	tidCost   [2]uint16 // bits, in 1/8, of a TID's block near the last one, and in full
}

const (
	ctxImageKind = 0x0b01_0000 + iota
	ctxImageHeader
	ctxImageItems
	ctxImageUpper
	ctxImagePatch
	ctxImageItem
	ctxImageItemLen
	ctxImageItemOffset
	ctxImageTuple
	ctxImageField
	ctxImageSpecial
	ctxImageRaw
)

// maxPatches bounds the stale bytes of a page that is taken apart. A page with more is carried as bytes.
const maxPatches = 1024

// pageImage codes a block's image.
func (m *model) pageImage(k *block) {
	if k.imageInfo&m.compressedMask() != 0 {
		m.compressedImage(k)
	} else {
		m.plainImage(k)
	}
}

// plainImage codes an image that is not compressed: taken apart if it is a heap or index page whose parts account for all of it, else as bytes.
func (m *model) plainImage(k *block) {
	kind := imageRaw
	if !m.decoding {
		kind = m.imageKind(k)
	}
	kind = imageKind(m.Symbol(rangecoder.Hash(k.rel.ctx, ctxImageKind), 2, int(kind)))
	if kind == imageRaw {
		m.bytes(rangecoder.Hash(k.rel.ctx, ctxImageRaw), k.image, nil)
		m.mark(costImageRaw)
		return
	}
	if m.decoding {
		clear(m.image.page[:])
		if k.imageInfo&m.compressedMask() != 0 || k.holeBytes < 0 || k.holeOffset+k.holeBytes > blockBytes || len(k.image)+k.holeBytes != blockBytes {
			m.corrupt("image of a page")
			return
		}
	}
	if kind == imageMore {
		m.moreImage(k)
	} else {
		m.takeApart(k, kind)
	}
	if m.decoding {
		n := copy(k.image, m.image.page[:k.holeOffset])
		copy(k.image[n:], m.image.page[k.holeOffset+k.holeBytes:])
	}
}

// imageKind chooses, and fills m.image.page.
func (m *model) imageKind(k *block) imageKind {
	if k.imageInfo&m.compressedMask() != 0 || len(k.image)+k.holeBytes != blockBytes || k.holeOffset > len(k.image) {
		return imageRaw
	}
	p := m.image.page[:]
	clear(p[copy(p, k.image[:k.holeOffset]):])
	copy(p[k.holeOffset+k.holeBytes:], k.image[k.holeOffset:])
	lower, upper, special := int(at16(p, pdLower)), int(at16(p, pdUpper)), int(at16(p, pdSpecial))
	kind := imageHeap
	switch {
	case special == blockBytes && k.fork&0x0f == 0:
	case special == blockBytes-btreeSpecial && at16(p, blockBytes-2) < firstPageMark:
		kind = imageIndex
	default:
		return m.moreKind(k)
	}
	if lower < pageHeaderBytes || lower%4 != 0 || lower > upper || upper > special || k.fork&0x0f != 0 {
		return imageRaw
	}
	if k.holeBytes > 0 && (k.holeOffset != lower || k.holeBytes != upper-lower) || k.holeBytes == 0 && lower != upper {
		return imageRaw
	}
	if !m.covered(true, lower, upper, upper, special) {
		return imageRaw
	}
	return kind
}

// hasStorage reports whether an item has a tuple: dead items of an index keep theirs.
func hasStorage(state uint32, n int) bool {
	return n > 0 && (state == itemNormal || state == itemDead)
}

// takeApart codes the page in m.image.page.
func (m *model) takeApart(k *block, kind imageKind) {
	ref := &k.rel.page
	ctx := k.rel.ctx + uint32(kind)
	special := blockBytes
	if kind == imageIndex {
		special -= btreeSpecial
	}
	lower, upper := k.holeOffset, k.holeOffset+k.holeBytes
	if k.holeBytes == 0 {
		n := int(m.Uint(ctx+ctxImageItems, uint64(at16(m.image.page[:], pdLower)-pageHeaderBytes)/4))
		lower = pageHeaderBytes + 4*n
		upper = lower
	}
	if lower < pageHeaderBytes || lower%4 != 0 || upper > special || lower > upper {
		m.corrupt("bounds of a page")
		return
	}
	p := m.image.page[:]
	if m.decoding {
		le.PutUint16(p[pdLower:], uint16(lower))
		le.PutUint16(p[pdUpper:], uint16(upper))
		le.PutUint16(p[pdSpecial:], uint16(special))
	}
	m.imageHeader(ctx, p, ref)
	m.mark(costImageHeader)
	n := (lower - pageHeaderBytes) / 4
	if !m.imageItems(ctx, p, ref, n, upper, special) {
		return
	}
	m.mark(costImageItems)
	if kind == imageHeap {
		m.heapTuples(ctx, p, k, n)
	} else {
		m.indexTuples(ctx, p, k, n)
	}
	m.patches(p, upper, special)
	m.mark(costImageHeader)
	copy(ref.header[:], p)
	if kind == imageHeap {
		copy(m.store.put(m.store.key(k.rel, k.number, 0), blockBytes), p)
		m.store.fromImage(m.store.page(k.rel, k.number), p, n)
	}
}

// imageHeader codes the page header's fields, the bounds excepted.
func (m *model) imageHeader(ctx uint32, p []byte, ref *imageRef) {
	h := ctx + ctxImageHeader
	last := ref.header[:]
	lsn := uint64(le.Uint32(p[pdLSN:]))<<32 | uint64(le.Uint32(p[pdLSN+4:]))
	before := uint64(le.Uint32(last))<<32 | uint64(le.Uint32(last[4:]))
	lsn = before + uint64(m.Int(h, int64(lsn-before)))
	m.put32(p[pdLSN:], uint32(lsn>>32))
	m.put32(p[pdLSN+4:], uint32(lsn))
	m.put16(p[pdChecksum:], m.u16(h+1, []uint32{0}, at16(p, pdChecksum)))
	m.put16(p[pdFlags:], m.u16(h+3, []uint32{at16(last, pdFlags)}, at16(p, pdFlags)))
	m.put16(p[pdVersion:], m.u16(h+5, []uint32{at16(last, pdVersion)}, at16(p, pdVersion)))
	m.put32(p[pdPruneXid:], m.u32(h+7, []uint32{at32(last, pdPruneXid), 0, m.xacts.max}, at32(p, pdPruneXid)))
}

// imageItems codes n line pointers: as a rule each tuple lies in front of the one before it and is as long.
func (m *model) imageItems(ctx uint32, p []byte, ref *imageRef, n, upper, special int) bool {
	edge, size := special, ref.itemSize // where the last tuple began, its length
	wasState := uint32(itemNormal)
	miss := 0
	for i := range n {
		if i <= leadingItems && size > 0 && m.Flag(ctx+ctxImageItem, 8+i, !m.decoding && regularItems(p, i, n, edge, size)) {
			if size > special || (n-i)*((size+7)&^7) > edge-upper {
				m.corrupt("item outside its page")
				return false
			}
			layItems(p, i, n, edge, size)
			break
		}
		b := p[pageHeaderBytes+4*i:]
		offset, state, length := linePointer(le.Uint32(b))
		expected := edge - (size+7)&^7
		regular := state == itemNormal && length == size && offset == expected
		if m.Flag(ctx+ctxImageItem, min(miss, 7), regular) {
			offset, state, length = expected, itemNormal, size
			miss >>= 1
		} else {
			miss = min(miss<<1+1, 7)
			offset, state, length = m.oddItem(ctx, offset, state, length, edge, size, wasState)
		}
		if !m.putItem(b, offset, state, length, upper, special) {
			return false
		}
		if hasStorage(state, length) {
			edge, size = offset, length
		}
		wasState = state
	}
	ref.itemSize = size
	return true
}

// putItem puts a line pointer into b. It reports false if what it points to is not between upper and special.
func (m *model) putItem(b []byte, offset int, state uint32, length, upper, special int) bool {
	if hasStorage(state, length) && (offset < upper || offset+length > special) {
		m.corrupt("item outside its page")
		return false
	}
	m.put32(b, uint32(offset)|state<<15|uint32(length)<<17)
	return true
}

// leadingItems is after how many items the others may be told at once: a btree page has its high key first, which is elsewhere.
const leadingItems = 2

// regularItems reports whether the items from i to n are each as long as size and lie one in front of the other below edge.
func regularItems(p []byte, i, n, edge, size int) bool {
	for ; i < n; i++ {
		edge -= (size + 7) &^ 7
		if le.Uint32(p[pageHeaderBytes+4*i:]) != uint32(edge)|itemNormal<<15|uint32(size)<<17 {
			return false
		}
	}
	return true
}

// layItems writes the line pointers of such items.
func layItems(p []byte, i, n, edge, size int) {
	for ; i < n; i++ {
		edge -= (size + 7) &^ 7
		le.PutUint32(p[pageHeaderBytes+4*i:], uint32(edge)|itemNormal<<15|uint32(size)<<17)
	}
}

// oddItem codes a line pointer that does not follow the rule.
func (m *model) oddItem(ctx uint32, offset int, state uint32, length, edge, size int, was uint32) (int, uint32, int) {
	state = uint32(m.Symbol(ctx+ctxImageItem+(was+1)<<8, 2, int(state)))
	c := ctx + ctxImageItem + (state+9)<<8
	if state == itemNormal {
		length = int(m.u16(c, []uint32{uint32(size)}, uint32(length)))
	} else {
		length = int(m.u16(c, []uint32{0}, uint32(length)))
	}
	if !hasStorage(state, length) {
		offset = int(m.u16(c+2, []uint32{0}, uint32(offset)))
		return offset & 0x7fff, state, length & 0x7fff
	}
	expected := uint32(edge - (length+7)&^7)
	if i := m.pick(c+4, []uint32{expected}, uint32(offset)); i != noPick {
		offset = int(int32(expected))
	} else {
		aligned := m.Flag(c+5, 0, offset%8 == 0)
		if aligned {
			offset = int(m.Uint(c+6, uint64(offset/8))) * 8
		} else {
			offset = int(m.Uint(c+7, uint64(offset)))
		}
	}
	if offset < 0 || offset > 0x7fff || length > 0x7fff {
		m.corrupt("line pointer")
		return 0, itemUnused, 0
	}
	return offset, state, length
}

// patches codes the bytes that no item covers and that are not zero.
func (m *model) patches(p []byte, upper, special int) {
	c := m.image.cover[:]
	at, count := upper, 0
	for {
		next := at
		if !m.decoding {
			for count < m.image.stale && p[next] == c[next] {
				next++
			}
		}
		more := m.Flag(ctxImagePatch, min(count, 15), count < m.image.stale)
		if !more {
			return
		}
		skip := m.Uint(ctxImagePatch+1, uint64(next-at))
		next = at + int(min(skip, blockBytes))
		if next >= special || count >= maxPatches {
			m.corrupt("patch outside its page")
			return
		}
		p[next] = m.Byte(ctxImagePatch+2, p[next])
		at = next + 1
		count++
	}
}

// fromImage takes over which items a page uses.
func (s *store) fromImage(h *heapPage, p []byte, n int) {
	*h = heapPage{tag: h.tag, slot: h.slot, largest: uint16(n), newest: uint16(n)}
	for i := range n {
		if _, state, _ := linePointer(le.Uint32(p[pageHeaderBytes+4*i:])); state == itemUnused {
			s.release(h, uint32(i+1))
		}
	}
}
