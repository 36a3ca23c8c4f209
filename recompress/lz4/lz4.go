// Package lz4 codes bytes as one lz4 block per frame, without history: what repeats from frame to frame is taken out before, by
// package recompress/undo. It is pure and holds no goroutine.
//
// A payload is a block as in the lz4 block format, or the bytes themselves if a block would not be shorter.
package lz4

import (
	"errors"
	"fmt"
	"slices"

	"github.com/pierrec/lz4/v4"

	"walproxy/protocol"
)

var errCorrupt = errors.New("lz4 block does not hold what it claims")

// searches are the depths for levels 1 3 5 10 16; the first two are the fast search.
var searches = map[int]lz4.CompressionLevel{1: lz4.Fast, 3: lz4.Fast, 5: lz4.Level3, 10: lz4.Level6, 16: lz4.Level9}

// Encoder makes blocks. Its tables are reused. Not safe for concurrent use.
type Encoder struct {
	compress func(src, dst []byte) (int, error)
	block    []byte
}

// NewEncoder returns an encoder of the given level: 1, 3, 5, 10 or 16.
func NewEncoder(level int) (*Encoder, error) {
	search, ok := searches[level]
	if !ok {
		return nil, fmt.Errorf("lz4 level %d: want one of 1, 3, 5, 10 and 16", level)
	}
	if search == lz4.Fast {
		return &Encoder{compress: new(lz4.Compressor).CompressBlock}, nil
	}
	return &Encoder{compress: (&lz4.CompressorHC{Level: search}).CompressBlock}, nil
}

// Begin does nothing: there is no history.
func (e *Encoder) Begin(protocol.Timeline, protocol.LSN) {}

// Append appends the payload that carries src to dst and returns the extended buffer. src is not retained.
func (e *Encoder) Append(dst, src []byte) ([]byte, error) {
	bound := lz4.CompressBlockBound(len(src))
	if cap(e.block) < bound {
		e.block = make([]byte, bound)
	}
	n, err := e.compress(src, e.block[:bound])
	if err != nil {
		return dst, fmt.Errorf("encode lz4: %w", err)
	}
	if n == 0 || n >= len(src) {
		return append(dst, src...), nil
	}
	return append(dst, e.block[:n]...), nil
}

// Decoder undoes an Encoder.
type Decoder struct{}

// Begin does nothing.
func (Decoder) Begin(protocol.Timeline, protocol.LSN) error { return nil }

// Append appends to dst the n bytes that payload carries and returns the extended buffer. payload is not retained. An error means
// that no encoder made payload.
func (Decoder) Append(dst, payload []byte, n int) ([]byte, error) {
	if len(payload) == n {
		return append(dst, payload...), nil
	}
	// A byte of a block stands for 255 at most, so what is allocated follows what there is.
	if len(payload) > n || n > 255*len(payload) {
		return dst, errCorrupt
	}
	from := len(dst)
	dst = slices.Grow(dst, n)
	got, err := lz4.UncompressBlock(payload, dst[from:from+n])
	if err != nil || got != n {
		return dst[:from], errCorrupt
	}
	return dst[:from+n], nil
}
