package datapage

import "bytes"

// PageBytes is the size of the pages that Append knows: that of a server built with defaults.
const PageBytes = 8192

// sizeAndVersion is pd_pagesize_version of such a page, layout version 4: all of 13-18.
var sizeAndVersion = []byte{4, PageBytes >> 8}

// Is reports whether b begins with what looks like a page: size, version and bounds are possible.
func Is(b []byte) bool {
	if len(b) < PageBytes || b[versionOffset] != sizeAndVersion[0] || b[versionOffset+1] != sizeAndVersion[1] {
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

// Append appends the page at the start of b to dst, laid out in columns, PageBytes bytes, and returns their width. Is(b) holds.
func Append(dst, b []byte) (out []byte, width int) {
	b = b[:PageBytes]
	lower, upper, special := bounds(b)
	width = Width(b[HeaderBytes:lower])
	dst = append(dst, b[:HeaderBytes]...)
	dst = AppendDistances(dst, b[HeaderBytes:lower])
	dst = append(dst, b[lower:upper]...)
	dst = AppendColumns(dst, b[upper:special], width)
	return append(dst, b[special:]...), width
}

// Restore undoes Append. It reports false, and nothing of dst counts, if b, at least PageBytes long, begins with nothing that Append makes.
func Restore(dst, b []byte, width int) ([]byte, bool) {
	if !Is(b) {
		return dst, false
	}
	b = b[:PageBytes]
	lower, upper, special := bounds(b)
	dst = append(dst, b[:HeaderBytes]...)
	dst = AppendPointers(dst, b[HeaderBytes:lower])
	dst = append(dst, b[lower:upper]...)
	dst = AppendRows(dst, b[upper:special], width)
	return append(dst, b[special:]...), true
}
