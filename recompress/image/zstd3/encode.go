// Package zstd3 writes zstd frames as a PostgreSQL server stores page images under wal_compression = zstd: byte for byte what
// ZSTD_compress of libzstd returns at its default level 3, for inputs of up to 16 KiB, in the four variants that the library's
// versions 1.4.4 to 1.5.7 have. It reads such frames back through klauspost/compress/zstd. It is pure: bytes in, bytes out.
//
// General purpose packages make valid frames too, but other ones; a WAL record has to come back with the bytes its checksum covers.
//
// The format is RFC 8878. Of its freedoms the library uses, for such inputs: one frame with the content size and no checksum, one
// block, matches of four bytes and more from two hash tables (dfast), repeat offset 1 only, Huffman literals in one or four
// streams, FSE tables predefined or of the block's own.
package zstd3

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"

	"walproxy/recompress/image/internal/match"
)

// MaxRawBytes is the largest input: above it the library takes other parameters.
const MaxRawBytes = 16 << 10

var (
	// ErrTooLarge says that an input is longer than MaxRawBytes.
	ErrTooLarge = errors.New("zstd: input longer than 16 KiB")
	// ErrProfile says that a profile is none of the known ones.
	ErrProfile = errors.New("zstd: unknown profile")
)

const (
	frameMagic    = 0xFD2FB528
	singleSegment = 1 << 5
	blockRaw      = 0
	blockPacked   = 2
	minBlock      = 7 // shorter input is never compressed
	gainShift     = 6 // a block or its literals must shrink by 1/64 and two bytes more

	// maxBody is more than any block body: a sequence takes at most 68 bits and covers at least four bytes, a literal at most 11
	// bits, and tables and headers stay below a KiB.
	maxBody = MaxRawBytes/4*9 + 2048
)

// Encoder compresses one image at a time. It owns its tables (about 170 KiB) and allocates nothing else; it is not safe for
// concurrent use. The zero value is ready.
type Encoder struct {
	profile Profile
	// long and short hold, per hash of eight and four bytes, the latest position seen with it. Position 0 is never entered: 0 is none.
	long  [1 << maxLongBits]uint16
	short [1 << maxShortBits]uint16
	// longShift and shortShift take a product's upper bits as the hash.
	longShift, shortShift uint8

	seqs     []sequence
	literals []byte
	seqArray [MaxRawBytes / minMatch]sequence
	litArray [MaxRawBytes + match.Slack]byte

	codes  [3][MaxRawBytes / minMatch]uint8 // of each sequence, per field
	tables [3]fseTable                      // of the block's own, per field
	norm   [maxSymbols]int16
	huff   huffman
	body   [maxBody]byte
}

// Append appends the frame for src to dst and returns it. src is not retained. Errors: ErrTooLarge (also for an empty src, which is no
// image) and ErrProfile.
func (e *Encoder) Append(dst, src []byte, profile Profile) ([]byte, error) {
	if len(src) == 0 || len(src) > MaxRawBytes {
		return dst, fmt.Errorf("compress %d bytes: %w", len(src), ErrTooLarge)
	}
	if profile >= Profiles {
		return dst, fmt.Errorf("compress with profile %d: %w", profile, ErrProfile)
	}
	e.profile = profile
	dst = appendFrameHeader(dst, len(src))
	body := e.block(src)
	if body == nil {
		dst = appendBlockHeader(dst, blockRaw, len(src))
		return append(dst, src...), nil
	}
	dst = appendBlockHeader(dst, blockPacked, len(body))
	return append(dst, body...), nil
}

// appendFrameHeader appends magic, descriptor and content size: one byte below 256, else two that count from 256.
func appendFrameHeader(dst []byte, size int) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, frameMagic)
	if size < 256 {
		return append(dst, singleSegment, byte(size))
	}
	return binary.LittleEndian.AppendUint16(append(dst, singleSegment|1<<6), uint16(size-256))
}

// appendBlockHeader appends the three bytes of a frame's last block.
func appendBlockHeader(dst []byte, kind, size int) []byte {
	h := 1 | kind<<1 | size<<3
	return append(dst, byte(h), byte(h>>8), byte(h>>16))
}

// block returns the body of a compressed block for src, valid until the next call, or nil when it is to be stored raw.
func (e *Encoder) block(src []byte) []byte {
	if len(src) < minBlock {
		return nil
	}
	e.reset(len(src))
	rest := e.parse(src)
	e.storeLiterals(src, rest, len(src))
	n := e.writeLiterals(0)
	n, ok := e.writeSequences(n)
	if !ok || n >= len(src)-minGain(len(src)) {
		return nil
	}
	return e.body[:n]
}

// reset empties the tables and sizes them for an input of size bytes.
func (e *Encoder) reset(size int) {
	window := max(bits.Len(uint(size-1)), minWindowBits)
	e.longShift = uint8(64 - (window + 1))
	e.shortShift = uint8(32 - window)
	clear(e.long[:2<<window])
	clear(e.short[:1<<window])
	e.seqs = e.seqArray[:0]
	e.literals = e.litArray[:0]
}

// minGain returns how many bytes compressing n bytes must save at least.
func minGain(n int) int { return n>>gainShift + 2 }
