package model

import (
	"hash/crc32"
	"slices"

	"walproxy/recompress/rangecoder"
)

const (
	ctxPrev = 0x0501_0000 + iota
	ctxPrevOther
	ctxTopXid
	ctxLength
	ctxDataBytes
	ctxImageBytes
	ctxHoleOffset
	ctxHoleBytes
	ctxMainBytes
	ctxMain
	ctxData
	ctxImage
)

// record codes the record in m.rec, or decodes one into it, and lays it down.
func (m *model) record() {
	r := &m.rec
	r.start = m.page.pos
	m.observeBegin()
	m.transaction(r)
	m.mark(costXact)
	if !m.usualHead(r) && !m.head(r) {
		return
	}
	for i := range r.blocks[:r.n] {
		m.blockNumber(r, i)
	}
	m.mark(costBlock)
	if m.decoding && !m.allocate(r) {
		return
	}
	m.body(r)
	if m.err != nil {
		return
	}
	if m.decoding {
		sum := crc32.Update(0, castagnoli, r.raw[recordHeader:])
		le.PutUint32(r.raw[20:], crc32.Update(sum, castagnoli, r.raw[:20]))
	}
	m.markRecord(r)
	m.observeEnd(r)
	m.learn(r)
	m.lay(r)
}

// head codes what the record is and what is in it: kind, relations, lengths. It reports false if the decoder cannot go on.
func (m *model) head(r *record) bool {
	m.kind(r)
	m.mark(costKind)
	if m.err != nil {
		return false
	}
	m.previousRecord(r)
	if m.relations(r); m.err != nil {
		return false
	}
	m.mark(costRelation)
	r.plan = m.planOf(r)
	m.lengths(r)
	m.mark(costLength)
	m.keepHead(r)
	return true
}

// previousRecord codes what links a record to others: xl_prev and the xid of the top-level transaction.
func (m *model) previousRecord(r *record) {
	last := uint64(m.page.last)
	switch {
	case r.linked:
	case m.Flag(ctxPrev, 0, r.prev == last):
		r.prev = last
	default:
		r.prev = uint64(r.start) - m.Uint(ctxPrevOther, uint64(r.start)-r.prev)
	}
	if r.shape&shapeTopXid != 0 {
		r.topXid = m.u32(ctxTopXid, []uint32{m.xacts.max}, r.topXid)
	}
}

// lengths codes the lengths of all parts: as in the last record of the plan, or one by one.
func (m *model) lengths(r *record) {
	p := r.plan
	same := m.Flag(p.ctx+ctxLength, int(p.history), r.sameLengths(p))
	p.history = p.history << 1 & 7
	if same {
		p.history |= 1
	}
	for i := range r.blocks[:r.n] {
		k, q := &r.blocks[i], &p.blocks[min(i, planBlocks-1)]
		if same {
			k.dataBytes, k.imageBytes, k.holeOffset, k.holeBytes = q.dataBytes, q.imageBytes, q.holeOffset, q.holeBytes
		} else {
			m.blockLengths(p, k, q, uint32(i))
		}
		q.dataBytes, q.imageBytes, q.holeOffset, q.holeBytes = k.dataBytes, k.imageBytes, k.holeOffset, k.holeBytes
	}
	switch {
	case same:
		r.mainBytes = p.mainBytes
	case r.shape&shapeMainShort != 0:
		r.mainBytes = int(m.byteLike(p.ctx+ctxMainBytes, byte(p.mainBytes), byte(r.mainBytes)))
	case r.shape&shapeMainLong != 0:
		r.mainBytes = int(m.Uint(ctxMainBytes, uint64(r.mainBytes)))
	default:
		r.mainBytes = 0
	}
	p.mainBytes = r.mainBytes
}

// sameLengths reports whether all parts are as long as in the last record of the plan.
func (r *record) sameLengths(p *plan) bool {
	for i := range r.blocks[:r.n] {
		k, q := &r.blocks[i], &p.blocks[min(i, planBlocks-1)]
		if k.dataBytes != q.dataBytes || k.imageBytes != q.imageBytes || k.holeOffset != q.holeOffset || k.holeBytes != q.holeBytes {
			return false
		}
	}
	return r.mainBytes == p.mainBytes
}

func (m *model) blockLengths(p *plan, k *block, q *planBlock, i uint32) {
	ctx := rangecoder.Hash(p.ctx, i)
	if k.fork&forkData != 0 {
		k.dataBytes = int(m.u16(ctx+ctxDataBytes<<1, []uint32{uint32(q.dataBytes)}, uint32(k.dataBytes)))
	}
	if k.hasImage() {
		k.holeOffset = int(m.u16(ctx+ctxHoleOffset<<1, []uint32{uint32(q.holeOffset)}, uint32(k.holeOffset)))
		k.imageBytes = int(m.u16(ctx+ctxImageBytes<<1, []uint32{uint32(q.imageBytes)}, uint32(k.imageBytes)))
		if k.imageInfo&imageHole != 0 && k.imageInfo&m.compressedMask() != 0 {
			k.holeBytes = int(m.u16(ctx+ctxHoleBytes<<1, []uint32{uint32(q.holeBytes)}, uint32(k.holeBytes)))
		}
	}
}

// allocate makes room for the decoded record and writes everything in front of its payload.
func (m *model) allocate(r *record) bool {
	compressed := m.compressedMask()
	payload := r.mainBytes
	for i := range r.blocks[:r.n] {
		k := &r.blocks[i]
		payload += k.dataBytes + k.imageBytes
		if k.hasImage() && k.imageInfo&imageHole != 0 && k.imageInfo&compressed == 0 {
			k.holeBytes = blockBytes - k.imageBytes
		}
	}
	head := r.headBytes(compressed)
	if r.mainBytes < 0 || payload < 0 || payload > m.end-m.at-head {
		m.corrupt("record longer than the piece")
		return false
	}
	if n := head + payload; m.inPage(n) {
		r.raw = m.wal[m.at : m.at+n : m.at+n]
	} else {
		m.scratch = slices.Grow(m.scratch[:0], n)[:n]
		r.raw = m.scratch
	}
	r.writeHead(r.raw, compressed, len(r.raw))
	if !m.slice(r, head, payload) {
		m.corrupt("lengths of a record")
		return false
	}
	return true
}

// body codes the payload: main data first, since it says what the block data is about.
func (m *model) body(r *record) {
	m.main(r)
	for i := range r.blocks[:r.n] {
		k := &r.blocks[i]
		if len(k.image) > 0 {
			m.observedImage(k)
		}
		if len(k.data) > 0 {
			m.blockData(r, i)
		}
	}
}

// learn keeps what the next records are predicted from.
func (m *model) learn(r *record) {
	p, x := r.plan, r.xact
	for i := range r.blocks[:r.n] {
		k := &r.blocks[i]
		x.refer(k.rel, k.number)
		k.rel.last = k.number
		if i < planBlocks {
			q := &p.blocks[i]
			q.number = k.number
			q.data = append(q.data[:0], k.data[:min(len(k.data), planBytes)]...)
		}
	}
	p.main = append(p.main[:0], r.main[:min(len(r.main), planBytes)]...)
	m.dict.previous = p.ctx
	x.k2, x.k1 = x.k1, p.ctx
	if r.rmid == rmXact {
		switch r.info & 0x70 {
		case xactCommit, xactAbort:
			m.xacts.end()
		}
	}
}
