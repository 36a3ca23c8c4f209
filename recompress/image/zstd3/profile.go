package zstd3

import "strconv"

// Profile names a group of libzstd versions that write the same bytes at level 3 for inputs of up to MaxRawBytes.
type Profile uint8

// The profiles, oldest first.
const (
	V144     Profile = iota // 1.4.4, 1.4.5
	V148                    // 1.4.8 to 1.5.0
	V151                    // 1.5.1 to 1.5.6
	V157                    // 1.5.7
	Profiles                // how many there are
)

// String returns the versions: "zstd 1.5.1-1.5.6".
func (p Profile) String() string {
	switch p {
	case V144:
		return "zstd 1.4.4-1.4.5"
	case V148:
		return "zstd 1.4.8-1.5.0"
	case V151:
		return "zstd 1.5.1-1.5.6"
	case V157:
		return "zstd 1.5.7"
	}
	return "zstd profile " + strconv.Itoa(int(p))
}

// pipelined says that the match search looks one position ahead and widens its stride every 256 positions (from 1.5.1 on);
// before, the stride grew with the distance to the last match.
func (p Profile) pipelined() bool { return p >= V151 }

// longerAhead says that a match at the next position replaces a short one here only if it is longer (from 1.5.7 on);
// before, eight equal bytes there were enough.
func (p Profile) longerAhead() bool { return p >= V157 }

// unstableSort says that symbols of frequent counts are ordered by a quicksort for the Huffman tree (from 1.5.1 on).
func (p Profile) unstableSort() bool { return p >= V151 }

// rareCount returns how a symbol that deserves less than one table cell is normalized when total symbols are coded:
// -1 (a cell at the table's end, always reset by a full state) or 1 (a cell like any other).
func (p Profile) rareCount(total int) int16 {
	const fromSymbols = 2048 // below, decoding speed of the short form is preferred
	if p == V144 || total >= fromSymbols {
		return -1
	}
	return 1
}
