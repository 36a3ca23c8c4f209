package model

// Pages whose image comes again in a window: after a checkpoint, and when they were built before they were first changed. What they
// hold is mostly what they held.

const maxPageItems = (blockBytes - pageHeaderBytes) / 4

// again is a page of an index as its last image had it, and which of its items the items of the new image are.
type again struct {
	page  [blockBytes]byte
	items int // 0 if there was no image in this window, or it is forgotten
	next  int // item of the old page, from 0 on, that is likely next
	was   int // last relation of an item to the old page
	shift int // by how much the last item that was found again has moved
	place [maxPageItems]int16
}

// What an item is to the old page.
const (
	againNext    = iota // the item that is likely next
	againLater          // one behind it
	againNew            // none
	againInstead        // none, and the one that is likely next is gone
)

const notAgain = -1

const (
	ctxAgain = 0x0e04_0000 + iota
	ctxAgainSkip
	ctxAgainOffset
	ctxAgainTuple
)

// begin looks for the last image of a block.
func (a *again) begin(s *store, rel *relState, number uint32) {
	a.items, a.next, a.was, a.shift = 0, 0, 0, 0
	old := s.get(s.key(rel, number, 0))
	if len(old) != blockBytes {
		return
	}
	copy(a.page[:], old)
	if lower := int(at16(old, pdLower)); lower > pageHeaderBytes && lower <= blockBytes {
		a.items = (lower - pageHeaderBytes) / 4
	}
}

// tuple returns the tuple of an item of the old page and its offset; nil if it has none.
func (a *again) tuple(item int) (b []byte, offset int) {
	if item >= a.items {
		return nil, 0
	}
	return pageTuple(a.page[:], item)
}

// pageTuple returns the tuple of an item of p, from 0 on, and its offset; nil if it has none.
func pageTuple(p []byte, item int) (b []byte, offset int) {
	offset, state, n := linePointer(le.Uint32(p[pageHeaderBytes+4*item:]))
	if state != itemNormal || n == 0 || offset+n > len(p) {
		return nil, 0
	}
	return p[offset : offset+n], offset
}

const againAhead = 16 // items of the old page that are compared with one

// find returns what item i of p, which has n, is to the old page, and how far ahead the old item lies.
func (a *again) find(p []byte, i, n int) (relation, ahead int) {
	t, _ := pageTuple(p, i)
	if t == nil {
		return againNew, 0
	}
	for ; ahead < againAhead && a.next+ahead < a.items; ahead++ {
		if old, _ := a.tuple(a.next + ahead); string(old) == string(t) {
			return min(ahead, againLater), ahead
		}
	}
	if i+1 < n {
		following, _ := pageTuple(p, i+1)
		if old, _ := a.tuple(a.next + 1); old != nil && string(old) == string(following) {
			return againInstead, 0
		}
	}
	return againNew, 0
}

// itemsAgain is imageItems for a page whose last image is known.
func (m *model) itemsAgain(ctx uint32, p []byte, ref *imageRef, n, upper, special int) bool {
	a := &m.more.again
	edge, size, wasState := special, ref.itemSize, uint32(itemNormal)
	for i := range n {
		b := p[pageHeaderBytes+4*i:]
		offset, state, length := linePointer(le.Uint32(b))
		relation, ahead := againNew, 0
		if !m.decoding {
			relation, ahead = a.find(p, i, n)
		}
		relation = m.Symbol(ctxAgain+uint32(a.was)<<8, 2, relation)
		a.was, a.place[i] = relation, notAgain
		if relation <= againLater {
			if relation == againLater {
				ahead = int(m.Uint(ctxAgainSkip, uint64(ahead)))
			}
			if ahead < 0 || ahead > a.items {
				m.corrupt("item of an earlier image")
				return false
			}
			offset, state, length = m.itemAgain(i, ahead, offset)
		} else {
			if relation == againInstead {
				a.next++
			}
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
	return m.err == nil
}

// itemAgain codes where item i lies, which is the one so far ahead of the old page.
func (m *model) itemAgain(i, ahead, offset int) (int, uint32, int) {
	a := &m.more.again
	a.next += ahead
	t, was := a.tuple(a.next)
	if t == nil {
		m.corrupt("item of an earlier image")
		return 0, itemUnused, 0
	}
	a.place[i] = int16(a.next)
	a.next++
	expected := was + a.shift
	if m.Flag(ctxAgainOffset, 0, offset == expected) {
		offset = expected
	} else {
		offset = int(m.literal16(ctxAgainOffset+1, uint32(offset))) & 0x7fff
	}
	a.shift = offset - was
	return offset, itemNormal, len(t)
}

// tupleAgain has the tuple b of item i from the earlier image, or reports false: it was not there.
func (m *model) tupleAgain(b []byte, i int) bool {
	a := &m.more.again
	if a.items == 0 || a.place[i] == notAgain {
		return false
	}
	if m.decoding {
		t, _ := a.tuple(int(a.place[i]))
		copy(b, t)
	}
	return true
}

// rowAgain codes whether the data of the tuple at an item of a heap page are those that the window had there before.
func (m *model) rowAgain(b []byte, k *block, item uint32) bool {
	old := m.store.tuple(k.rel, k.number, item)
	if len(old.data) != len(b) || old.low > 0 || old.high < len(b) {
		return false
	}
	if !m.Flag(ctxAgainTuple, 0, !m.decoding && string(old.data) == string(b)) {
		return false
	}
	if m.decoding {
		copy(b, old.data)
	}
	return true
}
