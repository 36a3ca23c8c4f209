package zstd3

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/klauspost/compress/zstd"
)

// ErrCorrupt says that a frame is malformed, is not of the kind that the server writes, or does not expand to the expected length.
var ErrCorrupt = errors.New("zstd: corrupt frame")

// Decoder expands frames. It is bounded whatever it reads: output never exceeds the expected length, the window never MaxRawBytes,
// and frames other than a single one of the kind that Encoder writes are refused unread. Once warm it allocates nothing, but for
// what a garbage collection takes out of the library's pools. It is not safe for concurrent use. Make one with NewDecoder; it holds
// no goroutine and needs no Close.
type Decoder struct {
	zstd *zstd.Decoder
}

// NewDecoder returns a decoder. It fails only if the library refuses its options.
func NewDecoder() (*Decoder, error) {
	d, err := zstd.NewReader(nil,
		zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(MaxRawBytes),
		zstd.WithDecoderMaxMemory(MaxRawBytes),
		zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		return nil, fmt.Errorf("make zstd decoder: %w", err)
	}
	return &Decoder{zstd: d}, nil
}

// Decode expands frame into dst, whose length is the raw length the record states. On error, always ErrCorrupt, dst holds anything.
// Neither slice is retained.
func (d *Decoder) Decode(dst, frame []byte) error {
	if !plausible(frame, len(dst)) {
		return ErrCorrupt
	}
	out, err := d.zstd.DecodeAll(frame, dst[:0:len(dst)])
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if len(out) != len(dst) {
		return ErrCorrupt
	}
	return nil
}

// plausible tells whether frame starts as appendFrameHeader begins one for size bytes, with one last block that fills the rest.
func plausible(frame []byte, size int) bool {
	if size == 0 || size > MaxRawBytes {
		return false
	}
	var room [16]byte
	header := appendFrameHeader(room[:0], size)
	n := len(header)
	if len(frame) < n+3 || string(frame[:n]) != string(header) {
		return false
	}
	block := int(binary.LittleEndian.Uint16(frame[n:])) | int(frame[n+2])<<16
	return block&1 == 1 && block>>1&3 == blockPacked && block>>3 == len(frame)-n-3
}
