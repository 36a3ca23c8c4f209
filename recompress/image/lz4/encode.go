// Package lz4 writes and reads LZ4 blocks as a PostgreSQL server stores page images under wal_compression = lz4: byte for byte
// what LZ4_compress_default of liblz4 1.8.3 to 1.10.0 returns. It is pure: bytes in, bytes out.
//
// General purpose LZ4 packages make valid blocks too, but other ones; a WAL record has to come back with the bytes its checksum covers.
package lz4

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"walproxy/recompress/image/internal/match"
)

// MaxRawBytes is the largest input: PostgreSQL's largest BLCKSZ.
const MaxRawBytes = 32 << 10

// ErrTooLarge says that an input is longer than MaxRawBytes.
var ErrTooLarge = errors.New("lz4: input longer than the largest page")

// What the block format and the encoder's search fix.
const (
	minMatch     = 4  // shortest match the format can say
	lastLiterals = 5  // a block ends with at least so many literals
	searchMargin = 12 // no match starts within so many bytes of the end
	hashBits     = 13
	skipShift    = 6 // the search step grows by one every 64 misses
	nibbleMax    = 15
)

// Encoder compresses one block at a time. It owns its table (16 KiB) and allocates nothing else; it is not safe for concurrent use.
// The zero value is ready.
type Encoder struct {
	// table holds, per hash of four bytes, the latest position seen with it. Zero also stands for "none": position 0 is then
	// a candidate that the comparison of bytes accepts or refuses like any other.
	table [1 << hashBits]uint16
}

// Append appends the block for src to dst and returns it. It grows dst to the worst case of the format at most. src is not retained.
// The only error is ErrTooLarge.
func (e *Encoder) Append(dst, src []byte) ([]byte, error) {
	if len(src) > MaxRawBytes {
		return dst, fmt.Errorf("compress %d bytes: %w", len(src), ErrTooLarge)
	}
	dst = slices.Grow(dst, len(src)+len(src)/255+16+match.Slack)
	out, rest := dst[len(dst):cap(dst)], 0
	n := 0
	if len(src) > searchMargin {
		clear(e.table[:])
		n, rest = e.writeSequences(out, src)
	}
	n = writeToken(out, n, len(src)-rest, 0)
	n += copy(out[n:], src[rest:])
	return dst[:len(dst)+n], nil
}

// writeSequences writes every sequence that has a match to out and returns where they end and where the literals behind the
// last one start. out has room for the format's worst case and match.Slack more.
func (e *Encoder) writeSequences(out, src []byte) (n, anchor int) {
	searchEnd := len(src) - searchMargin + 1
	matchEnd := len(src) - lastLiterals
	pos := 1
	for {
		found, cand := e.search(src, pos, searchEnd)
		if found < 0 {
			return n, anchor
		}
		pos = found
		for pos > anchor && cand > 0 && src[pos-1] == src[cand-1] {
			pos--
			cand--
		}
		for {
			length := match.Len(src, cand+minMatch, pos+minMatch, matchEnd)
			n = writeSequence(out, n, src, anchor, pos, pos-cand, length)
			pos += minMatch + length
			anchor = pos
			if pos >= searchEnd {
				return n, anchor
			}
			// The four bytes two back and the four here are both within these eight.
			near := binary.LittleEndian.Uint64(src[pos-2:])
			e.table[hash(uint32(near))] = uint16(pos - 2)
			now := uint32(near >> 16)
			h := hash(now)
			cand = int(e.table[h])
			e.table[h] = uint16(pos)
			if load32(src, cand) != now {
				break
			}
		}
		pos++
	}
}

// search looks from pos on for the first position with an earlier equal four bytes and returns both, or -1 when the next
// position to try would lie behind end. It strides wider the longer it finds nothing. The position it stops at is not entered.
func (e *Encoder) search(src []byte, pos, end int) (found, cand int) {
	step, tries := 1, 1<<skipShift
	now := load32(src, pos)
	for {
		next := pos + step
		if next > end {
			return -1, 0
		}
		step = tries >> skipShift
		tries++
		h := hash(now)
		cand := int(e.table[h])
		e.table[h] = uint16(pos)
		if load32(src, cand) == now {
			return pos, cand
		}
		pos, now = next, load32(src, next)
	}
}

// writeSequence writes token, the literals src[anchor:pos] and the match to out[n:] and returns where they end; length is what exceeds minMatch.
func writeSequence(out []byte, n int, src []byte, anchor, pos, offset, length int) int {
	n = writeToken(out, n, pos-anchor, min(length, nibbleMax))
	match.Literals(out, n, src, anchor, pos)
	n += pos - anchor
	binary.LittleEndian.PutUint16(out[n:], uint16(offset))
	n += 2
	if length >= nibbleMax {
		return writeRest(out, n, length-nibbleMax)
	}
	return n
}

// writeToken writes the token (the literal count above, low below) and the rest of the literal count.
func writeToken(out []byte, n, literals, low int) int {
	if literals < nibbleMax {
		out[n] = byte(literals<<4 | low)
		return n + 1
	}
	out[n] = byte(nibbleMax<<4 | low)
	return writeRest(out, n+1, literals-nibbleMax)
}

// writeRest writes what of a length did not fit its nibble.
func writeRest(out []byte, n, length int) int {
	for ; length >= 255; length -= 255 {
		out[n] = 255
		n++
	}
	out[n] = byte(length)
	return n + 1
}

func load32(b []byte, i int) uint32 { return binary.LittleEndian.Uint32(b[i:]) }

// hash spreads four bytes over the table (Fibonacci hashing with the constant liblz4 uses).
func hash(v uint32) uint32 { return v * 2654435761 >> (32 - hashBits) }
