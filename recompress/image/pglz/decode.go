package pglz

import (
	"errors"

	"walproxy/recompress/image/internal/match"
)

// ErrCorrupt says that an input is malformed or does not expand to the expected length.
var ErrCorrupt = errors.New("pglz: corrupt data")

// Decode expands src into dst, whose length is the raw length the record states. It succeeds only if src is used up exactly when
// dst is full; otherwise it returns ErrCorrupt and dst holds anything. It allocates nothing, retains nothing, reads and writes
// within the two slices only, and takes time linear in their lengths.
//
// Source: PostgreSQL src/common/pg_lzcompress.c, pglz_decompress with check_complete (13-18).
func Decode(dst, src []byte) error {
	in, out := 0, 0
	for in < len(src) && out < len(dst) {
		control := int(src[in])
		in++
		for bit := 0; bit < 8 && in < len(src) && out < len(dst); bit++ {
			if control>>bit&1 == 0 {
				dst[out] = src[in]
				in++
				out++
				continue
			}
			if len(src)-in < 2 {
				return ErrCorrupt
			}
			length := int(src[in]&0xF) + minMatch
			offset := int(src[in]&0xF0)<<4 | int(src[in+1])
			in += 2
			if length > shortMatch {
				if in == len(src) {
					return ErrCorrupt
				}
				length += int(src[in])
				in++
			}
			if offset == 0 || offset > out || length > len(dst)-out {
				return ErrCorrupt
			}
			match.Copy(dst, out, offset, length)
			out += length
		}
	}
	if in != len(src) || out != len(dst) {
		return ErrCorrupt
	}
	return nil
}
