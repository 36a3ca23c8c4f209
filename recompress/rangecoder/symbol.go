package rangecoder

import "math/bits"

// group is the sixteen probabilities of one context: a tree for a symbol of up to four bits, or that many separate bits.
// It is one cache line.
type group [16]prob

// Nibble codes a value of four bits in a context.
func (c *Coder) Nibble(context uint32, v int) int { return c.Symbol(context, 4, v) }

// Symbol codes a value of n bits, at most 4, in a context.
func (c *Coder) Symbol(context uint32, n, v int) int {
	if c.mixer != nil {
		return c.mixedSymbol(context, n, v)
	}
	g := c.table.group(context)
	if c.decoding {
		return c.decodeSymbol(g, n)
	}
	top := uint(1) << (n & 7)
	at := uint(1)
	next := uint(v) << (8 - n&7) // the next bit is its eighth
	low, width := c.low, c.width
	for {
		carry := uint64(0)
		for at < top { // no call inside, which would cost registers
			bit := next >> 7 & 1
			p := &g[at&15]
			bound := p.share(width)
			mask := -uint64(bit)
			width -= bound
			if mask != 0 {
				width = bound
			}
			low, carry = bits.Add64(low, bound&^mask, 0)
			at = at<<1 | bit
			p.learn(mask)
			next <<= 1
			if carry != 0 || width < minRange {
				break
			}
		}
		c.low, c.width = low, width
		if carry != 0 {
			c.carry()
		}
		if width < minRange {
			c.shift()
			low, width = c.low, c.width
		}
		if at >= top {
			return int(at - top)
		}
	}
}

func (c *Coder) decodeSymbol(g *group, n int) int {
	top := uint(1) << (n & 7)
	at := uint(1)
	code, width := c.code, c.width
	for {
		for at < top {
			p := &g[at&15]
			bound := p.share(width)
			rest, borrow := bits.Sub64(code, bound, 0)
			mask := -borrow // all ones if the bit is one
			width -= bound
			if mask != 0 {
				width = bound
			}
			if mask == 0 {
				code = rest
			}
			at = at<<1 - uint(mask)
			p.learn(mask)
			if width < minRange {
				break
			}
		}
		c.code, c.width = code, width
		if width < minRange {
			c.shift()
			code, width = c.code, c.width
		}
		if at >= top {
			return int(at - top)
		}
	}
}

const tableLog = 14

// table is the groups that contexts are hashed into, 1 MiB, which a core keeps near. Two contexts that meet in a group cost ratio,
// nothing else. The zero table is ready.
type table [1 << tableLog]group

// group returns the group of a context. Contexts are hashed again here, so they may differ in a single bit.
func (t *table) group(context uint32) *group { return &t[indexOf(context)] }

// indexOf returns where in a table the group of a context is.
func indexOf(context uint32) uint32 { return context * 0x9E3779B1 >> (32 - tableLog) }

// Hash mixes two numbers into a context.
func Hash(a, b uint32) uint32 {
	h := (a*0x9E3779B1 ^ b) * 0x85EBCA6B
	return h ^ h>>15
}

// Byte codes a byte in a context.
func (c *Coder) Byte(context uint32, v byte) byte {
	high := c.Nibble(context, int(v>>4))
	return byte(high<<4 | c.Nibble(Hash(context, uint32(high)+1), int(v&15)))
}

const (
	lengthEscape = 15 // lengths from here on take a second symbol, two of them to a value
	lengthLong   = lengthEscape + 30
	modelledBits = 2 // of a number's bits below its top one
)

// Uint codes an unsigned number: its length in bits with a model, its leading bits too, the rest at even odds. Small numbers
// and numbers of a stable magnitude are cheap.
func (c *Coder) Uint(context uint32, v uint64) uint64 {
	length := bits.Len64(v)
	if n := c.Nibble(context, min(length, lengthEscape)); n < lengthEscape {
		length = n
	} else {
		length = c.longLength(context, length)
	}
	return c.mantissa(context, length, modelledBits, v)
}

// mantissa codes a number whose length in bits is known.
func (c *Coder) mantissa(context uint32, length, modelled int, v uint64) uint64 {
	if length <= 1 {
		return uint64(length)
	}
	rest := length - 1
	top := min(rest, modelled)
	rest -= top
	out := uint64(1<<top | c.Symbol(context+uint32(length+1)<<24, top, int(v>>rest&(1<<top-1))))
	if rest == 0 {
		return out
	}
	return out<<rest | c.Direct(rest, v&(1<<rest-1))
}

// longLength codes a length from lengthEscape to 64.
func (c *Coder) longLength(context uint32, length int) int {
	context += 1 << 24
	half := c.Nibble(context, min(length-lengthEscape, 30)>>1)
	if half == 15 {
		return lengthLong + min(int(c.Direct(5, uint64(length-lengthLong)&31)), 64-lengthLong)
	}
	return lengthEscape + half<<1 + c.Bit(context, 0, (length-lengthEscape)&1)
}

// Int codes a signed number that is small in magnitude more often than not.
func (c *Coder) Int(context uint32, v int64) int64 {
	z := c.Uint(context, uint64(v<<1)^uint64(v>>63))
	return int64(z>>1) ^ -int64(z&1)
}

const (
	nearSpan   = 7 // lengths on either side of the expected one that take one symbol
	nearEscape = 15
)

// Near codes an unsigned number whose length in bits is expected to be near usual, with fewer steps than Uint.
func (c *Coder) Near(context uint32, usual int, v uint64) uint64 {
	length := bits.Len64(v)
	d := length - usual + nearSpan
	if d < 0 || d >= nearEscape {
		d = nearEscape
	}
	if d = c.Nibble(context, d); d == nearEscape {
		length = min(int(c.Direct(7, uint64(length))), 64)
	} else {
		length = min(max(d+usual-nearSpan, 0), 64)
	}
	return c.mantissa(context, length, 1, v)
}
