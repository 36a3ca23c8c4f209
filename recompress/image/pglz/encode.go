// Package pglz writes and reads PostgreSQL's own LZ format as a server stores page images under wal_compression = pglz (on before 15):
// byte for byte what pglz_compress returns with its default strategy. It is pure: bytes in, bytes out.
//
// The encoder has been the same from 9.5 to 18, with one dependence on the machine: its hash adds plain C chars, which are signed
// on x86 and unsigned on arm64. Hence the switch.
//
// Source: PostgreSQL src/common/pg_lzcompress.c, pglz_compress, PGLZ_strategy_default (13-18).
package pglz

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"walproxy/recompress/image/internal/match"
)

// MaxRawBytes is the largest input: PostgreSQL's largest BLCKSZ.
const MaxRawBytes = 32 << 10

// ErrTooLarge says that an input is longer than MaxRawBytes.
var ErrTooLarge = errors.New("pglz: input longer than the largest page")

// The default strategy and the limits of the format.
const (
	minInput      = 32   // shorter input is refused
	maxOutPercent = 75   // output must stay below this share of the input
	firstMatchBy  = 1024 // output bytes without any match after which the encoder gives up
	goodMatch     = 128  // a match of this length ends the search
	goodDrop      = 10   // percent by which each further candidate lowers goodMatch
	maxOffset     = 0xFFE
	minMatch      = 3
	shortMatch    = 17 // longest match said in two bytes
	maxMatch      = 273
	maxHashBits   = 13
)

// Encoder compresses one image at a time. It owns its tables (80 KiB) and allocates nothing else; it is not safe for
// concurrent use. The zero value is ready.
type Encoder struct {
	// head holds, per hash, one more than the latest position; 0 is none.
	head [1 << maxHashBits]uint16
	// before holds, per position, one more than the latest earlier position of the same hash; 0 is none.
	before [MaxRawBytes]uint16
}

// widened holds what a byte becomes when the machine's char is widened to an int.
type widened [256]int32

var (
	widenSigned   = widen(func(b uint8) int32 { return int32(int8(b)) })
	widenUnsigned = widen(func(b uint8) int32 { return int32(b) })
)

func widen(f func(uint8) int32) (w widened) {
	for i := range w {
		w[i] = f(uint8(i))
	}
	return w
}

// enough holds the match length that ends the search after so many candidates; from its last entry on it no longer changes.
var enough = func() (e [64]uint8) {
	good := goodMatch
	for i := range e {
		e[i] = uint8(good)
		good -= good * goodDrop / 100
	}
	return e
}()

// Append appends the compressed form of src to dst and returns it with true, or dst unchanged with false when the server's
// encoder refuses: input too short, less than a quarter saved, or no match early on. It grows dst by len(src) at most. src is not retained.
// Work per position is bounded by the format's reach: at most 4094 earlier positions are looked at, as the server does.
// signedChar says what plain char is on the server's machine: true on x86, false on arm64. The only error is ErrTooLarge.
func (e *Encoder) Append(dst, src []byte, signedChar bool) ([]byte, bool, error) {
	if len(src) > MaxRawBytes {
		return dst, false, fmt.Errorf("compress %d bytes: %w", len(src), ErrTooLarge)
	}
	if len(src) < minInput {
		return dst, false, nil
	}
	if signedChar {
		e.link(src, &widenSigned)
	} else {
		e.link(src, &widenUnsigned)
	}
	start := len(dst)
	limit := start + len(src)*maxOutPercent/100
	// An item is at most three bytes and a control byte beyond the last check against limit.
	out := slices.Grow(dst, len(src))
	giveUp := start + firstMatchBy
	control, used := start, 8
	for pos := 0; pos < len(src); {
		if len(out) >= limit || len(out) >= giveUp {
			return dst, false, nil
		}
		if used == 8 {
			control, used = len(out), 0
			out = append(out, 0)
		}
		length, offset := e.longest(src, pos)
		if length < minMatch {
			out = append(out, src[pos])
			pos++
		} else {
			out[control] |= 1 << used
			out = appendMatch(out, length, offset)
			pos += length
			giveUp = math.MaxInt
		}
		used++
	}
	if len(out) >= limit {
		return dst, false, nil
	}
	return out, true, nil
}

// appendMatch appends a back reference: 4 bits of length, 12 of offset, and a byte more for a long one.
func appendMatch(out []byte, length, offset int) []byte {
	high := offset >> 4 & 0xF0
	if length <= shortMatch {
		return append(out, byte(high|(length-minMatch)), byte(offset))
	}
	return append(out, byte(high|0xF), byte(offset), byte(length-shortMatch-1))
}

// link fills before. The server enters every position, matched or not, before it looks at the next one, so what a search sees
// depends on the input alone and can be laid out beforehand. Its entries are recycled after 4096 positions; a search stops at
// that distance anyway, so nothing has to be unlinked.
func (e *Encoder) link(src []byte, widen *widened) {
	mask := hashMask(len(src))
	head := e.head[:mask+1]
	clear(head)
	before := e.before[:len(src)]
	last := len(src) - 4
	// The hash of four bytes is s0<<6 ^ s1<<4 ^ s2<<2 ^ s3: a step to the right takes s0 out, shifts, and adds the new byte.
	h := widen[src[0]]<<6 ^ widen[src[1]]<<4 ^ widen[src[2]]<<2
	for pos, next := range src[3:] {
		h ^= widen[next]
		slot := &head[h&mask]
		before[pos] = *slot
		*slot = uint16(pos + 1)
		h = (h ^ widen[src[pos]]<<6) << 2
	}
	for pos := last + 1; pos < len(src); pos++ {
		slot := &head[widen[src[pos]]&mask]
		before[pos] = *slot
		*slot = uint16(pos + 1)
	}
}

// hashMask returns the hash's mask: short inputs use a smaller table.
func hashMask(n int) int32 {
	bits := maxHashBits
	for limit := 1024; limit >= 128 && n < limit; limit /= 2 {
		bits--
	}
	return 1<<bits - 1
}

// longest returns the first of the longest matches at pos among the candidates the server would look at, or a length below minMatch.
func (e *Encoder) longest(src []byte, pos int) (length, offset int) {
	end := min(len(src), pos+maxMatch)
	length = minMatch - 1
	if end-pos < minMatch {
		return 0, 0
	}
	seen := 0
	for cand := int(e.before[pos]) - 1; cand >= 0 && pos-cand <= maxOffset; {
		// Only a longer match counts: the byte that would make it longer tells most candidates apart.
		if src[cand+length] == src[pos+length] {
			if n := match.Len(src, cand, pos, end); n > length {
				length, offset = n, pos-cand
				if pos+length >= end {
					break
				}
			}
		}
		if length >= int(enough[min(seen, len(enough)-1)]) {
			break
		}
		seen++
		cand = int(e.before[cand]) - 1
	}
	return length, offset
}
