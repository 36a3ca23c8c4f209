package model

import (
	"math/bits"

	"walproxy/recompress/rangecoder"
)

const (
	maxXacts   = 32 // transactions a stream follows at a time; the one longest silent makes room
	xactValues = 8  // numbers remembered of a transaction
	xactRefs   = 4  // block references remembered of a transaction
	xactChains = 4  // rows it updated
)

// xact is what is known of a transaction that is under way.
type xact struct {
	xid     uint32
	last    uint32 // number of its last record
	k1, k2  uint32 // contexts of its last two records
	lastRel int

	values [xactValues]uint32 // numbers it wrote that nothing predicted
	count  int
	delta  uint32 // by how much it changed a number
	refs   [xactRefs]struct {
		rel    *relState
		number uint32
	}
	refCount int

	block   uint32 // where its last new tuple went
	offset  uint16
	locked  uint16 // the tuple it locked last, if nothing came between
	updates int
	upBlock uint32 // its first update
	upItem  uint32
	chains  [xactChains]uint32 // rows it updated
	nChains int
}

// transactions are those under way, the latest first.
type transactions struct {
	slots   [maxXacts]xact
	order   [maxXacts]uint8
	n       int
	max     uint32 // the largest xid met
	horizon uint32 // of the last prune
	now     uint32 // number of the record
	rows    uint16 // number of the row that was updated last, for the first time
}

// newRow numbers a row. After many the numbers begin again, and are never zero.
func (t *transactions) newRow() uint16 {
	if t.rows++; t.rows == 0 {
		t.rows = 1
	}
	return t.rows
}

const (
	ctxXact = 0x0301_0000 + iota
	ctxXactOther
	ctxXactNew
)

// transaction codes the record's xid: whose turn it is among the transactions under way, or a new one.
func (m *model) transaction(r *record) {
	t := &m.xacts
	t.now++
	index := -1
	if !m.decoding {
		for i := range t.n {
			if t.slots[t.order[i]].xid == r.xid {
				index = i
				break
			}
		}
	}
	previous := m.dict.previous
	for i := range t.n {
		x := &t.slots[t.order[i]]
		var ctx uint32
		place := 0
		if i == 0 {
			ctx = rangecoder.Hash(previous, ctxXact)
		} else {
			ctx = rangecoder.Hash(x.k1*31+previous, ctxXactOther+uint32(min(i, 3))<<4)
			place = bits.Len32(t.now - x.last)
		}
		if m.Flag(ctx, place, index == i) {
			slot := t.order[i]
			copy(t.order[1:i+1], t.order[:i])
			t.order[0] = slot
			x.last = t.now
			r.xid, r.xact = x.xid, x
			return
		}
	}
	r.xid = t.max + uint32(m.Int(ctxXactNew, int64(int32(r.xid-t.max))))
	if int32(r.xid-t.max) > 0 || t.max == 0 {
		t.max = r.xid
	}
	r.xact = t.add(r.xid)
}

func (t *transactions) add(xid uint32) *xact {
	var slot uint8
	if t.n < maxXacts {
		used := uint64(0)
		for _, s := range t.order[:t.n] {
			used |= 1 << s
		}
		slot = uint8(bits.TrailingZeros64(^used))
		t.n++
	} else {
		slot = t.order[t.n-1]
	}
	copy(t.order[1:t.n], t.order[:t.n-1])
	t.order[0] = slot
	t.slots[slot] = xact{xid: xid, last: t.now}
	return &t.slots[slot]
}

// end forgets the transaction that the last record belongs to.
func (t *transactions) end() {
	if t.n > 0 {
		copy(t.order[:t.n-1], t.order[1:t.n])
		t.n--
	}
}

// refer notes that the transaction referenced a block.
func (x *xact) refer(rel *relState, number uint32) {
	at := &x.refs[x.refCount%xactRefs]
	at.rel, at.number = rel, number
	x.refCount++
}

// lastOf returns the block of rel that the transaction referenced last.
func (x *xact) lastOf(rel *relState) (uint32, bool) {
	for i := 1; i <= min(x.refCount, xactRefs); i++ {
		if at := &x.refs[(x.refCount-i)%xactRefs]; at.rel == rel {
			return at.number, true
		}
	}
	return 0, false
}

// renew forgets what the rows of a transaction that is none left behind.
func (x *xact) renew() {
	x.count, x.delta = 0, 0
}

// note remembers a number that nothing predicted.
func (x *xact) note(v uint32) {
	if x.count < xactValues {
		x.values[x.count] = v
		x.count++
	}
}
