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
	case r.rmid == rmXact && n >= 8:
		m.xactMain(r, ctx)
		return
	}
	m.bytes(ctx, r.main, r.plan.main)
	m.mark(costMain)
}

// blockData codes the data of block i.
func (m *model) blockData(r *record, i int) {
	k := &r.blocks[i]
	ctx := rangecoder.Hash(r.plan.ctx+uint32(i), ctxData)
	n := len(r.main)
	switch op := r.op() &^ heapInit; {
	case i > 0:
	case op == heapInsert && n == insertMain:
		m.insertData(r, k.data, ctx)
		return
	case (op == heapUpdate || op == heapHotUpdate) && n == updateMain:
		m.updateData(r, k.data, ctx)
		return
	case r.rmid == rmBtree && len(k.data) >= 8 && n == 2:
		m.btreeInsert(r, k, ctx)
		return
	}
	var previous []byte
	if i < planBlocks {
		previous = r.plan.blocks[i].data
	}
	m.bytes(ctx, k.data, previous)
	m.mark(costText)
}

const ctxBlock = 0x0601_0000

func (m *model) blockNumber(r *record, i int) {
	k := &r.blocks[i]
	q := &r.plan.blocks[min(i, planBlocks-1)]
	last, ok := r.xact.lastOf(k.rel)
	if !ok {
		last = q.number
	}
	c := [...]uint32{last, q.number, q.number + 1, k.rel.last, k.rel.last + 1}
	ctx := rangecoder.Hash(r.plan.ctx+uint32(i), ctxBlock)
	if j := m.pick(ctx, c[:], k.number); j != noPick {
		k.number = c[j]
		return
	}
	k.number = uint32(m.Uint(m.table, ctx+1, uint64(k.number)))
}
