package model

import "math/rand/v2"

// randomPage returns a sound page of a form and its fork.
func randomPage(random *rand.Rand, f pageForm) ([]byte, byte) {
	page := make([]byte, blockBytes)
	special := blockBytes - f.special()
	le.PutUint32(page[pdLSN+4:], random.Uint32N(1<<20))
	le.PutUint16(page[pdLower:], pageHeaderBytes)
	le.PutUint16(page[pdUpper:], uint16(special))
	le.PutUint16(page[pdSpecial:], uint16(special))
	le.PutUint16(page[pdVersion:], blockBytes|4)
	mark := func(v uint16) { le.PutUint16(page[blockBytes-2:], v) }
	switch f {
	case formHash:
		le.PutUint32(page[special+hashBucketAt:], 37)
		le.PutUint16(page[special+12:], 2)
		mark(hashPageID)
		last := uint32(0)
		fill(random, page, 150, func() []byte {
			b := make([]byte, hashTupleBytes)
			indexHead(random, b)
			last += random.Uint32N(1 << 15)
			le.PutUint32(b[8:], last<<10|37)
			return b
		})
	case formGist:
		mark(gistPageID)
		fill(random, page, 90, func() []byte { return randomIndexTuple(random, 40) })
	case formSPGist:
		page[special] = spgistLeaf
		mark(spgistPageID)
		fill(random, page, 100, func() []byte {
			b := make([]byte, 32)
			le.PutUint32(b, 32<<2)
			tid := tidOf(random.Uint32N(100), uint16(1+random.IntN(40)))
			copy(b[6:], tid[:])
			b[20], b[28] = byte(random.Uint32()), byte(random.Uint32())
			return b
		})
	case formGinItems:
		mark([]uint16{0, ginLeaf, ginLeaf, ginPending}[random.IntN(4)])
		fill(random, page, 60, func() []byte { return randomEntry(random) })
	case formGinLeaf:
		mark(ginData | ginLeaf | ginCompress)
		at, base := ginContentAt, uint64(5<<postingItems|1)
		var items [200]uint64
		for at < 7500 {
			list := randomPostings(random, items[:0], 1+random.IntN(150), 40)
			for i := range list {
				list[i] += base
			}
			at += layPostings(page[at:], list)
			base = list[len(list)-1] &^ postingMaxItem
		}
		le.PutUint16(page[pdLower:], uint16(at))
	case formGinTree:
		mark(ginData)
		at := ginContentAt
		for i := range uint32(100) {
			child, tid := tidOf(i*3+2, 0), tidOf(i*20, uint16(1+random.IntN(60)))
			copy(page[at:], child[:4])
			copy(page[at+4:], tid[:])
			at += ginTreeItem
		}
		le.PutUint16(page[pdLower:], uint16(at))
	case formBrin:
		mark(brinRegular)
		number := random.Uint32N(100)
		fill(random, page, 120, func() []byte {
			b := make([]byte, 24)
			number++
			le.PutUint32(b, number)
			b[4] = 8
			le.PutUint64(b[8:], uint64(number)*1000)
			le.PutUint64(b[16:], uint64(number)*1000+random.Uint64N(1000))
			return b
		})
	case formRevmap:
		mark(brinRevmap)
		for i := range random.IntN(1300) {
			tid := tidOf(uint32(3+i/200), uint16(1+i%200))
			copy(page[pageHeaderBytes+6*i:], tid[:])
		}
	case formSequence:
		le.PutUint32(page[special:], sequenceMagic)
		fill(random, page, 1, func() []byte {
			b := make([]byte, 41)
			b[tupleHoff] = 24
			le.PutUint64(b[24:], random.Uint64N(1000))
			return b
		})
	case formVisibility:
		for at := pageHeaderBytes; at < blockBytes; at++ {
			page[at] = []byte{0xff, 0x55, 0, byte(random.Uint32())}[at/100%4]
		}
		return page, 2
	case formFreeSpace:
		tree := page[pageHeaderBytes+freeSpaceTree:]
		for at := freeSpaceInner; at < freeSpaceInner+random.IntN(3000); at++ {
			tree[at] = byte(200 + random.IntN(2))
		}
		for at := freeSpaceInner - 1; at >= 0; at-- {
			if tree[at] = larger(tree, at); random.IntN(2000) == 0 {
				tree[at]++
			}
		}
		return page, 1
	}
	return page, 0
}

// fill puts tuples on a page as the server does, and some dead, unused and shuffled items.
func fill(random *rand.Rand, page []byte, n int, tuple func() []byte) {
	lower, upper := pageHeaderBytes, int(at16(page, pdSpecial))
	for range 1 + random.IntN(n) {
		t := tuple()
		if upper-(len(t)+7)&^7 < lower+4 {
			break
		}
		state := uint32(itemNormal)
		switch random.IntN(40) {
		case 0:
			state = itemDead
		case 1:
			le.PutUint32(page[lower:], 0)
			lower += 4
			continue
		}
		upper -= (len(t) + 7) &^ 7
		copy(page[upper:], t)
		le.PutUint32(page[lower:], uint32(upper)|state<<15|uint32(len(t))<<17)
		lower += 4
	}
	le.PutUint16(page[pdLower:], uint16(lower))
	le.PutUint16(page[pdUpper:], uint16(upper))
}

func indexHead(random *rand.Rand, b []byte) {
	tid := tidOf(random.Uint32N(300), uint16(1+random.IntN(60)))
	copy(b, tid[:])
	le.PutUint16(b[6:], uint16(len(b)))
}

func randomIndexTuple(random *rand.Rand, n int) []byte {
	b := make([]byte, n)
	indexHead(random, b)
	for at := indexTupleHead; at+8 <= n; at += 8 {
		le.PutUint64(b[at:], 0x4080000000000000|random.Uint64N(1<<20))
	}
	return b
}

// randomEntry returns a tuple of an entry tree: with a list, with a tree, without either.
func randomEntry(random *rand.Rand) []byte {
	if random.IntN(8) == 0 {
		b := randomIndexTuple(random, 16)
		le.PutUint16(b[4:], ginTree)
		return b
	}
	var items [100]uint64
	b := make([]byte, 600)
	list := randomPostings(random, items[:0], 1+random.IntN(100), 1+random.Uint64N(2000))
	n := layPostings(b[16:], list)
	b = b[:(16+n+7)&^7]
	le.PutUint16(b, ginListMark>>16)
	le.PutUint16(b[2:], 16)
	le.PutUint16(b[4:], uint16(len(list)))
	le.PutUint16(b[6:], uint16(len(b)))
	le.PutUint32(b[8:], random.Uint32N(50))
	if random.IntN(10) == 0 {
		b[len(b)-1]++
	}
	return b
}

// randomPostings appends n TIDs, at most gap rows apart on pages of 60 rows each.
func randomPostings(random *rand.Rand, items []uint64, n int, gap uint64) []uint64 {
	ref := postingRef{rows: 60}
	place := random.Uint64N(1000)
	for range n {
		items = append(items, ref.tid(place))
		place += 1 + random.Uint64N(gap)
	}
	return items
}
