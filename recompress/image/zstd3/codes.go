package zstd3

import (
	"math/bits"

	"walproxy/recompress/image/internal/match"
)

// The three fields of a sequence, in the order the format describes their tables.
const (
	fieldLiterals = iota
	fieldOffset
	fieldMatch
)

const (
	formatMinMatch = 3  // a match length is stored as what exceeds it
	offsetBias     = 3  // a new offset is stored with it added; 1 to 3 mean recent offsets
	maxSymbols     = 53 // of the largest of the three alphabets
)

// sequence is one command of the block: how many literals, then a match. Values as the format stores them.
type sequence struct {
	literals uint16
	match    uint16 // length less formatMinMatch
	offset   uint16 // biased; 1 is the latest
}

// store records a sequence: the literals src[anchor:pos], then a match; offset 0 is the latest one again.
func (e *Encoder) store(src []byte, anchor, pos, offset, length int) {
	e.storeLiterals(src, anchor, pos)
	if offset == 0 {
		offset = 1
	} else {
		offset += offsetBias
	}
	e.seqs = append(e.seqs, sequence{uint16(pos - anchor), uint16(length - formatMinMatch), uint16(offset)})
}

// storeLiterals adds src[anchor:pos] to the block's literals.
func (e *Encoder) storeLiterals(src []byte, anchor, pos int) {
	n := len(e.literals)
	match.Literals(e.litArray[:], n, src, anchor, pos)
	e.literals = e.litArray[:n+pos-anchor]
}

// The bits that follow each code of a literal or match length (RFC 8878, 3.1.1.3.2.1.1). An offset's code is its own number of bits.
var (
	literalBits = [36]uint8{16: 1, 1, 1, 1, 2, 2, 3, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
	matchBits   = [53]uint8{32: 1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}

	literalCodes = codesOf(literalBits[:])
	matchCodes   = codesOf(matchBits[:])
)

// smallValues is how many values have their code looked up; a larger one's code follows from its bit length.
const smallValues = 128

// codesOf inverts the table of extra bits: every code covers the values that follow its predecessor's.
func codesOf(extra []uint8) (codes [smallValues]uint8) {
	value := 0
	for code := range extra {
		for range 1 << extra[code] {
			if value == smallValues {
				return codes
			}
			codes[value] = uint8(code)
			value++
		}
	}
	return codes
}

// literalCode returns the code of a literal length. From 64 on there is one code per power of two.
func literalCode(n uint16) uint8 {
	if n < smallValues {
		return literalCodes[n]
	}
	return uint8(bits.Len16(n)-1) + 19
}

// matchCode returns the code of a stored match length. From 128 on there is one code per power of two.
func matchCode(n uint16) uint8 {
	if n < smallValues {
		return matchCodes[n]
	}
	return uint8(bits.Len16(n)-1) + 36
}

func offsetCode(n uint16) uint8 { return uint8(bits.Len16(n) - 1) }
