package image

import (
	"bytes"
	"fmt"

	"walproxy/protocol/wal"
	"walproxy/recompress/image/lz4"
	"walproxy/recompress/image/pglz"
	"walproxy/recompress/image/zstd3"
)

// After so many images of a method in a row that no profile reproduces, only every so many-th is tried: the server
// uses a library that is not known, and trying costs as many runs as there are profiles.
const (
	missesToDoubt = 16
	doubtStride   = 16
)

// Opener expands stored images that an Encoder of the same build makes again, and remembers per method which profile did. It owns all
// of its memory and allocates nothing per image. It is not safe for concurrent use.
//
// The memory steers only which profile is tried first, so Reset it where a stream starts over: otherwise the choice between two profiles
// that both reproduce an image, and with it the frame's bytes, would depend on what this Opener did before.
type Opener struct {
	encoder Encoder
	zstd    *zstd3.Decoder
	last    [methods]Profile // Verbatim: none yet
	misses  [methods]int
	raw     [MaxRawBytes]byte
	again   []byte
}

// NewOpener returns an Opener that remembers nothing. It fails only if the zstd decoder cannot be made.
func NewOpener() (*Opener, error) {
	d, err := zstd3.NewDecoder()
	if err != nil {
		return nil, fmt.Errorf("make image opener: %w", err)
	}
	return &Opener{zstd: d, again: make([]byte, 0, 2*MaxRawBytes)}, nil
}

// Reset forgets which profiles reproduced.
func (o *Opener) Reset() {
	o.last = [methods]Profile{}
	o.misses = [methods]int{}
}

// Open expands stored, an image whose record says method m and a content of rawBytes (BLCKSZ less the hole). It returns the content,
// valid until the next call, and the profile with which Encoder.Append makes exactly stored from it. It returns nil and Verbatim for an
// image to carry as it is: method or bytes unknown, malformed, too large, or made by an encoder that is not known. stored is not retained.
//
// Work is bounded by rawBytes and len(stored): one expansion and one compression per profile of the method.
func (o *Opener) Open(m wal.Compression, stored []byte, rawBytes int) (raw []byte, p Profile) {
	if m == wal.Uncompressed || m >= methods || rawBytes <= 0 || rawBytes > MaxRawBytes || len(stored) >= rawBytes {
		return nil, Verbatim
	}
	if o.misses[m] >= missesToDoubt {
		o.misses[m]++
		if o.misses[m]%doubtStride != 0 {
			return nil, Verbatim
		}
	}
	raw = o.raw[:rawBytes]
	if err := o.expand(m, raw, stored); err != nil {
		return nil, Verbatim
	}
	remembered := o.last[m]
	if remembered != Verbatim && o.reproduces(remembered, raw, stored) {
		o.misses[m] = 0
		return raw, remembered
	}
	for _, p := range candidates[m] {
		if p != remembered && o.reproduces(p, raw, stored) {
			o.last[m], o.misses[m] = p, 0
			return raw, p
		}
	}
	o.misses[m]++
	return nil, Verbatim
}

// expand fills raw from stored, exactly, or fails.
func (o *Opener) expand(m wal.Compression, raw, stored []byte) error {
	switch m {
	case wal.PGLZ:
		return pglz.Decode(raw, stored)
	case wal.LZ4:
		return lz4.Decode(raw, stored)
	default:
		return o.zstd.Decode(raw, stored)
	}
}

// reproduces tells whether profile p makes stored from raw.
func (o *Opener) reproduces(p Profile, raw, stored []byte) bool {
	again, ok, err := o.encoder.append(o.again[:0], p, raw)
	if err != nil || !ok {
		return false
	}
	o.again = again[:0]
	return bytes.Equal(again, stored)
}
