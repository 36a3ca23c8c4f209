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
type Pages struct {
	group [PageBytes]byte      // eight columns
	mixed [MaxWidth / 8]column // of the page that is being restored
}

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
	dst = p.appendColumns(dst, b[upper:special], width)
	return append(dst, b[special:PageBytes]...), width
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
	dst, taken := p.appendRows(dst, b[n:], special-upper, width)
	n += taken
	if len(dst)-from < special || len(b)-n < PageBytes-special {
		return dst, 0
	}
	return append(dst, b[n:n+PageBytes-special]...), n + PageBytes - special
}

// constant reports whether all bytes of b, not empty, are the same.
func constant(b []byte) bool {
	last := len(b) - 1
	return b[0] == b[last] && bytes.Equal(b[1:], b[:last])
}
