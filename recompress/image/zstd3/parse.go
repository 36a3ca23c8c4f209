package zstd3

import (
	"encoding/binary"

	"walproxy/recompress/image/internal/match"
)

// What level 3 means for inputs of up to MaxRawBytes: the window is the least power of two that holds the input, the
// table of four-byte hashes has as many entries, that of eight-byte hashes twice as many.
const (
	minWindowBits = 6
	maxShortBits  = 14
	maxLongBits   = 15
	minMatch      = 4
	searchMargin  = 8 // no search within so many bytes of the end
	strideShift   = 8 // the search stride grows every 256 bytes
	eagerStrides  = 4 // below this stride the position ahead is entered too
)

// hit is a match the search found: length bytes at pos that were seen offset bytes earlier. from is where the search stood.
type hit struct {
	from, pos, length int
	offset            int // 0: the latest offset again
}

// parse splits src into sequences and literals and returns where the literals behind the last sequence start.
func (e *Encoder) parse(src []byte) int {
	limit := len(src) - searchMargin
	anchor, pos := 0, 1
	// The two latest offsets. The format starts with 1, 4 and 8; 4 cannot be used at the first byte and is dropped by the library.
	last, older := 1, 0
	for {
		var h hit
		if e.profile.pipelined() {
			h = e.searchAhead(src, anchor, pos, last)
		} else {
			h = e.search(src, anchor, pos, last)
		}
		if h.length == 0 {
			return anchor
		}
		if h.offset != 0 {
			last, older = h.offset, last
		}
		e.store(src, anchor, h.pos, h.offset, h.length)
		pos = h.pos + h.length
		anchor = pos
		if pos > limit {
			continue
		}
		e.enterLong(src, h.from+2)
		e.enterLong(src, pos-2)
		e.enterShort(src, h.from+2)
		e.enterShort(src, pos-1)
		// The offset before the latest is tried at once. With no literals in between, "latest again" means that one.
		for pos <= limit && older > 0 && load32(src, pos) == load32(src, pos-older) {
			length := minMatch + match.Len(src, pos-older+minMatch, pos+minMatch, len(src))
			last, older = older, last
			e.enterShort(src, pos)
			e.enterLong(src, pos)
			e.store(src, pos, pos, 0, length)
			pos += length
			anchor = pos
		}
	}
}

// search looks for the next match from pos on, as versions before 1.5.1 do; a hit of length 0 says there is none.
func (e *Encoder) search(src []byte, anchor, pos, last int) hit {
	limit := len(src) - searchMargin
	for pos < limit {
		word := load64(src, pos)
		longSlot, shortSlot := &e.long[e.longHash(word)], &e.short[e.shortHash(uint32(word))]
		long, short := int(*longSlot), int(*shortSlot)
		*longSlot, *shortSlot = uint16(pos), uint16(pos)
		if load32(src, pos+1-last) == uint32(word>>8) {
			return again(src, pos, last)
		}
		if long > 0 && load64(src, long) == word {
			return extend(src, anchor, pos, pos, long, 8)
		}
		if short > 0 && load32(src, short) == uint32(word) {
			next := pos + 1
			word = load64(src, next)
			slot := &e.long[e.longHash(word)]
			long = int(*slot)
			*slot = uint16(next)
			if long > 0 && load64(src, long) == word {
				return extend(src, anchor, pos, next, long, 8)
			}
			return extend(src, anchor, pos, pos, short, minMatch)
		}
		pos += (pos-anchor)>>strideShift + 1
	}
	return hit{}
}

// searchAhead looks for the next match from pos on, as versions from 1.5.1 on do: the long hash of the next position is looked
// up before this one's short match is judged, and the stride starts over at every match. A hit of length 0 says there is none.
func (e *Encoder) searchAhead(src []byte, anchor, pos, last int) hit {
	limit := len(src) - searchMargin
	stride, widen := 1, pos+1<<strideShift
	ahead := pos + 1
	if ahead > limit {
		return hit{}
	}
	word := load64(src, pos)
	slot := &e.long[e.longHash(word)]
	long := int(*slot)
	for {
		shortSlot := &e.short[e.shortHash(uint32(word))]
		short := int(*shortSlot)
		*slot, *shortSlot = uint16(pos), uint16(pos)
		if load32(src, pos+1-last) == uint32(word>>8) {
			return again(src, pos, last)
		}
		wordAhead := load64(src, ahead)
		slotAhead := &e.long[e.longHash(wordAhead)]
		longAhead := int(*slotAhead)
		if long > 0 && load64(src, long) == word {
			if stride < eagerStrides {
				*slotAhead = uint16(ahead)
			}
			return extend(src, anchor, pos, pos, long, 8)
		}
		if short > 0 && load32(src, short) == uint32(word) {
			if stride < eagerStrides {
				*slotAhead = uint16(ahead)
			}
			if longAhead > 0 && load64(src, longAhead) == wordAhead && !e.shortWins(src, pos, short, ahead, longAhead) {
				return extend(src, anchor, pos, ahead, longAhead, 8)
			}
			return extend(src, anchor, pos, pos, short, minMatch)
		}
		if ahead >= widen {
			stride++
			widen += 1 << strideShift
		}
		pos, word, slot, long = ahead, wordAhead, slotAhead, longAhead
		ahead += stride
		if ahead > limit {
			return hit{}
		}
	}
}

// shortWins tells whether the short match at pos is kept although eight bytes match at the position ahead.
func (e *Encoder) shortWins(src []byte, pos, short, ahead, long int) bool {
	if !e.profile.longerAhead() {
		return false
	}
	here := minMatch + match.Len(src, short+minMatch, pos+minMatch, len(src))
	there := 8 + match.Len(src, long+8, ahead+8, len(src))
	return there <= here
}

// again returns the hit of the latest offset at the position after pos, where four bytes are known to match.
func again(src []byte, pos, last int) hit {
	at := pos + 1 + minMatch
	return hit{from: pos, pos: pos + 1, length: minMatch + match.Len(src, at-last, at, len(src))}
}

// extend returns the hit of cand at pos, of which known bytes match, made as long as possible to both sides.
func extend(src []byte, anchor, from, pos, cand, known int) hit {
	length := known + match.Len(src, cand+known, pos+known, len(src))
	for pos > anchor && cand > 0 && src[pos-1] == src[cand-1] {
		pos--
		cand--
		length++
	}
	return hit{from: from, pos: pos, length: length, offset: pos - cand}
}

func (e *Encoder) enterLong(src []byte, pos int) { e.long[e.longHash(load64(src, pos))] = uint16(pos) }

func (e *Encoder) enterShort(src []byte, pos int) {
	e.short[e.shortHash(load32(src, pos))] = uint16(pos)
}

// longHash and shortHash are multiplicative hashes with the library's primes.
func (e *Encoder) longHash(v uint64) uint64 {
	return v * 0xCF1BBCDCB7A56463 >> (e.longShift & 63) & (1<<maxLongBits - 1)
}

func (e *Encoder) shortHash(v uint32) uint32 {
	return v * 2654435761 >> (e.shortShift & 31) & (1<<maxShortBits - 1)
}

func load32(b []byte, i int) uint32 { return binary.LittleEndian.Uint32(b[i:]) }

func load64(b []byte, i int) uint64 { return binary.LittleEndian.Uint64(b[i:]) }
