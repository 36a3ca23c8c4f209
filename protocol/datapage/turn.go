package datapage

const tile = 8 // rows and columns that turn moves at a time, one word each

// turn makes columns of the rows in src, a matrix of bytes: the byte in row r and column c of rows times columns goes to row c and
// column r of dst. dst and src hold that many bytes at least and do not overlap.
func turn(dst, src []byte, rows, columns int) {
	if rows < tile || columns < tile {
		for c := range columns {
			column := dst[c*rows:][:rows]
			for r := range column {
				column[r] = src[r*columns+c]
			}
		}
		return
	}
	for r := 0; r < rows; r += tile {
		r := min(r, rows-tile) // the last tiles lie over those before them where rows and columns are no multiple of their size
		for c := 0; c < columns; c += tile {
			c := min(c, columns-tile)
			turnTile(dst[c*rows+r:], src[r*columns+c:], rows, columns)
		}
	}
}

// turnTile turns eight rows of eight bytes. The rows of src begin columns bytes apart, those of dst rows bytes.
func turnTile(dst, src []byte, rows, columns int) {
	a0, a1, a2, a3 := le.Uint64(src), le.Uint64(src[columns:]), le.Uint64(src[2*columns:]), le.Uint64(src[3*columns:])
	a4, a5, a6, a7 := le.Uint64(src[4*columns:]), le.Uint64(src[5*columns:]), le.Uint64(src[6*columns:]), le.Uint64(src[7*columns:])

	const halves, quarters, bytes = 0x00000000ffffffff, 0x0000ffff0000ffff, 0x00ff00ff00ff00ff
	a0, a4 = swap(a0, a4, 32, halves)
	a1, a5 = swap(a1, a5, 32, halves)
	a2, a6 = swap(a2, a6, 32, halves)
	a3, a7 = swap(a3, a7, 32, halves)

	a0, a2 = swap(a0, a2, 16, quarters)
	a1, a3 = swap(a1, a3, 16, quarters)
	a4, a6 = swap(a4, a6, 16, quarters)
	a5, a7 = swap(a5, a7, 16, quarters)

	a0, a1 = swap(a0, a1, 8, bytes)
	a2, a3 = swap(a2, a3, 8, bytes)
	a4, a5 = swap(a4, a5, 8, bytes)
	a6, a7 = swap(a6, a7, 8, bytes)

	le.PutUint64(dst, a0)
	le.PutUint64(dst[rows:], a1)
	le.PutUint64(dst[2*rows:], a2)
	le.PutUint64(dst[3*rows:], a3)
	le.PutUint64(dst[4*rows:], a4)
	le.PutUint64(dst[5*rows:], a5)
	le.PutUint64(dst[6*rows:], a6)
	le.PutUint64(dst[7*rows:], a7)
}

// swap exchanges the bits of a that lie shift above mask for those of b under mask.
func swap(a, b uint64, shift uint, mask uint64) (uint64, uint64) {
	t := (a>>shift ^ b) & mask
	return a ^ t<<shift, b ^ t
}
