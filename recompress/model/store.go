package model

import "math/bits"

const (
	ringBytes = 4 << 20 // tuples and pages remembered; the oldest make room
	placeLog  = 14
	pageLog   = 12
	liveItems = 24
	freeItems = 320 // line pointers per page whose freeing is followed
)

// store remembers tuples and page images in a ring, and what is known of heap pages and their items. An entry need not be
// right, only the same on both sides.
type store struct {
	ring   []byte
	head   uint64 // bytes ever put into the ring
	places []place
	pages  []heapPage
	free   [][freeItems / 64]uint64 // of each of pages, as far as its nFree says that there are any: items that pruning freed
}

// place is what is known of the key that took it last, of those that hash to it: where the tuple or page is in the ring, and the state
// of the item. It is small, four to a cache line, because whoever looks for one waits for memory.
type place struct {
	at    uint32 // in the ring, modulo 1<<32
	tag   uint16 // of the key
	bytes uint16 // 0 if there is no tuple
	itemState
}

// itemState is what is known of one line pointer of a heap page.
type itemState struct {
	root  uint16 // number of the row, 0 if it was never updated
	next  uint16 // item with the next version of the row
	redir uint16 // item it redirects to
	after uint16 // the redirect that a prune listed after it
}

// heapPage is what is known of one heap page. It is one cache line.
type heapPage struct {
	tag     uint32 // of its key
	slot    uint16 // its own place
	nFree   uint16
	largest uint16 // item number in use
	newest  uint16
	first   uint16 // the redirect that a prune listed first
	nLive   uint16
	live    [liveItems]uint16 // items that were made new, latest first
}

func (s *store) init() {
	s.ring = make([]byte, ringBytes)
	s.places = make([]place, 1<<placeLog)
	s.pages = make([]heapPage, 1<<pageLog)
	s.free = make([][freeItems / 64]uint64, 1<<pageLog)
}

func (s *store) reset() {
	// All of it: what an earlier stream left behind must not even decide which of two keys has a place, because a decoder that
	// begins with this stream has not seen the earlier one.
	clear(s.places)
	clear(s.pages)
	s.head = 0
}

// key of an item of a relation; item 0 is the page itself. One bit that is always set, 12 relation, 32 block, 12 item.
func (s *store) key(rel *relState, number uint32, item uint32) uint64 {
	return 1<<56 | uint64(rel.index&0xfff)<<44 | uint64(number)<<12 | uint64(item&0xfff)
}

// tagged returns a place of 1<<log for a key, with a tag that tells the keys of a place apart, as a rule: keys that are taken for each
// other cost ratio, nothing else. It is never zero.
func tagged(key uint64, log uint) (at uint64, tag uint32) {
	h := key * 0x9E3779B97F4A7C15
	return h >> (64 - log), uint32(h>>8) | 1
}

// place returns that of a key, and whether it is the key's. The tag is the one to take it with.
func (s *store) place(key uint64) (p *place, tag uint16, own bool) {
	at, long := tagged(key, placeLog)
	p = &s.places[at]
	tag = uint16(long)
	return p, tag, p.tag == tag
}

// put remembers n bytes under a key and returns the place to write them to.
func (s *store) put(key uint64, n int) []byte {
	at := int(s.head % ringBytes)
	if at+n > ringBytes {
		s.head += uint64(ringBytes - at)
		at = 0
	}
	p, tag, own := s.place(key)
	if !own {
		*p = place{tag: tag}
	}
	p.at, p.bytes = uint32(s.head), uint16(min(n, 1<<16-1))
	s.head += uint64(n)
	return s.ring[at : at+n : at+n]
}

func (s *store) get(key uint64) []byte {
	p, _, own := s.place(key)
	age := uint32(s.head) - p.at
	if !own || p.bytes == 0 || age > ringBytes || age < uint32(p.bytes) {
		return nil
	}
	at := p.at % ringBytes
	return s.ring[at : at+uint32(p.bytes)]
}

// version is what is known of a tuple: its data, of which the bytes from low to high are known.
type version struct {
	data      []byte
	low, high int
}

const versionHead = 4 // low and high, in front of a tuple in the ring

// tuple returns the tuple at an item, empty if there is none. It is valid until the next put.
func (s *store) tuple(rel *relState, number, item uint32) version {
	if t := s.get(s.key(rel, number, item)); len(t) >= versionHead && item != 0 {
		data := t[versionHead:]
		high := min(int(le.Uint16(t[2:])), len(data))
		return version{data, min(int(le.Uint16(t)), high), high}
	}
	page := s.get(s.key(rel, number, 0))
	if page == nil || item == 0 {
		return version{}
	}
	at := pageHeaderBytes + 4*(int(item)-1)
	if at+4 > len(page) {
		return version{}
	}
	offset, state, n := linePointer(le.Uint32(page[at:]))
	if state != itemNormal || n < tupleHeadSize || offset+n > len(page) {
		return version{}
	}
	t := page[offset : offset+n]
	data := t[min(max(int(t[tupleHoff]), tupleHeadSize), n):]
	return version{data, 0, len(data)}
}

// putTuple remembers a tuple of n bytes of data and returns the place for them.
func (s *store) putTuple(rel *relState, number, item uint32, n, low, high int) []byte {
	t := s.put(s.key(rel, number, item), versionHead+n)
	le.PutUint16(t, uint16(low))
	le.PutUint16(t[2:], uint16(high))
	return t[versionHead:]
}

// item returns the state of an item, fresh if there is none.
func (s *store) item(rel *relState, number, item uint32) *itemState {
	p, tag, own := s.place(s.key(rel, number, item))
	if !own {
		*p = place{tag: tag}
	}
	return &p.itemState
}

// known returns the state of an item, or nil.
func (s *store) known(rel *relState, number, item uint32) *itemState {
	if p, _, own := s.place(s.key(rel, number, item)); own {
		return &p.itemState
	}
	return nil
}

// page returns the state of a heap page, fresh if there is none.
func (s *store) page(rel *relState, number uint32) *heapPage {
	at, tag := tagged(s.key(rel, number, 0), pageLog)
	p := &s.pages[at]
	if p.tag != tag {
		*p = heapPage{tag: tag, slot: uint16(at)}
	}
	return p
}

// knows reports whether a heap page was met in this window.
func (s *store) knows(rel *relState, number uint32) bool {
	at, tag := tagged(s.key(rel, number, 0), pageLog)
	return s.pages[at].tag == tag
}

// nextItem returns the item that a new tuple of a page should take: the lowest that pruning freed, else one more.
func (s *store) nextItem(p *heapPage) uint32 {
	if p.nFree > 0 {
		for i, w := range s.free[p.slot] {
			if w != 0 {
				return uint32(i*64 + bits.TrailingZeros64(w))
			}
		}
	}
	return uint32(p.largest) + 1
}

// use notes that a new tuple took an item.
func (s *store) use(p *heapPage, item uint32) {
	if p.nFree > 0 && item < freeItems {
		w, bit := &s.free[p.slot][item>>6], uint64(1)<<(item&63)
		if *w&bit != 0 {
			*w &^= bit
			p.nFree--
		}
	}
	p.largest = max(p.largest, uint16(item))
	p.newest = uint16(item)
}

// release notes that an item is unused again.
func (s *store) release(p *heapPage, item uint32) {
	if item >= freeItems {
		return
	}
	free := &s.free[p.slot]
	if p.nFree == 0 {
		*free = [freeItems / 64]uint64{}
	}
	if w, bit := &free[item>>6], uint64(1)<<(item&63); *w&bit == 0 {
		*w |= bit
		p.nFree++
	}
}

func (p *heapPage) liveIndex(item uint32) int {
	for i, v := range p.live[:p.nLive] {
		if uint32(v) == item {
			return i
		}
	}
	return -1
}

func (p *heapPage) dead(item uint32) {
	if i := p.liveIndex(item); i >= 0 {
		copy(p.live[i:], p.live[i+1:p.nLive])
		p.nLive--
	}
}

func (p *heapPage) alive(item uint32) {
	n := min(p.nLive, liveItems-1)
	copy(p.live[1:n+1], p.live[:n])
	p.live[0] = uint16(item)
	p.nLive = n + 1
}
