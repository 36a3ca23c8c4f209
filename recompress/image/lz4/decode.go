package lz4

import (
	"errors"

	"walproxy/recompress/image/internal/match"
)

// ErrCorrupt says that a block is malformed or does not expand to the expected length.
var ErrCorrupt = errors.New("lz4: corrupt block")

// Decode expands block into dst, whose length is the raw length the record states. It succeeds only if block is used up exactly
// when dst is full; otherwise it returns ErrCorrupt and dst holds anything. It allocates nothing, retains nothing, reads and
// writes within the two slices only, and takes time linear in their lengths.
func Decode(dst, block []byte) error {
	out, in := 0, 0
	for in < len(block) {
		token := int(block[in])
		in++
		literals := token >> 4
		if literals == nibbleMax {
			var ok bool
			if literals, in, ok = readRest(block, in, literals, len(dst)); !ok {
				return ErrCorrupt
			}
		}
		if literals > len(block)-in || literals > len(dst)-out {
			return ErrCorrupt
		}
		copy(dst[out:], block[in:in+literals])
		out += literals
		in += literals
		if in == len(block) {
			if out != len(dst) {
				return ErrCorrupt
			}
			return nil
		}
		if len(block)-in < 2 {
			return ErrCorrupt
		}
		offset := int(block[in]) | int(block[in+1])<<8
		in += 2
		length := token & nibbleMax
		if length == nibbleMax {
			var ok bool
			if length, in, ok = readRest(block, in, length, len(dst)); !ok {
				return ErrCorrupt
			}
		}
		length += minMatch
		if offset == 0 || offset > out || length > len(dst)-out {
			return ErrCorrupt
		}
		match.Copy(dst, out, offset, length)
		out += length
	}
	return ErrCorrupt
}

// readRest adds to n the length bytes at block[in:]; it gives up above limit, so that n cannot overflow.
func readRest(block []byte, in, n, limit int) (length, next int, ok bool) {
	for in < len(block) {
		b := int(block[in])
		in++
		n += b
		if b != 255 {
			return n, in, true
		}
		if n > limit {
			break
		}
	}
	return 0, in, false
}
