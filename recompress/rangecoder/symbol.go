package rangecoder

import "math/bits"

// Group is the sixteen probabilities of one context: a tree for a symbol of up to four bits, or that many separate bits.
// It is one cache line.
type Group [16]Prob

// Nibble codes a value of four bits.
func (c *Coder) Nibble(g *Group, v int) int {
	at := c.Bit(&g[1], v>>3&1) | 2
	at = at<<1 | c.Bit(&g[at], v>>2&1)
	at = at<<1 | c.Bit(&g[at&15], v>>1&1)
	at = at<<1 | c.Bit(&g[at&15], v&1)
	return at & 15
}

// Symbol codes a value of n bits, at most 4.
func (c *Coder) Symbol(g *Group, n, v int) int {
	at := 1
	for i := n - 1; i >= 0; i-- {
		at = at<<1 | c.Bit(&g[at&15], v>>i&1)
	}
	return at & (1<<n - 1)
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
	lengthEscape = 15 // lengths from here on take a second symbol
	modelledBits = 3  // of a number's bits below its top one
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
	if length <= 1 {
		return uint64(length)
	}
	g := t.Group(Hash(context, uint32(length)+0x200))
	rest := length - 1
	out, at := uint64(1), 1
	for range min(rest, modelledBits) {
		rest--
		bit := c.Bit(&g[at], int(v>>rest&1))
		out, at = out<<1|uint64(bit), at<<1|bit
	}
	if rest == 0 {
		return out
	}
	return out<<rest | c.Direct(rest, v&(1<<rest-1))
}

// longLength codes a length from lengthEscape to 64.
func (c *Coder) longLength(t *Table, context uint32, length int) int {
	length -= lengthEscape
	high := c.Symbol(t.Group(context+0x101), 2, length>>4&3)
	low := c.Nibble(t.Group(context+0x102+uint32(high)), length&15)
	return min(lengthEscape+high<<4+low, 64)
}

// Int codes a signed number that is small in magnitude more often than not.
func (c *Coder) Int(t *Table, context uint32, v int64) int64 {
	z := c.Uint(t, context, uint64(v<<1)^uint64(v>>63))
	return int64(z>>1) ^ -int64(z&1)
}
