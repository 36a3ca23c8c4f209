package zstd3

import "encoding/binary"

// How the literals are told.
const (
	literalsRaw    = 0
	literalsSingle = 1
	literalsHuff   = 2

	minHuffLiterals = 64  // fewer are stored raw
	minFourStreams  = 256 // fewer are one stream
)

// writeLiterals writes the literals section to e.body[at:] and returns where it ends.
func (e *Encoder) writeLiterals(at int) int {
	n := len(e.literals)
	if n < minHuffLiterals {
		return e.writePlainLiterals(at, literalsRaw, e.literals)
	}
	header := 3
	if n >= 1<<10 {
		header++
	}
	if n >= 16<<10 {
		header++
	}
	size := e.huff.write(e.body[at+header:], e.literals, n < minFourStreams, e.profile)
	if size == 0 || size >= n-minGain(n) {
		return e.writePlainLiterals(at, literalsRaw, e.literals)
	}
	if size == 1 {
		return e.writePlainLiterals(at, literalsSingle, e.literals[:1])
	}
	format := header - 2
	if header == 3 {
		format = 1
		if n < minFourStreams {
			format = 0
		}
	}
	width := [4]uint{10, 10, 14, 18}[format]
	h := uint64(literalsHuff | format<<2 | n<<4)
	h |= uint64(size) << (4 + width)
	for i := range header {
		e.body[at+i] = byte(h >> (8 * i))
	}
	return at + header + size
}

// writePlainLiterals writes the literals as they are, or the one byte that all of them are.
func (e *Encoder) writePlainLiterals(at, kind int, content []byte) int {
	n := len(e.literals)
	switch {
	case n < 32:
		e.body[at] = byte(kind | n<<3)
		at++
	case n < 4096:
		binary.LittleEndian.PutUint16(e.body[at:], uint16(kind|1<<2|n<<4))
		at += 2
	default:
		h := kind | 3<<2 | n<<4
		e.body[at], e.body[at+1], e.body[at+2] = byte(h), byte(h>>8), byte(h>>16)
		at += 3
	}
	return at + copy(e.body[at:], content)
}
