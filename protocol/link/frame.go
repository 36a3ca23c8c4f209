// Package link is the format of compressed WAL: frames, the header of a window file, and the messages of a link between
// nodes. It is pure: bytes in, values out. FORMAT.md beside it describes every byte.
package link

import (
	"hash/crc32"

	"walproxy/protocol"
)

// Codec says what a frame's payload is.
type Codec uint8

// The codecs of format version 1. Numbers are part of the format and never reused.
const (
	CodecRaw         Codec = 0  // the WAL itself
	CodecZstd        Codec = 1  // a zstd stream over undone WAL, flushed at the frame's end
	CodecLZ4         Codec = 2  // an lz4 block over undone WAL
	CodecModel       Codec = 3  // WAL predicted by a model of its records and pages: package recompress/model
	CodecTimelineEnd Codec = 15 // no WAL: the timeline ended at Start; the payload is a TimelineEnd
)

func (c Codec) String() string {
	switch c {
	case CodecRaw:
		return "raw"
	case CodecZstd:
		return "zstd"
	case CodecLZ4:
		return "lz4"
	case CodecModel:
		return "model"
	case CodecTimelineEnd:
		return "timeline-end"
	}
	return "unknown"
}

// Limits of the format. A decoder refuses more before it allocates.
const (
	MinResetDistance = 1 << 20  // smallest reset distance
	MaxResetDistance = 64 << 20 // largest reset distance, hence the largest frame
	// MaxFrameHeaderBytes bounds the encoded header of a frame.
	MaxFrameHeaderBytes = 1 + fullBytes + streamBytes + 5 + 5 + 8
)

// ValidResetDistance reports whether bytes is a reset distance: a power of two from 1 MiB to 64 MiB.
func ValidResetDistance(bytes uint64) bool {
	return bytes >= MinResetDistance && bytes <= MaxResetDistance && bytes&(bytes-1) == 0
}

// Frame is a self-describing piece of one window of WAL.
//
// A frame stands alone (neither Starts nor Continues), starts a compression stream, or continues the stream that the frame
// with the checksum Stream started. A frame never crosses a reset boundary.
type Frame struct {
	Timeline  protocol.Timeline
	Start     protocol.LSN
	RawLen    uint32 // bytes of WAL; 0 only for CodecTimelineEnd
	Codec     Codec
	Starts    bool   // the payload starts a stream
	Continues bool   // the payload continues the stream Stream
	Stream    uint32 // Sum of the frame that started the stream; 0 unless Continues
	RawSum    uint32 // CRC-32C of the WAL; its lower half if the frame is Brief
	Sum       uint32 // CRC-32C of all of the above and the payload; a CRC-16 if the frame is Brief
	Payload   []byte // owned by whoever made the frame; see each producer for how long it is valid
}

// End returns the LSN behind the frame's last byte of WAL.
func (f *Frame) End() protocol.LSN { return f.Start + protocol.LSN(f.RawLen) }

// StreamID returns the identity of the stream that the frame belongs to, or 0 if it stands alone.
func (f *Frame) StreamID() uint32 {
	if f.Starts {
		return f.Sum
	}
	return f.Stream
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum returns the CRC-32C of b, the checksum of this format and of PostgreSQL's WAL records.
func Checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// Seal computes Sum from the other fields, and leaves of RawSum what a brief frame has of it. Every producer calls it once, when
// the frame is complete.
func (f *Frame) Seal() {
	if f.Brief() {
		f.RawSum &= briefMask
	}
	f.Sum = f.checksum()
}

// checksum covers the logical header in a fixed layout, whichever form travels, and the payload. A continuing frame's sum
// covers the identity of its stream too: behind another stream it does not check.
func (f *Frame) checksum() uint32 {
	if f.Brief() {
		h := f.head()
		return uint32(checksum16(checksum16(briefMask, h[:]), f.Payload))
	}
	return crc32.Update(f.headSum(), castagnoli, f.Payload)
}

// headSum returns the CRC-32C of head.
func (f *Frame) headSum() uint32 {
	sum, h := ^uint32(0), f.head()
	for _, v := range h { // byte by byte: given to hash/crc32, h would be allocated for each frame
		sum = castagnoli[byte(sum)^v] ^ sum>>8
	}
	return ^sum
}

// head returns what a frame's checksum covers in front of the payload.
func (f *Frame) head() (h [29]byte) {
	b := append(h[:0], byte(f.Codec)|f.flags())
	b = le.AppendUint32(b, uint32(f.Timeline))
	b = le.AppendUint64(b, uint64(f.Start))
	b = le.AppendUint32(b, f.Stream)
	b = le.AppendUint32(b, f.RawLen)
	b = le.AppendUint32(b, uint32(len(f.Payload)))
	le.AppendUint32(b, f.RawSum)
	return h
}

func (f *Frame) flags() byte {
	var flags byte
	if f.Starts {
		flags |= flagStarts
	}
	if f.Continues {
		flags |= flagContinues
	}
	return flags
}
