package model

import (
	"math/bits"

	"walproxy/recompress/rangecoder"
)

// Pairs of words that make one number of eight bytes, a double or a timestamp, are coded as one where that has been shorter.

const (
	wideBytes  = 8
	wideMargin = 8  // bits, in 1/8, that coding two words as one must save
	zeroRun    = 32 // numbers in a row that must end in zero bits before these are left out
)

// zeros is how many zero bits the differences of a number end in: random() yields multiples of 2^-48, money whole cents.
// usual is how long the rest of a difference was when its length last left the usual ones.
type zeros struct{ shift, least, run, usual uint8 }

func (z *zeros) note(d uint64) {
	if d == 0 {
		return
	}
	n := uint8(bits.TrailingZeros64(d))
	if n < z.shift {
		z.shift, z.least, z.run = n, 64, 0
		return
	}
	if z.run == 0 {
		z.least = 64
	}
	z.least = min(z.least, n)
	if z.run++; z.run == zeroRun {
		z.shift, z.run = z.least, 0
	}
}

// widePair codes the words i and i+1, which begin b, as one number.
func (m *model) widePair(p *rowPart, i int, b []byte) {
	base := 4 * i
	before, expected := le.Uint64(p.class.row[base:]), le.Uint64(p.expected[base:])
	m.wideNumber(p.set, i, rangecoder.Hash(p.class.ctx, uint32(base)<<8), before, expected, b, p.xact)
}

// wideNumber codes the number at the start of b, the words i and i+1 of a row, and learns from it.
func (m *model) wideNumber(s *wordSet, i int, ctx uint32, before, expected uint64, b []byte, x *xact) uint64 {
	v := uint64(0)
	if !m.decoding {
		v = le.Uint64(b)
	}
	v = m.wide(&s.slots[i].zeros, ctx, before, v)
	if m.decoding {
		le.PutUint64(b, v)
	}
	s.step(i, uint32(v)-uint32(before))
	s.step(i+1, uint32(v>>32)-uint32(before>>32))
	s.learnWide(i, before, expected, v)
	if uint32(before) != uint32(v) {
		x.note(uint32(v))
	}
	return v
}

// wideKey codes a row of eight bytes that have lately been one number, most keys of an index: what rowPart would do, without
// preparing for anything else. It reports false if they have not.
func (m *model) wideKey(c *rowClass, b []byte, x *xact) bool {
	if c.sets[0] == 0 || x.nChains > 0 {
		return false
	}
	s := &m.rows.sets[c.sets[0]-1]
	if s.wide&1 == 0 || s.odd&3 != 0 {
		return false
	}
	c.rows++
	before := le.Uint64(c.row[:])
	v := m.wideNumber(s, 0, rangecoder.Hash(c.ctx, 0), before, before, b, x)
	le.PutUint64(c.row[:], v)
	s.keepHits(3, 0)
	m.rows.text = cursor{}
	m.mark(costValue)
	return true
}

// wideRow codes a part of which every word is one of a pair in wides: none of them is as expected, so nothing says which are.
func (m *model) wideRow(p *rowPart, b []byte, wides uint64) {
	for ; wides != 0; wides &= wides - 1 {
		i := bits.TrailingZeros64(wides)
		m.widePair(p, i, b[4*i-p.start:])
	}
	copy(p.class.row[p.start:], b)
	p.set.keepHits(p.all, 0)
	m.rows.text = cursor{}
}

// wide codes the number v against before, the one in the row before.
func (m *model) wide(z *zeros, ctx uint32, before, v uint64) uint64 {
	d := v - before
	shift := z.shift
	if shift > 0 && !m.Flag(ctx+ctxWordWide, 1, d&(1<<shift-1) == 0) {
		shift = 0
	}
	q := int64(d) >> shift
	u := m.Near(ctx+ctxWordWide<<1+uint32(z.usual)<<8, int(z.usual), uint64(q<<1)^uint64(q>>63))
	if length := bits.Len64(u); length > int(z.usual)+7 || length+7 < int(z.usual) {
		z.usual = uint8(length)
	}
	d = (u>>1 ^ -(u & 1)) << shift
	z.note(d)
	return before + d
}

// learnWide notes how long the pair of the words i and i+1 is as one number, v, and as two.
func (s *wordSet) learnWide(i int, before, expected, v uint64) {
	d := v - before
	slot := &s.slots[i]
	one := max(bits.Len64(d<<1^uint64(int64(d)>>63))-int(slot.zeros.shift), 0)
	two := estimate(uint32(before), uint32(expected), uint32(v)) + estimate(uint32(before>>32), uint32(expected>>32), uint32(v>>32))
	slot.gain += (int16(two-one)*8 - slot.gain) / 8
	if s.wide &^= 1 << i; slot.gain > wideMargin {
		s.wide |= 1 << i
	}
}

// estimate returns about how many bits a word takes on its own.
func estimate(previous, expected, v uint32) int {
	if v == expected {
		return 0
	}
	return residualBits(v-previous) + 1
}
