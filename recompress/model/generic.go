package model

import "walproxy/recompress/rangecoder"

// main codes the main data.
func (m *model) main(r *record) {
	ctx := rangecoder.Hash(r.plan.ctx, ctxMain)
	n := len(r.main)
	switch op := r.op() &^ heapInit; {
	case r.n == 0 && r.rmid != rmXact:
	case op == heapInsert && n == insertMain:
		m.heapInsert(r, ctx)
		return
	case (op == heapUpdate || op == heapHotUpdate) && n == updateMain:
		m.heapUpdate(r, ctx)
		return
	case (op == heapDelete || op == heapLock) && n == deleteMain:
		m.heapDelete(r, ctx)
		return
	case op == heapPrune && (n == pruneMain || n == pruneMain16) && m.page.magic < firstMagicOf17:
		m.pruneMain(r, ctx)
		return
	case op == heapMultiInsert && n >= multiMain:
		m.multiInsert(r, ctx)
		return
	case (r.rmid == rmBtree || op == hashInsert) && n == 2:
		m.btreeItem(r, ctx)
		return
	case r.rmid == rmXact && n >= 8:
		m.xactMain(r, ctx)
		return
	}
	m.fields(ctx, r.main, r.plan.main, r.xact)
	m.mark(costMain)
}

// blockData codes the data of block i.
func (m *model) blockData(r *record, i int) {
	k := &r.blocks[i]
	ctx := rangecoder.Hash(r.plan.ctx+uint32(i), ctxData)
	n := len(r.main)
	switch op := r.op() &^ heapInit; {
	case r.rmid == rmBtree && (r.info&0xf0 == btreeSplitLeft || r.info&0xf0 == btreeSplitRight) && i == 1:
		m.indexItems(k, ctx)
		return
	case op == ginUpdateMeta && i == 1:
		k.rel.page.tid = tidOf(r.xact.block, r.xact.offset)
		m.indexItems(k, ctx)
		return
	case i > 0:
	case r.rmid == rmGin && m.ginBlock(r, k, ctx):
		return
	case op == heapInsert && n == insertMain:
		m.insertData(r, k.data, ctx)
		return
	case (op == heapUpdate || op == heapHotUpdate) && n == updateMain:
		m.updateData(r, k.data, ctx)
		return
	case op == heapMultiInsert && n >= multiMain:
		m.multiInsertData(r, k.data, ctx)
		return
	case op == heapPrune && (n == pruneMain || n == pruneMain16) && m.page.magic < firstMagicOf17:
		m.pruneData(r, k.data, ctx)
		return
	case (r.rmid == rmBtree || op == hashInsert) && len(k.data) >= 8 && n == 2:
		m.btreeInsert(r, k, ctx)
		return
	}
	var previous []byte
	if i < planBlocks {
		previous = r.plan.blocks[i].data
	}
	m.fields(ctx, k.data, previous, r.xact)
	m.mark(costText)
}

const (
	ctxBlock = 0x0601_0000 + iota
	ctxBlockNear
)

// takesTuples reports whether a record's first block is one that a new tuple goes to.
func (r *record) takesTuples() bool {
	op := r.op() &^ heapInit
	return op == heapInsert || op == heapUpdate || op == heapHotUpdate
}

// blockNumber codes the number of block i: where its transaction, its plan or its relation was last, or one more; the leaf of
// an index from the key that the transaction wrote.
func (m *model) blockNumber(r *record, i int) {
	k, x := &r.blocks[i], r.xact
	q := &r.plan.blocks[min(i, planBlocks-1)]
	last, ok := x.lastOf(k.rel)
	if !ok {
		last = q.number
	}
	var c [5 + targetCount]uint32
	c[0], c[1], c[2], c[3], c[4] = last, q.number, q.number+1, k.rel.last, k.rel.last+1
	n := 5
	target := i == 0 && r.takesTuples()
	if target {
		n += copy(c[5:], k.rel.targets[:])
	}
	ctx := rangecoder.Hash(r.plan.ctx+uint32(i), ctxBlock)
	if j := m.pick(ctx+x.k1<<16, c[:n], k.number); j != noPick {
		k.number = c[j]
	} else if r.rmid == rmBtree && x.count > 0 {
		k.number = m.nearby(k, x.values[0])
	} else {
		k.number = uint32(m.Uint(rangecoder.Hash(k.rel.ctx, ctxBlock), uint64(k.number)))
	}
	if target {
		k.rel.target(k.number)
	}
}

// nearby codes the block of an index that a key belongs to.
func (m *model) nearby(k *block, key uint32) uint32 {
	t := m.near.of(k.rel.ctx)
	if t == nil {
		return uint32(m.Uint(rangecoder.Hash(k.rel.ctx, ctxBlock), uint64(k.number)))
	}
	v, guess := k.number, t.predict(key, 0)
	if t.trusted(14 * 8) {
		v = guess + uint32(m.Int(ctxBlockNear, int64(int32(v-guess))))
	} else {
		v = uint32(m.Uint(rangecoder.Hash(k.rel.ctx, ctxBlock), uint64(v)))
	}
	t.add(key, v, 0, residualBits(v-guess))
	return v
}

// target moves a block to the front of those that took new tuples.
func (s *relState) target(number uint32) {
	i := 0
	for i < targetCount-1 && s.targets[i] != number {
		i++
	}
	copy(s.targets[1:i+1], s.targets[:i])
	s.targets[0] = number
}

// fields codes a structure that is not known: words if it is as long as the last of its kind, else bytes.
func (m *model) fields(ctx uint32, b, previous []byte, x *xact) {
	if len(b) != len(previous) || len(b) < 4 || len(b) > rowParts*rowBytes {
		m.bytes(ctx, b, previous)
		return
	}
	class := m.rows.class(ctx)
	copy(class.row[:], previous)
	m.row(class, b, 0, version{}, x)
}
