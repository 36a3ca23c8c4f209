package datapage

import (
	"bytes"
	"slices"
)

// PageBytes is the size of the pages that Append knows: that of a server built with defaults.
const PageBytes = 8192

// sizeAndVersion is pd_pagesize_version of such a page, layout version 4: all of 13-18.
var sizeAndVersion = []byte{4, PageBytes >> 8}

// Is reports whether b begins with what looks like a page: size, version and bounds are possible.
func Is(b []byte) bool {
	return len(b) >= PageBytes && possible(b)
}

// possible reports whether a page may begin with the header at the start of b.
func possible(b []byte) bool {
	if b[versionOffset] != sizeAndVersion[0] || b[versionOffset+1] != sizeAndVersion[1] {
		return false
	}
	lower, upper, special := bounds(b)
	return lower >= HeaderBytes && (lower-HeaderBytes)%pointerBytes == 0 && lower <= upper && upper <= special && special <= PageBytes
}

func bounds(b []byte) (lower, upper, special int) {
	return int(le.Uint16(b[LowerOffset:])), int(le.Uint16(b[LowerOffset+2:])), int(le.Uint16(b[SpecialOffset:]))
}

// Find returns where in b the first page may begin, the end of b if nowhere.
func Find(b []byte) int {
	for at := 0; at+PageBytes <= len(b); at++ {
		next := bytes.Index(b[at+versionOffset:], sizeAndVersion)
		if next < 0 {
			break
		}
		if at += next; Is(b[at:]) {
			return at
		}
	}
	return len(b)
}

// MaxOverhead is how many bytes more than a page its layout takes at most.
const MaxOverhead = 1 + MaxWidth/8

// Pages lays pages out one after the other. The zero value is ready to use. Not safe for concurrent use.
type Pages struct{ columns [PageBytes]byte }

// What is said of the bytes between pd_lower and pd_upper.
const (
	holeEmpty = iota // all zero; not spelled
	holeAsIs
)

// Append appends the page at the start of b to dst, laid out in columns, and returns their width. Is(b) holds.
func (p *Pages) Append(dst, b []byte) (out []byte, width int) {
	lower, upper, special := bounds(b)
	width = Width(b[HeaderBytes:lower])
	dst = append(dst, b[:HeaderBytes]...)
	dst = AppendDistances(dst, b[HeaderBytes:lower])
	if hole := b[lower:upper]; len(hole) == 0 || hole[0] == 0 && constant(hole) {
		dst = append(dst, holeEmpty)
	} else {
		dst = append(append(dst, holeAsIs), hole...)
	}
	dst = p.appendTuples(dst, b[upper:special], width)
	return append(dst, b[special:PageBytes]...), width
}

// appendTuples appends rows of width bytes: a bit for each column, set if all its bytes are the same, then the columns, those as one
// byte, then what does not fill a row.
func (p *Pages) appendTuples(dst, tuples []byte, width int) []byte {
	rows := rowsOf(tuples, width)
	if rows == 0 {
		return append(dst, tuples...)
	}
	columns := AppendColumns(p.columns[:0], tuples, width)
	at := len(dst)
	dst = append(dst, zeros[:width/8]...)
	for c := range width {
		column := columns[c*rows:][:rows]
		if constant(column) {
			dst[at+c/8] |= 1 << (c % 8)
			column = column[:1]
		}
		dst = append(dst, column...)
	}
	return append(dst, columns[rows*width:]...)
}

var zeros [MaxWidth / 8]byte

// rowsOf returns how many rows of width bytes lie in columns: none, where a single one would not gain.
func rowsOf(tuples []byte, width int) int {
	if width == 0 || len(tuples) < 2*width {
		return 0
	}
	return len(tuples) / width
}

// constant reports whether all bytes of b, not empty, are the same.
func constant(b []byte) bool {
	last := len(b) - 1
	return b[0] == b[last] && bytes.Equal(b[1:], b[:last])
}

// Restore undoes Append for a page with columns of width bytes, a multiple of 8 up to MaxWidth. It returns how many bytes of b it took; 0,
// and nothing of dst counts, if b begins with nothing that Append makes.
func (p *Pages) Restore(dst, b []byte, width int) (out []byte, n int) {
	if len(b) < HeaderBytes || !possible(b) {
		return dst, 0
	}
	lower, upper, special := bounds(b)
	if len(b) <= lower || b[lower] > holeAsIs {
		return dst, 0
	}
	from := len(dst)
	dst = append(dst, b[:HeaderBytes]...)
	dst = AppendPointers(dst, b[HeaderBytes:lower])
	n = lower + 1
	if hole := upper - lower; b[lower] == holeEmpty {
		dst = slices.Grow(dst, hole)[:len(dst)+hole]
		clear(dst[len(dst)-hole:])
	} else {
		if len(b)-n < hole {
			return dst, 0
		}
		dst = append(dst, b[n:n+hole]...)
		n += hole
	}
	tuples, taken := p.tuples(b[n:], special-upper, width)
	n += taken
	if len(tuples) < special-upper || len(b)-n < PageBytes-special {
		return dst, 0
	}
	dst = AppendRows(dst, tuples, width)
	dst = append(dst, b[n:n+PageBytes-special]...)
	return dst[:from+PageBytes], n + PageBytes - special
}

// tuples returns the size bytes of columns that appendTuples made the start of b of, and how many bytes that are; fewer if b is too short.
func (p *Pages) tuples(b []byte, size, width int) (columns []byte, n int) {
	rows := rowsOf(p.columns[:size], width)
	if rows == 0 {
		return b[:min(size, len(b))], min(size, len(b))
	}
	if n = width / 8; len(b) < n {
		return nil, 0
	}
	for c := range width {
		column := p.columns[c*rows:][:rows]
		same := b[c/8]>>(c%8)&1 != 0
		switch left := len(b) - n; {
		case same && left > 0:
			fill(column, b[n])
			n++
		case !same && left >= rows:
			n += copy(column, b[n:])
		default:
			return nil, 0
		}
	}
	rest := p.columns[rows*width : size]
	if len(b)-n < len(rest) {
		return nil, 0
	}
	return p.columns[:size], n + copy(rest, b[n:])
}

// fill sets all bytes of b to v.
func fill(b []byte, v byte) {
	word := uint64(v) * 0x0101010101010101
	for len(b) >= 8 {
		le.PutUint64(b, word)
		b = b[8:]
	}
	for i := range b {
		b[i] = v
	}
}
