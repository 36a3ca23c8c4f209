package datapage

import (
	"math/bits"
	"slices"
)

const (
	group    = 8    // columns, one word of a row
	allSame  = 0xff // of a group: each column holds one byte only
	turnFrom = 5    // columns of a group that differ: so many are turned faster in tiles than one by one
)

// column is the place of the first column of a group.
type column struct{ inRow, inForm int }

// rowsOf returns how many rows of width bytes lie in size bytes of tuples: none, where a single one would not gain.
func rowsOf(size, width int) int {
	if width == 0 || size < 2*width {
		return 0
	}
	return size / width
}

// appendColumns appends rows of width bytes: a bit for each column, set if all its bytes are the same, then the columns, those as one
// byte, then what does not fill a row.
func (p *Pages) appendColumns(dst, tuples []byte, width int) []byte {
	rows := rowsOf(len(tuples), width)
	if rows == 0 {
		return append(dst, tuples...)
	}
	at := len(dst)
	dst = append(dst, zeros[:width/group]...)
	sameColumns(dst[at:], tuples, rows, width)
	for c := 0; c < width; c += group {
		if same := dst[at+c/group]; same == allSame {
			dst = append(dst, tuples[c:c+group]...)
		} else {
			dst = p.appendGroup(dst, tuples[c:], rows, width, same)
		}
	}
	return append(dst, tuples[rows*width:]...)
}

var zeros [MaxWidth / group]byte

// sameColumns sets a bit in same for each column that holds one byte only.
func sameColumns(same, tuples []byte, rows, width int) {
	c := 0
	for ; c+4*group <= width; c += 4 * group { // a cache line at a time, nearly
		first := tuples[c:][:4*group]
		f0, f1, f2, f3 := le.Uint64(first), le.Uint64(first[8:]), le.Uint64(first[16:]), le.Uint64(first[24:])
		var d0, d1, d2, d3 uint64
		for r, at := 1, c+width; r < rows; r, at = r+1, at+width {
			row := tuples[at:][:4*group]
			d0 |= le.Uint64(row) ^ f0
			d1 |= le.Uint64(row[8:]) ^ f1
			d2 |= le.Uint64(row[16:]) ^ f2
			d3 |= le.Uint64(row[24:]) ^ f3
		}
		same := same[c/group:][:4]
		same[0], same[1], same[2], same[3] = zeroBytes(d0), zeroBytes(d1), zeroBytes(d2), zeroBytes(d3)
	}
	for ; c < width; c += group {
		first, differ := le.Uint64(tuples[c:]), uint64(0)
		for r := 1; r < rows; r++ {
			differ |= le.Uint64(tuples[c+r*width:]) ^ first
		}
		same[c/group] = zeroBytes(differ)
	}
}

// zeroBytes returns a bit for each byte of v that is 0.
func zeroBytes(v uint64) (zero byte) {
	if v == 0 {
		return allSame
	}
	for c := range group {
		if byte(v>>(8*c)) == 0 {
			zero |= 1 << c
		}
	}
	return zero
}

// appendGroup appends the first eight columns of b.
func (p *Pages) appendGroup(dst, b []byte, rows, width int, same byte) []byte {
	turned := p.turns(rows, same)
	if turned != nil {
		for r := 0; r < rows; r += tile {
			r := min(r, rows-tile)
			turnTile(turned[r:], b[r*width:], rows, width)
		}
	}
	for c := range group {
		if same>>c&1 != 0 {
			dst = append(dst, b[c])
			continue
		}
		if turned != nil {
			dst = append(dst, turned[c*rows:][:rows]...)
			continue
		}
		dst = slices.Grow(dst, rows)
		one := dst[len(dst):][:rows]
		for r := range one {
			one[r] = b[c+r*width]
		}
		dst = dst[:len(dst)+rows]
	}
	return dst
}

// turns returns room for eight columns of which many differ; nil if few do.
func (p *Pages) turns(rows int, same byte) []byte {
	if rows < tile || bits.OnesCount8(^same) < turnFrom {
		return nil
	}
	return p.group[:group*rows]
}

// appendRows undoes appendColumns: it appends the size bytes of tuples that the start of b was made of, and returns how many bytes that
// start has. It appends fewer if b is too short.
func (p *Pages) appendRows(dst, b []byte, size, width int) (out []byte, n int) {
	rows := rowsOf(size, width)
	if rows == 0 {
		n = min(size, len(b))
		return append(dst, b[:n]...), n
	}
	out = slices.Grow(dst, size)[:len(dst)+size]
	tuples := out[len(dst):]
	n, mixed := p.firstRow(tuples[:width], b, rows)
	rest := size - rows*width
	if len(b)-n < rest { // or n is too much
		return dst, 0
	}
	for filled := width; filled < rows*width; filled *= 2 {
		copy(tuples[filled:rows*width], tuples[:filled])
	}
	for _, m := range mixed {
		p.restoreGroup(tuples[m.inRow:], b[m.inForm:], rows, width, b[m.inRow/group])
	}
	copy(tuples[rows*width:], b[n:n+rest])
	return out, n + rest
}

// firstRow fills the first row of columns that hold one byte only, and returns the groups with others, and how many bytes of b, a
// form, all columns have; more than b has if it is too short.
func (p *Pages) firstRow(row, b []byte, rows int) (n int, mixed []column) {
	mixed = p.mixed[:0]
	if n = len(row) / group; n > len(b) {
		return n, nil
	}
	for c := 0; c < len(row); c += group {
		same := b[c/group]
		size := bits.OnesCount8(same) + bits.OnesCount8(^same)*rows
		if size > len(b)-n {
			return n + size, nil
		}
		if same == allSame {
			copy(row[c:c+group], b[n:])
		} else {
			mixed = append(mixed, column{c, n})
			for i, at := 0, n; i < group; i++ {
				row[c+i] = b[at] // where columns differ, for now
				at += bytesOf(same, i, rows)
			}
		}
		n += size
	}
	return n, mixed
}

// bytesOf returns how many bytes the column c of a group has in a form.
func bytesOf(same byte, c, rows int) int {
	if same>>c&1 != 0 {
		return 1
	}
	return rows
}

// restoreGroup puts columns that differ into rows whose other columns are there; b begins with what appendGroup made of them.
func (p *Pages) restoreGroup(tuples, b []byte, rows, width int, same byte) {
	turned := p.turns(rows, same)
	for c := range group {
		n := bytesOf(same, c, rows)
		column := b[:n]
		b = b[n:]
		switch {
		case turned == nil && n == rows:
			for r, v := range column {
				tuples[c+r*width] = v
			}
		case turned != nil && n == rows:
			copy(turned[c*rows:], column)
		case turned != nil:
			fill(turned[c*rows:][:rows], column[0])
		}
	}
	if turned == nil {
		return
	}
	for r := 0; r < rows; r += tile {
		r := min(r, rows-tile)
		turnTile(tuples[r*width:], turned[r:], width, rows)
	}
}

// fill sets all bytes of b to v.
func fill(b []byte, v byte) {
	for i := range b {
		b[i] = v
	}
}
