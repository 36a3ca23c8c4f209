package model

import "math/bits"

const (
	ringBytes = 2 << 20 // tuples and pages remembered; the oldest make room
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
	places []storePlace
	pages  []heapPage
}

// storePlace is what is known of the keys that hash to one place. Who asks for the tuple at an item asks for its state as well: the two
// lie side by side, so that memory is waited for once.
type storePlace struct {
	entry storeEntry
	item  itemState
}

// storeEntry says where the tuple or page of a key is.
type storeEntry struct {
	at    uint64
	tag   uint32 // of the key
	bytes uint32
}

// itemState is what is known of one line pointer of a heap page.
type itemState struct {
	tag   uint32 // of its key
	root  uint32 // number of the row, 0 if it was never updated
	next  uint16 // item with the next version of the row
	redir uint16 // item it redirects to
	after uint16 // the redirect that a prune listed after it
}

// heapPage is what is known of one heap page.
type heapPage struct {
	key     uint64
	largest uint16 // item number in use
	newest  uint16
	first   uint16 // the redirect that a prune listed first
	nLive   uint16
	live    [liveItems]uint16 // items that were made new, latest first
	free    [freeItems / 64]uint64
}

func (s *store) init() {
	s.ring = make([]byte, ringBytes)
	s.places = make([]storePlace, 1<<placeLog)
	s.pages = make([]heapPage, 1<<pageLog)
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

func spread(key uint64, log uint) uint64 { return key * 0x9E3779B97F4A7C15 >> (64 - log) }

// tagged returns a place with a tag that tells the keys of a place apart, as a rule: keys that are taken for each other cost ratio,
// nothing else. It is never zero.
func tagged(key uint64) (place uint64, tag uint32) {
	h := key * 0x9E3779B97F4A7C15
	return h >> (64 - placeLog), uint32(h>>8) | 1
}

// put remembers n bytes under a key and returns the place to write them to.
func (s *store) put(key uint64, n int) []byte {
	at := int(s.head % ringBytes)
	if at+n > ringBytes {
		s.head += uint64(ringBytes - at)
		at = 0
	}
	place, tag := tagged(key)
	s.places[place].entry = storeEntry{tag: tag, at: s.head, bytes: uint32(n)}
	s.head += uint64(n)
	return s.ring[at : at+n : at+n]
}

func (s *store) get(key uint64) []byte {
	place, tag := tagged(key)
	e := &s.places[place].entry
	if e.tag != tag || e.at+ringBytes < s.head || e.at+uint64(e.bytes) > s.head {
		return nil
	}
	at := e.at % ringBytes
	return s.ring[at : at+uint64(e.bytes)]
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
	place, tag := tagged(s.key(rel, number, item))
	t := &s.places[place].item
	if t.tag != tag {
		*t = itemState{tag: tag}
	}
	return t
}

// known returns the state of an item, or nil.
func (s *store) known(rel *relState, number, item uint32) *itemState {
	place, tag := tagged(s.key(rel, number, item))
	if t := &s.places[place].item; t.tag == tag {
		return t
	}
	return nil
}

// page returns the state of a heap page, fresh if there is none.
func (s *store) page(rel *relState, number uint32) *heapPage {
	key := s.key(rel, number, 0)
	p := &s.pages[spread(key, pageLog)]
	if p.key != key {
		*p = heapPage{key: key}
	}
	return p
}

// nextItem returns the item that a new tuple should take: the lowest that pruning freed, else one more.
func (p *heapPage) nextItem() uint32 {
	for i, w := range p.free {
		if w != 0 {
			return uint32(i*64 + bits.TrailingZeros64(w))
		}
	}
	return uint32(p.largest) + 1
}

// use notes that a new tuple took an item.
func (p *heapPage) use(item uint32) {
	if item < freeItems {
		p.free[item>>6] &^= 1 << (item & 63)
	}
	p.largest = max(p.largest, uint16(item))
	p.newest = uint16(item)
}

// release notes that an item is unused again.
func (p *heapPage) release(item uint32) {
	if item < freeItems {
		p.free[item>>6] |= 1 << (item & 63)
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
