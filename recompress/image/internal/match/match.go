// Package match compares and copies byte runs for the image codecs.
package match

import (
	"encoding/binary"
	"math/bits"
)

// Len returns how many bytes from b on equal those from a on, a < b, not looking at or behind end, end <= len(src).
func Len(src []byte, a, b, end int) int {
	start := b
	for b+8 <= end {
		diff := binary.LittleEndian.Uint64(src[b:]) ^ binary.LittleEndian.Uint64(src[a:])
		if diff != 0 {
			return b - start + bits.TrailingZeros64(diff)>>3
		}
		a += 8
		b += 8
	}
	for b < end && src[a] == src[b] {
		a++
		b++
	}
	return b - start
}

// Slack is how many bytes Literals may write beyond what it copies.
const Slack = 16

// Literals copies src[from:to] to dst[at:], where there is room for Slack bytes more.
func Literals(dst []byte, at int, src []byte, from, to int) {
	if to-from <= 16 && from+16 <= len(src) {
		a, b := src[from:from+16], dst[at:at+16]
		binary.LittleEndian.PutUint64(b, binary.LittleEndian.Uint64(a))
		binary.LittleEndian.PutUint64(b[8:], binary.LittleEndian.Uint64(a[8:]))
		return
	}
	copy(dst[at:], src[from:to])
}

// Copy copies length bytes that start offset bytes before dst[at] to dst[at], repeating them where the runs overlap.
// The caller has checked 0 < offset <= at and at+length <= len(dst).
func Copy(dst []byte, at, offset, length int) {
	from, to := at-offset, at+length
	// Short and far enough apart: two plain words do, what they write too much is overwritten by what follows.
	if length <= 16 && offset >= 8 && at+16 <= len(dst) {
		word := binary.LittleEndian.Uint64(dst[from:])
		binary.LittleEndian.PutUint64(dst[at:], word)
		word = binary.LittleEndian.Uint64(dst[from+8:])
		binary.LittleEndian.PutUint64(dst[at+8:], word)
		return
	}
	// Every round doubles the stretch that repeats, so an overlap costs a logarithmic number of copies.
	for at < to {
		at += copy(dst[at:to], dst[from:at])
	}
}
