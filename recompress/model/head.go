package model

import "walproxy/recompress/rangecoder"

// head is what the last record behind the same two records of its transaction was: its plan, and its relations.
type head struct {
	plan uint16           // from one on, 0 if there was none that may be expected again
	rels [headRels]uint16 // of the blocks that name one
}

const (
	headRels = 3

	ctxHead = 0x0208_0000
)

// headContext is where a record stands in its transaction.
func (x *xact) headContext() uint32 { return rangecoder.Hash(x.k1*31+x.k2, ctxKind) }

// usualHead codes whether kind, relations and lengths are those of the record that came last in the same place of a transaction, and of
// its plan: one decision in the place of half a dozen.
func (m *model) usualHead(r *record) bool {
	d := &m.dict
	context := r.xact.headContext()
	h := &d.heads[context%predictions]
	if !r.linked || h.plan == 0 {
		return false
	}
	p := d.plans[h.plan-1]
	k := &d.kinds[p.kind]
	if !m.Flag(context+ctxHead, int(p.history), !m.decoding && m.isHead(r, h, p)) {
		return false
	}
	if m.decoding {
		r.fromKey(k.key)
	}
	next := 0
	for i := range r.blocks[:r.n] {
		b, q := &r.blocks[i], &p.blocks[min(i, planBlocks-1)]
		if b.fork&forkSameRel == 0 {
			r.xact.lastRel = int(h.rels[next])
			next++
		}
		b.rel = d.rels[r.xact.lastRel]
		b.relation = b.rel.id
		b.dataBytes, b.imageBytes, b.holeOffset, b.holeBytes = q.dataBytes, q.imageBytes, q.holeOffset, q.holeBytes
	}
	r.mainBytes, r.kind, r.plan = p.mainBytes, k, p
	p.history = p.history<<1&7 | 1
	m.mark(costKind)
	return true
}

// isHead reports whether the parsed record is what h says.
func (m *model) isHead(r *record, h *head, p *plan) bool {
	d := &m.dict
	if string(r.appendKey(d.key[:0])) != string(d.kinds[p.kind].key) {
		return false
	}
	next := 0
	for i := range r.blocks[:r.n] {
		if b := &r.blocks[i]; b.fork&forkSameRel == 0 {
			if d.rels[h.rels[next]].id != b.relation {
				return false
			}
			next++
		}
	}
	return r.sameLengths(p)
}

// keepHead remembers a record that was not as usual, if it may be from now on.
func (m *model) keepHead(r *record) {
	h := &m.dict.heads[r.xact.headContext()%predictions]
	*h = head{}
	next := 0
	for i := range r.blocks[:r.n] {
		if b := &r.blocks[i]; b.fork&forkSameRel == 0 {
			if next == headRels {
				return
			}
			h.rels[next] = uint16(b.rel.index)
			next++
		}
	}
	if r.shape&shapeTopXid == 0 && r.plan.index < maxPlans-1 { // the last plan is shared
		h.plan = uint16(r.plan.index + 1)
	}
}
