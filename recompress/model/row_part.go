package model

import (
	"math/bits"

	"walproxy/recompress/rangecoder"
)

// rowPart is a part of a row while it is coded.
type rowPart struct {
	class       *rowClass
	set         *wordSet
	xact        *xact
	start, end  int // bytes of the row
	first, last int // words
	all         uint64
	hasOld      uint64
	old         version
	expected    []byte // the part as it is expected to be, from byte 0 of the row
}

// rowPart codes b, which begins at byte start of a part of a row and ends in it.
func (m *model) rowPart(c *rowClass, b []byte, start int, old version, x *xact) {
	t := &m.rows
	p := &t.part
	m.prepare(p, c, start, start+len(b), old, x)
	s := p.set
	wides := s.wide & p.all & (p.all >> 1) &^ (p.hasOld | p.hasOld>>1)
	if wides != 0 {
		if wides = p.wholePairs(wides); wides|wides<<1 == p.all && x.nChains == 0 {
			c.rows++
			m.wideRow(p, b, wides)
			return
		}
	}
	var hits uint64
	if !m.decoding {
		hits = p.hits(b) &^ (wides | wides<<1)
	}
	hits = m.mask(p, hits)
	c.rows++
	if m.decoding {
		copy(b, p.expected[start:])
	}
	p.settle(hits)
	if misses := p.all &^ hits; misses != 0 {
		m.misses(p, b, misses, wides)
		copy(c.row[start:], b)
	} else {
		t.text = cursor{}
		if s.odd|p.hasOld != 0 {
			copy(c.row[start:], b)
		}
	}
	if x.nChains > 0 && p.hasOld != p.all {
		t.accompany(c, x)
	}
}

// prepare fills p with what is expected of the part of a row from byte start to end.
func (m *model) prepare(p *rowPart, c *rowClass, start, end int, old version, x *xact) {
	p.class, p.xact, p.start, p.end, p.old = c, x, start, end, old
	p.first, p.last = start/4, (end-1)/4
	p.all = span(p.first, p.last)
	p.hasOld = 0
	kind := 0
	if old.high > old.low {
		low, high := p.first, p.last
		if old.low > start {
			low = (old.low + 3) / 4
		}
		if old.high < end {
			high = old.high/4 - 1
		}
		if low <= high {
			p.hasOld, kind = span(low, high), 1
		}
	}
	t := &m.rows
	p.set = t.set(c, kind)
	odd := p.set.odd & p.all
	if odd == 0 && p.hasOld == 0 {
		p.expected = c.row[:]
		return
	}
	p.expected = t.expected[:]
	copy(p.expected[4*p.first:4*p.last+4], c.row[4*p.first:])
	if p.hasOld != 0 {
		low, end := 4*bits.TrailingZeros64(p.hasOld), 4*bits.Len64(p.hasOld)
		n := copy(p.expected[low:end], old.data[min(low, len(old.data)):])
		clear(p.expected[low+n : end])
	}
	alone := x.count|x.nChains == 0
	for ; odd != 0; odd &= odd - 1 {
		i := bits.TrailingZeros64(odd)
		slot := &p.set.slots[i]
		if slot.choice == guessStep {
			le.PutUint32(p.expected[4*i:], le.Uint32(c.row[4*i:])+slot.step)
			continue
		}
		if alone && slot.choice >= guessValue && p.hasOld>>i&1 == 0 {
			continue // the row before, that is
		}
		le.PutUint32(p.expected[4*i:], t.candidate(p, i, int(slot.choice)))
	}
}

// span returns the words from low to high.
func span(low, high int) uint64 { return ^uint64(0) >> (63 - high) >> low << low }

// wholePairs returns those of the pairs that begin at an even word and have all their bytes.
func (p *rowPart) wholePairs(pairs uint64) uint64 {
	pairs &= 0x5555555555555555
	if p.start&3 != 0 {
		pairs &^= 1 << p.first
	}
	if p.end&3 != 0 {
		pairs &^= 1 << p.last >> 1
	}
	return pairs
}

// hits returns the words of b that are as expected.
func (p *rowPart) hits(b []byte) uint64 {
	e := p.expected[p.start:p.end]
	e = e[:len(b)]
	i, at := p.first, 0
	var misses uint64
	if n := min(-p.start&3, len(b)); n > 0 {
		if string(e[:n]) != string(b[:n]) {
			misses = 1 << i
		}
		i, at = i+1, n
	}
	for ; at+8 <= len(b); at += 8 {
		if d := le.Uint64(e[at:]) ^ le.Uint64(b[at:]); d != 0 {
			if uint32(d) != 0 {
				misses |= 1 << i
			}
			if d>>32 != 0 {
				misses |= 2 << i
			}
		}
		i += 2
	}
	if at+4 <= len(b) {
		if le.Uint32(e[at:]) != le.Uint32(b[at:]) {
			misses |= 1 << i
		}
		i, at = i+1, at+4
	}
	if at < len(b) && string(e[at:]) != string(b[at:]) {
		misses |= 1 << i
	}
	return p.all &^ misses
}

// settle learns from the words that were as expected.
func (p *rowPart) settle(hits uint64) {
	s := p.set
	for set := hits & s.moved &^ s.odd &^ p.hasOld; set != 0; set &= set - 1 {
		s.slots[bits.TrailingZeros64(set)].step = 0
	}
	s.moved &^= hits &^ s.odd &^ p.hasOld
	for set := hits & s.odd; set != 0; set &= set - 1 {
		i := bits.TrailingZeros64(set)
		if s.slots[i].choice == guessStep {
			continue
		}
		if step := le.Uint32(p.expected[4*i:]) - le.Uint32(p.class.row[4*i:]); step != 0 || s.moved>>i&1 != 0 {
			s.step(i, step)
		}
	}
}

// step notes by how much a word changed.
func (s *wordSet) step(i int, step uint32) {
	s.slots[i].step = step
	s.moved |= 1 << i
}

// accompany remembers the last row of a class with the rows that its transaction updated.
func (t *rows) accompany(c *rowClass, x *xact) {
	for _, row := range x.chains[:x.nChains] {
		e, key := t.companion(c, row)
		e.key = key
		copy(e.row[:], c.row[:])
	}
}

// mask codes which words of the part are as expected: as in the last row, or word by word.
func (m *model) mask(p *rowPart, hits uint64) uint64 {
	s := p.set
	last := s.hits[0] & p.all
	same := m.Flag(p.class.ctx+ctxMask, int(s.history&15), hits == last)
	s.history <<= 1
	if same {
		s.history |= 1
		hits = last
	} else {
		hits = m.otherMask(p, hits)
	}
	s.keepHits(p.all, hits)
	return hits
}

// keepHits notes which of all were as expected.
func (s *wordSet) keepHits(all, hits uint64) {
	h := &s.hits
	h[3] ^= (h[3] ^ h[2]) & all
	h[2] ^= (h[2] ^ h[1]) & all
	h[1] ^= (h[1] ^ h[0]) & all
	h[0] = h[0]&^all | hits
}

// otherMask codes which words are as expected: for eight words at a time, whether they are as in the last row, and each.
func (m *model) otherMask(p *rowPart, hits uint64) uint64 {
	s := p.set
	var out uint64
	for at := p.first &^ 7; at <= p.last; at += 8 {
		all := p.all & (255 << at)
		last := s.hits[0] & all
		if p.last-p.first >= 8 && m.Flag(p.class.ctx+ctxMaskPart, at/8, hits&all == last) {
			out |= last
			continue
		}
		for ; all != 0; all &= all - 1 {
			i := bits.TrailingZeros64(all)
			place := s.hits[0]>>i&1 | s.hits[1]>>i&1<<1 | s.hits[2]>>i&1<<2 | s.hits[3]>>i&1<<3
			if m.Flag(rangecoder.Hash(p.class.ctx+uint32(i), ctxWord), int(place), hits>>i&1 != 0) {
				out |= 1 << i
			}
		}
	}
	return out
}
