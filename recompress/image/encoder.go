// Package image opens page images that a PostgreSQL server compressed (wal_compression = pglz, lz4 or zstd) and makes the stored bytes
// again from the page, bit for bit. An image is opened only after this very process made its stored bytes again; any other is
// carried verbatim. Which encoder reproduces depends on the server's libraries and machine; an Opener finds out and remembers.
//
// The packages below hold the codecs: pglz, lz4 and zstd3. All are pure, integer arithmetic only: the same result on every machine.
package image

import (
	"errors"
	"fmt"

	"walproxy/protocol/wal"
	"walproxy/recompress/image/lz4"
	"walproxy/recompress/image/pglz"
	"walproxy/recompress/image/zstd3"
)

// MaxRawBytes is the longest page content handled: PostgreSQL's largest BLCKSZ. With zstd it is zstd3.MaxRawBytes.
const MaxRawBytes = 32 << 10

var (
	// ErrProfile says that a profile is none that can encode.
	ErrProfile = errors.New("image: unknown profile")
	// ErrRefused says that the profile's server would not have compressed the content. Who opened the image did not get it from here.
	ErrRefused = errors.New("image: content does not compress")
)

// holeHeaderBytes is what storing an image compressed costs when the page has a hole: its length is told only then.
const holeHeaderBytes = 2

// Kept tells whether the server stores an image of rawBytes (BLCKSZ less the hole) compressed when that takes storedBytes.
// Otherwise it stores the content plain and clears the compression bits.
//
// Source: PostgreSQL src/backend/access/transam/xloginsert.c, XLogCompressBackupBlock (13-18).
func Kept(storedBytes, rawBytes int, hole bool) bool {
	if hole {
		storedBytes += holeHeaderBytes
	}
	return storedBytes < rawBytes
}

// Encoder makes stored images from page content. It owns all of its tables (about 290 KiB) and allocates only to grow the caller's
// buffer. It is not safe for concurrent use. The zero value is ready.
type Encoder struct {
	pglz pglz.Encoder
	lz4  lz4.Encoder
	zstd zstd3.Encoder
}

// Append appends to dst what a server of profile p makes of raw, a page without its hole, and returns it. raw is not retained.
//
// Errors: ErrProfile for Verbatim and unknown profiles, ErrRefused where pglz gives up, pglz.ErrTooLarge, lz4.ErrTooLarge and
// zstd3.ErrTooLarge. dst is then returned as it was.
func (e *Encoder) Append(dst []byte, p Profile, raw []byte) ([]byte, error) {
	out, ok, err := e.append(dst, p, raw)
	if err == nil && !ok {
		err = ErrRefused
	}
	if err != nil {
		return dst, fmt.Errorf("encode image as %v: %w", p, err)
	}
	return out, nil
}

// Store appends to dst what the record of a server of profile p holds for raw: the compressed form and true, or raw itself and false
// where compression does not pay or is refused. hole says whether a hole was cut out of the page. Errors as for Append, but never ErrRefused.
func (e *Encoder) Store(dst []byte, p Profile, raw []byte, hole bool) (stored []byte, compressed bool, err error) {
	out, ok, err := e.append(dst, p, raw)
	if err != nil {
		return dst, false, fmt.Errorf("store image as %v: %w", p, err)
	}
	if !ok || !Kept(len(out)-len(dst), len(raw), hole) {
		return append(dst, raw...), false, nil
	}
	return out, true, nil
}

// append is Append with a refusal told by ok, which is ordinary and must not cost an error value.
func (e *Encoder) append(dst []byte, p Profile, raw []byte) (out []byte, ok bool, err error) {
	switch p.Method() {
	case wal.PGLZ:
		return e.pglz.Append(dst, raw, p == PGLZSigned)
	case wal.LZ4:
		out, err = e.lz4.Append(dst, raw)
	case wal.Zstd:
		out, err = e.zstd.Append(dst, raw, p.zstd())
	default:
		err = ErrProfile
	}
	return out, err == nil, err
}
