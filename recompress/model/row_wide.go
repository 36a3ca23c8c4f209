package model

import "math/bits"

// Pairs of words that make one number of eight bytes, a double or a timestamp, are coded as one where that has been shorter.

const (
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

// wide codes the words w and next as one number, against the row before.
func (m *model) wide(w, next *word, b []byte) (uint32, uint32) {
	before := uint64(next.previous)<<32 | uint64(w.previous)
	v := uint64(0)
	if !m.decoding {
		v = le.Uint64(b)
	}
	z := &w.slot.zeros
	d := v - before
	shift := z.shift
	if shift > 0 && !m.flag(w.ctx+ctxWordWide, 1, d&(1<<shift-1) == 0) {
		shift = 0
	}
	q := int64(d) >> shift
	u := m.Near(m.table, w.ctx+ctxWordWide<<1+uint32(z.usual)<<8, int(z.usual), uint64(q<<1)^uint64(q>>63))
	if length := bits.Len64(u); length > int(z.usual)+7 || length+7 < int(z.usual) {
		z.usual = uint8(length)
	}
	d = (u>>1 ^ -(u & 1)) << shift
	z.note(d)
	v = before + d
	return uint32(v), uint32(v >> 32)
}

// learnWide notes how long the pair in b is as one number and as two.
func (s *wordSet) learnWide(w, next *word, b []byte) {
	low, high := le.Uint32(b), le.Uint32(b[4:])
	d := uint64(high)<<32 | uint64(low)
	d -= uint64(next.previous)<<32 | uint64(w.previous)
	one := max(bits.Len64(d<<1^uint64(int64(d)>>63))-int(w.slot.zeros.shift), 0)
	two := w.estimate(low) + next.estimate(high)
	gain := &w.slot.gain
	*gain += (int16(two-one)*8 - *gain) / 8
	s.wide &^= 1 << w.i
	if *gain > wideMargin {
		s.wide |= 1 << w.i
	}
}

// estimate returns about how many bits a word takes on its own.
func (w *word) estimate(v uint32) int {
	if v == w.expected {
		return 0
	}
	return residualBits(v-w.previous) + 1
}
