package rangecoder

import "math/bits"

// Group is the sixteen probabilities of one context: a tree for a symbol of up to four bits, or that many separate bits.
// It is one cache line.
type Group [16]Prob

// Nibble codes a value of four bits.
func (c *Coder) Nibble(g *Group, v int) int { return c.Symbol(g, 4, v) }

// Symbol codes a value of n bits, at most 4.
func (c *Coder) Symbol(g *Group, n, v int) int {
	if c.decoding {
		return c.decodeSymbol(g, n)
	}
	at, top := 1, 1<<n
	low, width := c.low, c.width
	for n--; n >= 0; n-- {
		bit := v >> (n & 3) & 1
		p := uint32(g[at&15]) ^ even
		bound := width >> 16 * uint64(p>>16|1)
		zero := uint64(bit) - 1
		sum, carry := bits.Add64(low, bound&zero, 0)
		low, width = sum, (width-bound)&zero|bound&^zero
		g[at&15] = learn(p, bit)
		if carry != 0 || width < minRange {
			low, width = c.renew(low, width, carry)
		}
		at = at<<1 | bit
	}
	c.low, c.width = low, width
	return at - top
}

// renew brings an encoder's interval back into range after a carry or below minRange.
func (c *Coder) renew(low, width, carry uint64) (uint64, uint64) {
	if carry != 0 {
		c.carry()
	}
	c.low, c.width = low, width
	if width < minRange {
		c.shift()
	}
	return c.low, c.width
}

func (c *Coder) decodeSymbol(g *Group, n int) int {
	at, top := 1, 1<<n
	code, width := c.code, c.width
	for at < top {
		p := uint32(g[at&15]) ^ even
		bound := width >> 16 * uint64(p>>16|1)
		rest, borrow := bits.Sub64(code, bound, 0)
		zero := borrow - 1 // all ones if the bit is zero
		code = rest&zero | code&^zero
		width = (width-bound)&zero | bound&^zero
		g[at&15] = learn(p, int(borrow))
		if width < minRange {
			c.code, c.width = code, width
			c.shift()
			code, width = c.code, c.width
		}
		at = at<<1 | int(borrow)
	}
	c.code, c.width = code, width
	return at - top
}

// Table is a power of two of groups that contexts are hashed into. Two contexts that meet in a group cost ratio, nothing else.
type Table struct {
	groups []Group
	shift  uint
}

// NewTable allocates 1<<log groups, 64 bytes each.
func NewTable(log uint) *Table {
	return &Table{groups: make([]Group, 1<<log), shift: 32 - log}
}

// Reset forgets everything.
func (t *Table) Reset() { clear(t.groups) }

// Group returns the group of a context. Contexts are hashed again here, so they may differ in a single bit.
func (t *Table) Group(context uint32) *Group {
	return &t.groups[context*0x9E3779B1>>t.shift]
}

// Hash mixes two numbers into a context.
func Hash(a, b uint32) uint32 {
	h := (a*0x9E3779B1 ^ b) * 0x85EBCA6B
	return h ^ h>>15
}

// Byte codes a byte in a context.
func (c *Coder) Byte(t *Table, context uint32, v byte) byte {
	high := c.Nibble(t.Group(context), int(v>>4))
	return byte(high<<4 | c.Nibble(t.Group(Hash(context, uint32(high)+1)), int(v&15)))
}

const (
	lengthEscape = 15 // lengths from here on take a second symbol, two of them to a value
	lengthLong   = lengthEscape + 30
	modelledBits = 2 // of a number's bits below its top one
)

// Uint codes an unsigned number: its length in bits with a model, its leading bits too, the rest at even odds. Small numbers
// and numbers of a stable magnitude are cheap.
func (c *Coder) Uint(t *Table, context uint32, v uint64) uint64 {
	length := bits.Len64(v)
	if n := c.Nibble(t.Group(context), min(length, lengthEscape)); n < lengthEscape {
		length = n
	} else {
		length = c.longLength(t, context, length)
	}
	return c.mantissa(t, context, length, v)
}

// mantissa codes a number whose length in bits is known.
func (c *Coder) mantissa(t *Table, context uint32, length int, v uint64) uint64 {
	if length <= 1 {
		return uint64(length)
	}
	g := t.Group(context + uint32(length+1)<<24)
	rest := length - 1
	top := min(rest, modelledBits)
	rest -= top
	out := uint64(1<<top | c.Symbol(g, top, int(v>>rest&(1<<top-1))))
	if rest == 0 {
		return out
	}
	return out<<rest | c.Direct(rest, v&(1<<rest-1))
}

// longLength codes a length from lengthEscape to 64.
func (c *Coder) longLength(t *Table, context uint32, length int) int {
	g := t.Group(context + 1<<24)
	half := c.Nibble(g, min(length-lengthEscape, 30)>>1)
	if half == 15 {
		return lengthLong + min(int(c.Direct(5, uint64(length-lengthLong)&31)), 64-lengthLong)
	}
	return lengthEscape + half<<1 + c.Bit(&g[0], (length-lengthEscape)&1)
}

// Int codes a signed number that is small in magnitude more often than not.
func (c *Coder) Int(t *Table, context uint32, v int64) int64 {
	z := c.Uint(t, context, uint64(v<<1)^uint64(v>>63))
	return int64(z>>1) ^ -int64(z&1)
}

const (
	nearSpan   = 7 // lengths on either side of the expected one that take one symbol
	nearEscape = 15
)

// Near codes an unsigned number whose length in bits is expected to be near usual, with fewer steps than Uint.
func (c *Coder) Near(t *Table, context uint32, usual int, v uint64) uint64 {
	length := bits.Len64(v)
	d := length - usual + nearSpan
	if d < 0 || d >= nearEscape {
		d = nearEscape
	}
	if d = c.Nibble(t.Group(context), d); d == nearEscape {
		length = min(int(c.Direct(7, uint64(length))), 64)
	} else {
		length = min(max(d+usual-nearSpan, 0), 64)
	}
	return c.mantissa(t, context, length, v)
}
