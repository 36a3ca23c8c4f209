package model

import "math/bits"

// Facts of GIN's posting lists: the first TID, the number of bytes behind it, and the distances of the other TIDs in seven bits a
// byte, lowest first. A TID is a number then: block<<11 | item.
//
// Source: PostgreSQL src/include/access/ginblock.h, GinPostingList; src/backend/access/gin/ginpostinglist.c (13-18).
const (
	postingHead    = 8
	postingItems   = 11                  // bits of a TID's item
	postingMaxItem = 1<<postingItems - 1 // MaxHeapTuplesPerPage is below it
	postingLimit   = 1 << (32 + postingItems)
	maxPostings    = 4096 // TIDs of a list that is taken apart
	postingRefLog  = 5
)

// postings is the memory of posting lists.
type postings struct {
	items, old [maxPostings]uint64 // the list in progress, what is known of its old version
	refs       [1 << postingRefLog]postingRef
}

func (p *postings) reset() { clear(p.refs[:]) }

// of returns what is known of the lists of an index. Indexes may share it.
func (p *postings) of(rel *relState) *postingRef {
	return &p.refs[rel.ctx*0x9E3779B1>>(32-postingRefLog)]
}

// postingRef is what is known of the posting lists of an index.
type postingRef struct {
	rows    uint64 // largest item of a TID: how many rows a page of the table has
	largest uint64 // place of the last row of the table that was met
	last    uint64 // TID at the end of the last list
	gap     int    // bits, in 1/16, of the distance between TIDs, smoothed
	offset  uint32 // of the list in the last tuple
	info    uint32
	block   uint32 // root of the last posting tree
	segment byte   // of a leaf, that is likely next
}

// place is the number of a TID's row if every page of the table has as many rows.
func (r *postingRef) place(v uint64) uint64 { return v>>postingItems*r.rows + v&postingMaxItem - 1 }

// tid undoes place.
func (r *postingRef) tid(place uint64) uint64 {
	return place/r.rows<<postingItems | place%r.rows + 1
}

// parsePostings returns how many TIDs the posting list at the start of b has, which it puts into items, and its length in bytes; 0
// if it is none, not written as the server writes it, or longer than items.
func parsePostings(b []byte, items []uint64) (n, size int) {
	if len(b) < postingHead {
		return 0, 0
	}
	end := postingHead + int(le.Uint16(b[6:]))
	size = (end + 1) &^ 1
	item := uint64(le.Uint16(b[4:]))
	if size > len(b) || size != end && b[end] != 0 || item == 0 || item > postingMaxItem {
		return 0, 0
	}
	v := (uint64(le.Uint16(b))<<16|uint64(le.Uint16(b[2:])))<<postingItems | item
	items[0] = v
	n = 1
	for at := postingHead; at < end; n++ {
		d, shift := uint64(0), 0
		for {
			c := b[at]
			at++
			d |= uint64(c&0x7f) << shift
			if shift += 7; c < 0x80 {
				if c == 0 {
					return 0, 0
				}
				break
			}
			if at == end || shift > 42 {
				return 0, 0
			}
		}
		if v += d; v >= postingLimit || v&postingMaxItem == 0 || n == len(items) {
			return 0, 0
		}
		items[n] = v
	}
	return n, size
}

// layPostings writes the list to b and returns its length, or 0: it does not fit, or its TIDs do not grow.
func layPostings(b []byte, items []uint64) int {
	if len(b) < postingHead || items[0] >= postingLimit {
		return 0
	}
	v := items[0]
	tid := tidOf(uint32(v>>postingItems), uint16(v&postingMaxItem))
	copy(b, tid[:])
	at := postingHead
	for _, next := range items[1:] {
		if next <= v || next >= postingLimit || at+7 > len(b) && at+(bits.Len64(next-v)+6)/7 > len(b) {
			return 0
		}
		d := next - v
		for ; d >= 0x80; d >>= 7 {
			b[at] = byte(d) | 0x80
			at++
		}
		b[at] = byte(d)
		at++
		v = next
	}
	if at-postingHead > 0xffff {
		return 0
	}
	le.PutUint16(b[6:], uint16(at-postingHead))
	if at&1 != 0 {
		if at == len(b) {
			return 0
		}
		b[at] = 0
		at++
	}
	return at
}

const (
	ctxPosting = 0x0e01_0000 + iota
	ctxPostingCount
	ctxPostingKept
	ctxPostingRows
	ctxPostingFirst
	ctxPostingGap
)

// postingList codes the posting list at the start of b and returns its length, or 0 without moving on: there is none that can be
// taken apart. old is what is known of its old version, nil if nothing; chained says that it follows another list of its page.
func (m *model) postingList(b, old []byte, ref *postingRef, chained bool) int {
	p := &m.postings
	n, size := 0, 0
	if !m.decoding {
		n, size = parsePostings(b, p.items[:])
	}
	if !m.Flag(ctxPosting, 0, n > 0) {
		return 0
	}
	was, _ := parsePostings(old, p.old[:])
	likely := [...]uint32{uint32(was) + 1, uint32(was)}
	if was > 0 {
		n = int(m.u32(ctxPostingCount, likely[:], uint32(n)))
	} else {
		n = int(m.Uint(ctxPostingCount+2, uint64(n)))
	}
	if n < 1 || n > maxPostings {
		m.corrupt("posting list")
		return 0
	}
	head, tail := m.keptPostings(n, was)
	if m.err != nil {
		return 0
	}
	m.newPostings(ref, head, n-tail, n, chained)
	ref.last = p.items[n-1]
	if m.decoding {
		if size = layPostings(b, p.items[:n]); size == 0 {
			m.corrupt("posting list")
		}
	}
	return size
}

// keptPostings codes how many TIDs at the begin and at the end of the list of n are those of the old version.
func (m *model) keptPostings(n, was int) (head, tail int) {
	p := &m.postings
	most := min(n, was)
	if most == 0 {
		return 0, 0
	}
	if !m.decoding {
		for head < most && p.items[head] == p.old[head] {
			head++
		}
		for tail < most-head && p.items[n-1-tail] == p.old[was-1-tail] {
			tail++
		}
	}
	if m.Flag(ctxPostingKept, 0, head == most) {
		head = most
	} else {
		head = int(m.Uint(ctxPostingKept+0x100, uint64(head)))
		if head < most && m.Flag(ctxPostingKept, 1, head+tail == most) {
			tail = most - head
		} else {
			tail = int(m.Uint(ctxPostingKept+0x200, uint64(tail)))
		}
	}
	if head < 0 || tail < 0 || head > most || tail > most-head {
		m.corrupt("old posting list")
		return 0, 0
	}
	if m.decoding {
		copy(p.items[:head], p.old[:head])
		copy(p.items[n-tail:n], p.old[was-tail:was])
	}
	return head, tail
}

// newPostings codes the TIDs from low to high of a list of n: the distance to the one before, in rows of the table.
func (m *model) newPostings(ref *postingRef, low, high, n int, chained bool) {
	if low == high {
		return
	}
	p := &m.postings
	before, follows := ref.last, chained
	if low > 0 {
		before, follows = p.items[low-1], true
	}
	rows := max(ref.rows, 1)
	if follows {
		rows = max(rows, before&postingMaxItem)
	}
	most := rows
	if !m.decoding {
		for _, v := range p.items[low:high] {
			most = max(most, v&postingMaxItem)
		}
	}
	if !m.Flag(ctxPostingRows, 0, most == rows) {
		rows = uint64(m.literal16(ctxPostingRows+0x100, uint32(most)))
		if rows == 0 || rows > postingMaxItem {
			m.corrupt("posting list")
			return
		}
	}
	ref.rows = rows
	if low == 0 && !chained {
		ref.gap = bits.Len64(ref.largest/uint64(n)) << 4
	}
	at := low
	place := uint64(0)
	if follows {
		place = ref.place(before)
	}
	if !follows || !m.Flag(ctxPostingFirst, 0, p.items[low] > before) {
		place = m.Uint(ctxPostingFirst+0x100+uint32(ref.gap+4)>>3, ref.place(p.items[low]))
		p.put(ref, low, place, m.decoding)
		at++
	}
	for ; at < high; at++ {
		d := m.Uint(ctxPostingGap+uint32(ref.gap+4)>>3<<8, ref.place(p.items[at])-place-1)
		ref.gap = (ref.gap*7 + bits.Len64(d)<<4) / 8
		place += d + 1
		p.put(ref, at, place, m.decoding)
	}
	ref.largest = max(ref.largest, place&(postingLimit-1))
}

// put has the decoder keep the TID of a place. One that is out of range ends up in a list that cannot be laid down.
func (p *postings) put(ref *postingRef, at int, place uint64, decoding bool) {
	if decoding {
		p.items[at] = ref.tid(place)
	}
}
