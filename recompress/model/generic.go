package model

import "walproxy/recompress/rangecoder"

func (m *model) main(r *record) {
	m.bytes(rangecoder.Hash(r.plan.ctx, ctxMain), r.main, r.plan.main)
	m.mark(costMain)
}

func (m *model) blockData(r *record, i int) {
	k := &r.blocks[i]
	var previous []byte
	if i < planBlocks {
		previous = r.plan.blocks[i].data
	}
	m.bytes(rangecoder.Hash(r.plan.ctx+uint32(i), ctxData), k.data, previous)
	m.mark(costText)
}

func (m *model) pageImage(r *record, k *block) {
	m.bytes(rangecoder.Hash(k.rel.ctx, ctxImage), k.image, nil)
	m.mark(costImageRaw)
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

type rows struct{}

func (*rows) init()  {}
func (*rows) reset() {}

type store struct{}

func (*store) init()  {}
func (*store) reset() {}

type imageState struct{}

func (*imageState) init()  {}
func (*imageState) reset() {}

type imageRef struct{}
