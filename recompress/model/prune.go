package model

import "walproxy/recompress/rangecoder"

const (
	pruneMain    = 8    // xl_heap_prune of 13-15: horizon, redirected, dead; 16 appends a byte
	pruneMain16  = 9    //
	chainLimit   = 8192 // items of HOT chains that are followed for a record
	removedLimit = 600  // items that redirections are expected to free

	ctxPruneXid = 0x0c01_0000 + iota
	ctxPruneCount
	ctxPruneFrom
	ctxPruneTo
	ctxPruneDead
	ctxPruneUnused
)

// pruned is what a prune record has told so far.
type pruned struct {
	rel     *relState
	number  uint32
	ctx     uint32
	last    uint32 // item listed last
	from    uint32 // redirect listed last
	removed [removedLimit]uint16
	n, next int
	steps   int // taken along chains
}

// pruneMain codes the main data of a prune: the horizon and how many items were redirected and killed.
//
// Source: PostgreSQL src/include/access/heapam_xlog.h, xl_heap_clean (13), xl_heap_prune (14-16).
func (m *model) pruneMain(r *record, ctx uint32) {
	b, last := r.main, r.plan.main
	k := &r.blocks[0]
	horizon := [...]uint32{at32(last, 0), m.xacts.horizon, r.xid, 0}
	m.put32(b, m.u32(ctx+ctxPruneXid, horizon[:], le.Uint32(b)))
	if v := le.Uint32(b); v != 0 {
		m.xacts.horizon = v
	}
	items := uint32(k.dataBytes / 2)
	redirected := m.u16(ctx+ctxPruneCount+min(items, 31)<<8, []uint32{at16(last, 4), items / 3}, at16(b, 4))
	m.put16(b[4:], redirected)
	m.put16(b[6:], m.u16(ctx+ctxPruneCount+1<<16, []uint32{at16(last, 6), items - 2*redirected}, at16(b, 6)))
	if len(b) > pruneMain {
		m.put8(b[8:], m.byteLike(ctx+ctxPruneCount+2<<16, at8(last, 8), b[8]))
	}
	m.mark(costPrune)
}

// pruneData codes the items: redirections, then those killed, then those freed.
func (m *model) pruneData(r *record, b []byte, ctx uint32) {
	k := &r.blocks[0]
	p := &m.pruned
	p.rel, p.number, p.ctx = k.rel, k.number, rangecoder.Hash(k.rel.ctx, ctxPruneFrom)
	p.last, p.from, p.n, p.next, p.steps = 0, 0, 0, 0, 0
	redirected, dead := int(at16(r.main, 4)), int(at16(r.main, 6))
	for i := 0; i+2 <= len(b); i += 2 {
		v := uint32(le.Uint16(b[i:]))
		switch j := i / 2; {
		case j < 2*redirected && j&1 == 0:
			v = m.pruneFrom(p, v)
		case j < 2*redirected:
			v = m.pruneTo(p, v)
		case j < 2*redirected+dead:
			v = m.pruneItem(p, v, ctxPruneDead)
		default:
			v = m.pruneItem(p, v, ctxPruneUnused)
			m.store.release(m.store.page(p.rel, p.number), v)
		}
		m.put16(b[i:], v)
		p.last = v
	}
	if len(b)&1 != 0 {
		m.bytes(ctx, b[len(b)-1:], nil)
	}
	m.mark(costPrune)
}

// pruneFrom codes an item that redirects from now on: the one that followed the last in the page's prune before, as a rule.
func (m *model) pruneFrom(p *pruned, v uint32) uint32 {
	page := m.store.page(p.rel, p.number)
	expected := uint32(page.first)
	if p.from != 0 {
		expected = uint32(m.store.item(p.rel, p.number, p.from).after)
	}
	v = m.u16(p.ctx, []uint32{expected, p.from + 1}, v)
	if p.from == 0 {
		page.first = uint16(v)
	} else {
		m.store.item(p.rel, p.number, p.from).after = uint16(v)
	}
	p.from = v
	return v
}

// pruneTo codes where an item redirects to: the end of its chain of versions, or one of the two in front of it.
func (m *model) pruneTo(p *pruned, v uint32) uint32 {
	t := m.store.item(p.rel, p.number, p.from)
	first := t.redir
	if first == 0 {
		first = t.next
	}
	c := [...]uint32{0, 0, 0, uint32(m.store.page(p.rel, p.number).newest)}
	start := p.n
	for at := first; at != 0 && p.n < removedLimit && p.steps < chainLimit; p.steps++ {
		c[2], c[1], c[0] = c[1], c[0], uint32(at)
		p.removed[p.n] = at
		p.n++
		u := m.store.known(p.rel, p.number, uint32(at))
		if u == nil {
			break
		}
		at = u.next
	}
	v = m.u16(p.ctx+ctxPruneTo, c[:], v)
	for i, at := range p.removed[start:p.n] {
		if uint32(at) == v {
			p.n = start + i
			break
		}
	}
	m.store.item(p.rel, p.number, p.from).redir = uint16(v)
	return v
}

// pruneItem codes an item that was killed or freed: the next of those that the redirections skipped, as a rule.
func (m *model) pruneItem(p *pruned, v, ctx uint32) uint32 {
	expected, next := uint32(0), uint32(0)
	if p.next < p.n {
		expected = uint32(p.removed[p.next])
	}
	if u := m.store.known(p.rel, p.number, p.last); u != nil {
		next = uint32(u.next)
	}
	v = m.u16(p.ctx+ctx, []uint32{expected, next, p.last + 1}, v)
	if v != expected {
		for i, w := range p.removed[:p.n] {
			if uint32(w) == v {
				p.next = i
				break
			}
		}
	}
	p.next++
	m.store.page(p.rel, p.number).dead(v)
	return v
}
