package zstd3

import (
	"encoding/binary"
	"math/bits"
)

const (
	minTableLog = 5
	maxTableLog = 9
)

// fseTable encodes symbols of one alphabet. A state is one of 1<<log values; coding a symbol emits the state's low bits and moves on.
type fseTable struct {
	log     uint
	states  [1 << maxTableLog]uint16
	symbols [maxSymbols]fseSymbol
}

// fseSymbol tells how a symbol moves a state: (state+bits)>>16 bits are emitted, the rest plus first indexes the next state.
type fseSymbol struct {
	bits  uint32
	first int32
}

// build makes the table for norm, whose counts (-1 as one) add up to 1<<log.
func (t *fseTable) build(norm []int16, log uint) {
	t.log = log
	size := 1 << log
	var cells [1 << maxTableLog]uint8
	var next [maxSymbols]uint16
	spread(cells[:size], norm)
	total := 0
	for s, n := range norm {
		next[s] = uint16(total)
		symbol := &t.symbols[s]
		switch n {
		case 0:
			continue
		case -1, 1:
			symbol.bits = uint32(log)<<16 - uint32(size)
			symbol.first = int32(total) - 1
			total++
		default:
			most := log - uint(bits.Len16(uint16(n-1))-1)
			symbol.bits = uint32(most)<<16 - uint32(n)<<most
			symbol.first = int32(total) - int32(n)
			total += int(n)
		}
	}
	for u, s := range cells[:size] {
		t.states[next[s]] = uint16(size + u)
		next[s]++
	}
}

// spread hands the cells out to the symbols as RFC 8878, 4.1.1 says: the rare ones from the end, the others by a fixed stride.
func spread(cells []uint8, norm []int16) {
	size := len(cells)
	high := size - 1
	for s, n := range norm {
		if n == -1 {
			cells[high] = uint8(s)
			high--
		}
	}
	stride, at := size>>1+size>>3+3, 0
	for s, n := range norm {
		for ; n > 0; n-- {
			cells[at] = uint8(s)
			at = (at + stride) & (size - 1)
			for at > high {
				at = (at + stride) & (size - 1)
			}
		}
	}
}

// buildSingle makes the table of an alphabet of which only symbol occurs: it takes no bits.
func (t *fseTable) buildSingle(symbol uint8) {
	t.log = 0
	t.states[0] = 0
	t.symbols[symbol] = fseSymbol{}
}

// start returns the state that stands for symbol with nothing emitted yet: the last symbol's, as coding runs backwards.
func (t *fseTable) start(symbol uint8) uint32 {
	s := t.symbols[symbol]
	n := (s.bits + 1<<15) >> 16
	value := n<<16 - s.bits
	return uint32(t.states[int32(value>>n)+s.first])
}

// next emits symbol's bits of state and returns the state after it.
func (t *fseTable) next(w *bitWriter, state uint32, symbol uint8) uint32 {
	s := t.symbols[symbol]
	n := (state + s.bits) >> 16
	w.add(uint64(state&(1<<(n&31)-1)), uint(n))
	return uint32(t.states[int32(state>>(n&31))+s.first])
}

// finish emits the state itself, which the reader starts from.
func (t *fseTable) finish(w *bitWriter, state uint32) {
	w.add(uint64(state&(1<<t.log-1)), t.log)
}

// tableLogFor returns the size of table the library takes for total symbols of which the highest is top: as
// large as most allows, but slack bits smaller than the count of symbols, and never too small for the alphabet.
func tableLogFor(most, total, top, slack int) int {
	log := min(most, bits.Len(uint(total-1))-1-slack)
	log = max(log, min(bits.Len(uint(total)), bits.Len(uint(top))+1))
	return max(log, minTableLog)
}

// writeNorm writes the description of a table (RFC 8878, 4.1.1) to buf, which has room, and returns its length.
func writeNorm(buf []byte, norm []int16, log int) int {
	var acc uint64
	var count uint
	at := 0
	put := func(v, n int) {
		acc |= uint64(v) << count
		count += uint(n)
		for count >= 16 {
			binary.LittleEndian.PutUint16(buf[at:], uint16(acc))
			at += 2
			acc >>= 16
			count -= 16
		}
	}
	put(log-minTableLog, 4)
	left, threshold, width := 1<<log+1, 1<<log, log+1
	zero := false
	for s := 0; s < len(norm) && left > 1; {
		if zero {
			run := s
			for s < len(norm) && norm[s] == 0 {
				s++
			}
			if s == len(norm) {
				break
			}
			for run = s - run; run >= 3; run -= 3 {
				put(3, 2)
			}
			put(run, 2)
		}
		n := int(norm[s])
		s++
		// Values are 0..left; the lower ones of them, as many as fit, take a bit less.
		small := 2*threshold - 1 - left
		left -= max(n, -n)
		n++
		zero = n == 1
		if n >= threshold {
			n += small
		}
		if n < small {
			put(n, width-1)
		} else {
			put(n, width)
		}
		for left < threshold {
			width--
			threshold >>= 1
		}
	}
	for ; count > 0; count -= min(count, 8) {
		buf[at] = byte(acc)
		acc >>= 8
		at++
	}
	return at
}
