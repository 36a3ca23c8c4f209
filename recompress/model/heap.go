package model

import "walproxy/recompress/rangecoder"

// Lengths and places of the heap's records. Source: PostgreSQL src/include/access/heapam_xlog.h (13-18).
const (
	insertMain  = 3  // xl_heap_insert: offnum, flags
	updateMain  = 14 // xl_heap_update: old_xmax, old_offnum, old_infobits_set, flags, new_xmax, new_offnum
	deleteMain  = 8  // xl_heap_delete, xl_heap_lock: xmax, offnum, infobits_set, flags
	tupleHeader = 5  // xl_heap_header: t_infomask2, t_infomask, t_hoff
	hoffBase    = 23 // offset in a tuple of what follows the header: null bitmap, padding, data

	prefixFromOld = 0x20 // XLH_UPDATE_PREFIX_FROM_OLD
	suffixFromOld = 0x40 // XLH_UPDATE_SUFFIX_FROM_OLD
)

const (
	ctxHeapItem = 0x0801_0000 + iota
	ctxHeapOld
	ctxHeapXmax
	ctxHeapFlags
	ctxHeapHeader
	ctxHeapPrefix
	ctxHeapUsual
	ctxRow
	ctxRowPart
)

// insertItem codes the item that a new tuple takes, at b, and notes it.
func (m *model) newItem(ctx uint32, b []byte, r *record, rel *relState, number uint32) uint32 {
	p := m.store.page(rel, number)
	c := [...]uint32{m.store.nextItem(p), uint32(p.newest) + 1, uint32(p.largest) + 1}
	if r.info&heapInit != 0 {
		c[0] = 1
	}
	item := m.u16(ctx, c[:], uint32(le.Uint16(b)))
	m.put16(b, item)
	m.store.use(p, item)
	p.alive(item)
	m.mark(costOffset)
	return item
}

// heapInsert codes the main data of an INSERT.
func (m *model) heapInsert(r *record, ctx uint32) {
	b, k, x := r.main, &r.blocks[0], r.xact
	item := m.newItem(rangecoder.Hash(k.rel.ctx, ctxHeapItem), b, r, k.rel, k.number)
	m.put8(b[2:], m.byteLike(ctx+ctxHeapFlags, at8(r.plan.main, 2), b[2]))
	m.mark(costMain)
	x.block, x.offset = k.number, uint16(item)
}

// heapDelete codes the main data of a DELETE or LOCK.
func (m *model) heapDelete(r *record, ctx uint32) {
	b, k, x, last := r.main, &r.blocks[0], r.xact, r.plan.main
	usual := len(last) == deleteMain && le.Uint32(b) == r.xid && string(b[6:]) == string(last[6:])
	if usual = m.Flag(ctx+ctxHeapUsual, 0, usual) && len(last) == deleteMain; usual {
		m.put32(b, r.xid)
		if m.decoding {
			copy(b[6:], last[6:])
		}
	} else {
		m.put32(b, m.u32(ctx+ctxHeapXmax, []uint32{r.xid, at32(last, 0)}, le.Uint32(b)))
	}
	m.mark(costMain)
	p := m.store.page(k.rel, k.number)
	c := [...]uint32{at16(last, 4) + 1, uint32(x.offset), uint32(p.newest), at16(last, 4) + r.plan.step, r.plan.step}
	item := m.u16(ctx+ctxHeapItem, c[:], uint32(le.Uint16(b[4:])))
	m.put16(b[4:], item)
	r.plan.stride(at16(last, 4), item)
	m.mark(costOffset)
	if r.op()&^heapInit == heapLock {
		x.locked = uint16(item)
	}
	for i := 6; i < len(b) && !usual; i++ {
		m.put8(b[i:], m.byteLike(ctx+ctxHeapFlags+uint32(i)<<8, at8(last, i), b[i]))
	}
	m.mark(costMain)
}

// heapUpdate codes the main data of an UPDATE or HOT UPDATE.
func (m *model) heapUpdate(r *record, ctx uint32) {
	b, k, x, last := r.main, &r.blocks[0], r.xact, r.plan.main
	from := &r.blocks[min(1, r.n-1)]
	old := m.oldItem(r, ctx, from)
	r.plan.stride(at16(last, 4), old)
	m.put16(b[4:], old)
	m.mark(costOffset)
	usual := len(last) == updateMain && le.Uint32(b) == r.xid && string(b[6:12]) == string(last[6:12])
	if m.Flag(ctx+ctxHeapUsual, 0, usual) && len(last) == updateMain {
		m.put32(b, r.xid)
		if m.decoding {
			copy(b[6:12], last[6:])
		}
	} else {
		m.put32(b, m.u32(ctx+ctxHeapXmax, []uint32{r.xid, at32(last, 0)}, le.Uint32(b)))
		m.put8(b[6:], m.byteLike(ctx+ctxHeapFlags, at8(last, 6), b[6]))
		m.put8(b[7:], m.byteLike(ctx+ctxHeapFlags+1<<8, at8(last, 7), b[7]))
		m.put32(b[8:], m.u32(ctx+ctxHeapXmax+1<<8, []uint32{at32(last, 8), r.xid}, le.Uint32(b[8:])))
	}
	m.mark(costMain)
	m.store.page(from.rel, from.number).dead(old)
	item := m.newItem(ctx+ctxHeapItem, b[12:], r, k.rel, k.number)
	s := m.store.item(from.rel, from.number, old)
	if s.root == 0 {
		s.root = m.xacts.newRow()
	}
	if from.number == k.number {
		s.next = uint16(item)
	}
	root := s.root
	*m.store.item(k.rel, k.number, item) = itemState{root: root}
	x.updated(uint32(root), from.number, old)
	x.block, x.offset, x.locked = k.number, uint16(item), 0
}

// oldItem codes which item is updated: the one just locked, one of those known to be alive, or any.
func (m *model) oldItem(r *record, ctx uint32, from *block) uint32 {
	v := uint32(le.Uint16(r.main[4:]))
	if locked := uint32(r.xact.locked); locked != 0 && m.Flag(ctx+ctxHeapOld, 0, v == locked) {
		return locked
	}
	p := m.store.page(from.rel, from.number)
	last := at16(r.plan.main, 4)
	next := last + max(r.plan.step, 1)
	if m.Flag(ctx+ctxHeapOld, 1, v == next) {
		return next
	}
	if n := int(p.nLive); n > 0 {
		i := p.liveIndex(v)
		if m.Flag(ctx+ctxHeapOld, 2+min(n, 13), i >= 0) {
			if n == 1 {
				return uint32(p.live[0])
			}
			group := ctx + ctxHeapOld + uint32(n)<<8
			high := m.Bit(group, 0, i>>4&1)
			i = high<<4 | m.Nibble(group+uint32(high)<<16, i&15)
			return uint32(p.live[min(i, n-1)])
		}
	}
	return m.literal16(ctx+ctxHeapOld+0x80, v)
}

// updated notes an update of the transaction.
func (x *xact) updated(root, block, item uint32) {
	if x.updates == 0 {
		x.upBlock, x.upItem = block, item
	}
	x.updates++
	if x.nChains < len(x.chains) {
		x.chains[x.nChains] = root
		x.nChains++
	}
}

// tupleHead codes the header and null bitmap of a tuple as it is in a record, and returns their length.
func (m *model) tupleHead(ctx uint32, b, last []byte) int {
	if n := headEnd(last, 0); n <= len(b) && n <= len(last) {
		if m.Flag(ctx+ctxHeapHeader, 1, string(b[:n]) == string(last[:n])) {
			if m.decoding {
				copy(b[:n], last)
			}
			m.mark(costTupleHeader)
			return n
		}
	}
	n := min(len(b), tupleHeader)
	same := !m.decoding && len(last) >= n && string(b[:n]) == string(last[:n])
	if m.Flag(ctx+ctxHeapHeader, 0, same) {
		if m.decoding && copy(b[:n], last) < n {
			m.corrupt("tuple header")
		}
	} else {
		for i := range n {
			m.put8(b[i:], m.byteLike(ctx+ctxHeapHeader+uint32(i+1)<<8, at8(last, i), b[i]))
		}
	}
	if n < tupleHeader {
		return n
	}
	end := min(headEnd(b, 0), len(b))
	for i := n; i < end; i++ {
		m.put8(b[i:], m.byteLike(ctx+ctxHeapHeader+uint32(min(i, 40)+1)<<8, at8(last, i), b[i]))
	}
	m.mark(costTupleHeader)
	return end
}

// insertData codes the tuple of an INSERT.
func (m *model) insertData(r *record, b []byte, ctx uint32) {
	k, x := &r.blocks[0], r.xact
	n := m.tupleHead(ctx, b, r.plan.blocks[0].data)
	m.row(m.rows.class(rangecoder.Hash(k.rel.ctx, ctxRow)), b[n:], 0, version{}, x)
	copy(m.store.putTuple(k.rel, k.number, uint32(x.offset), len(b)-n, 0, len(b)-n), b[n:])
}

// updateData codes the new tuple of an UPDATE: what is left of it between the prefix and the suffix it shares with the old one.
func (m *model) updateData(r *record, b []byte, ctx uint32) {
	k, x := &r.blocks[0], r.xact
	from := &r.blocks[min(1, r.n-1)]
	last := r.plan.blocks[0].data
	flags := r.main[7]
	prefix, suffix, n := m.updateFront(ctx, b, last, flags)
	data := b[n:]
	old := m.store.tuple(from.rel, from.number, uint32(le.Uint16(r.main[4:])))
	m.rows.old = append(m.rows.old[:0], old.data...) // the store may put the new tuple in its place
	old.data = m.rows.old
	c := uint32(ctxRow)
	if prefix+suffix > 0 {
		c = ctxRowPart
	}
	m.row(m.rows.class(rangecoder.Hash(k.rel.ctx, c)), data, prefix, old, x)
	m.keepVersion(k, uint32(x.offset), old, data, prefix, suffix)
}

// updateFront codes what is in front of the data of an UPDATE's tuple: the lengths that it shares with the old one, its header and
// its null bitmap. It returns the lengths, and where the data begins.
func (m *model) updateFront(ctx uint32, b, last []byte, flags byte) (prefix, suffix, n int) {
	lengths := 0
	if flags&prefixFromOld != 0 {
		lengths += 2
	}
	if flags&suffixFromOld != 0 {
		lengths += 2
	}
	lengths = min(lengths, len(b)&^1)
	n = headEnd(last, lengths)
	usual := n <= len(b) && n <= len(last)
	if usual = m.Flag(ctx+ctxHeapUsual, 0, usual && string(b[:n]) == string(last[:n])) && usual; usual {
		if m.decoding {
			copy(b[:n], last)
		}
	} else {
		for at := 0; at < lengths; at += 2 {
			m.put16(b[at:], m.u16(ctx+ctxHeapPrefix+uint32(at)<<8, []uint32{at16(last, at)}, at16(b, at)))
		}
		m.mark(costLength)
		n = lengths + m.tupleHead(ctx, b[lengths:], last[min(lengths, len(last)):])
	}
	at := 0
	if flags&prefixFromOld != 0 && lengths > 0 {
		prefix, at = int(at16(b, 0)), 2
	}
	if flags&suffixFromOld != 0 && lengths > at {
		suffix = int(at16(b, at))
	}
	return prefix, suffix, n
}

// headEnd returns where a tuple header at at and the null bitmap behind it end.
func headEnd(b []byte, at int) int {
	return at + tupleHeader + max(int(at8(b, at+4))-hoffBase, 0)
}

// keepVersion remembers a tuple that is new between the prefix and the suffix of the old version.
func (m *model) keepVersion(k *block, item uint32, old version, data []byte, prefix, suffix int) {
	n := prefix + len(data) + suffix
	if n > blockBytes {
		return
	}
	low, high := prefix, prefix+len(data)
	if old.low <= prefix && old.high >= prefix {
		low = old.low
	}
	if end := len(old.data) - suffix; end >= 0 && old.low <= end && old.high >= end {
		high += old.high - end
	}
	t := m.store.putTuple(k.rel, k.number, item, n, low, min(high, n))
	clear(t)
	copy(t[:prefix], old.data)
	copy(t[prefix:], data)
	if end := len(old.data) - suffix; end >= 0 {
		copy(t[prefix+len(data):], old.data[end:])
	}
}
