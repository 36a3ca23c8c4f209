package zstd3

// roundUpAbove holds, for small shares, how much of the next cell (in 2^-20) a symbol must deserve to get it.
var roundUpAbove = [8]uint64{0, 473195, 504333, 520860, 550000, 700000, 750000, 830000}

// normalize scales counts, which add up to total and of which at least two are not zero, to cells of a table of 1<<log, as the library
// does. rare is what a symbol below one cell gets, -1 or 1. The result fills norm[:len(counts)].
func normalize(norm []int16, counts []uint32, total, log int, rare int16) {
	const fraction = 62
	shift := fraction - uint(log)
	unit := uint64(1<<fraction) / uint64(total)
	roundUnit := uint64(1) << (shift - 20)
	threshold := uint32(total >> log)
	left := 1 << log
	largest, largestCells := 0, int16(0)
	for s, n := range counts {
		switch {
		case n == 0:
			norm[s] = 0
		case n <= threshold:
			norm[s] = rare
			left--
		default:
			share := uint64(n) * unit
			cells := int16(share >> shift)
			if cells < 8 && share-uint64(cells)<<shift > roundUnit*roundUpAbove[cells] {
				cells++
			}
			if cells > largestCells {
				largest, largestCells = s, cells
			}
			norm[s] = cells
			left -= int(cells)
		}
	}
	// The most frequent symbol takes what rounding left over or overdrew, unless that is half of its own.
	if -left >= int(norm[largest]>>1) {
		normalizeEvenly(norm, counts, total, log, rare)
		return
	}
	norm[largest] += int16(left)
}

// normalizeEvenly is the slower way for distributions the first one overdraws: the rare symbols get one cell each, the others share what
// is left in proportion, with the rounding carried along.
func normalizeEvenly(norm []int16, counts []uint32, total, log int, rare int16) {
	const open = -2
	low, one := uint32(total>>log), uint32(total*3>>(log+1))
	given := 0
	settle := func(s int, cells int16) {
		norm[s] = cells
		given++
		total -= int(counts[s])
	}
	for s, n := range counts {
		switch {
		case n == 0:
			norm[s] = 0
		case n <= low:
			settle(s, rare)
		case n <= one:
			settle(s, 1)
		default:
			norm[s] = open
		}
	}
	left := 1<<log - given
	if left == 0 {
		return
	}
	if total/left > int(one) {
		one = uint32(total * 3 / (left * 2))
		for s, n := range counts {
			if norm[s] == open && n <= one {
				settle(s, 1)
			}
		}
		left = 1<<log - given
	}
	switch {
	case given == len(counts):
		most := 0
		for s, n := range counts {
			if n > counts[most] {
				most = s
			}
		}
		norm[most] += int16(left)
	case total == 0:
		for s := 0; left > 0; s = (s + 1) % len(counts) {
			if norm[s] > 0 {
				norm[s]++
				left--
			}
		}
	default:
		share(norm, counts, total, log, left, open)
	}
}

// share gives left cells to the symbols still marked open, whose counts add up to total.
func share(norm []int16, counts []uint32, total, log, left int, open int16) {
	shift := 62 - uint(log)
	half := uint64(1)<<(shift-1) - 1
	unit := (uint64(left)<<shift + half) / uint64(total)
	at := half
	for s, n := range counts {
		if norm[s] == open {
			end := at + uint64(n)*unit
			norm[s] = int16(end>>shift - at>>shift)
			at = end
		}
	}
}
