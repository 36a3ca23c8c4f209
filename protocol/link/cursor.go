package link

import (
	"encoding/binary"
	"fmt"

	"walproxy/protocol"
)

// Version is the version of the frame format. FORMAT.md has one section for each.
const Version = 1

const (
	codecMask     = 0x0f
	flagStarts    = 0x10
	flagContinues = 0x20
	flagFull      = 0x40

	fullBytes   = 1 + 4 + 8 // version, timeline, start
	streamBytes = 4         // only in a full header of a continuing frame
)

var le = binary.LittleEndian

// Cursor is the place between two frames of a sequence. A frame that follows its predecessor directly travels with a compact
// header; after a jump, a change of timeline or a zero Cursor it carries the full one. Writer and reader of a sequence each
// keep a Cursor. The zero Cursor knows nothing and is ready to use. Not safe for concurrent use.
type Cursor struct {
	Timeline protocol.Timeline
	Next     protocol.LSN // where the next frame starts if it follows directly
	Stream   uint32       // identity of the last stream seen; 0 if none
	Codec    Codec        // of the frame before if it is part of that stream, else CodecRaw
	// ResetDistance, in bytes, bounds a decoded frame: it may not cross a multiple of it. 0 means MaxResetDistance.
	ResetDistance uint32
}

// Append appends the encoded frame f to dst, advances the cursor and returns the extended buffer. f must be sealed.
func (c *Cursor) Append(dst []byte, f *Frame) []byte {
	return append(c.AppendHeader(dst, f), f.Payload...)
}

// AppendHeader is Append without the payload, which has to follow.
func (c *Cursor) AppendHeader(dst []byte, f *Frame) []byte {
	dst = c.appendHeader(dst, f)
	c.follow(f)
	return dst
}

func (c *Cursor) appendHeader(dst []byte, f *Frame) []byte {
	head := byte(f.Codec) | f.flags()
	full := f.Timeline != c.Timeline || f.Start != c.Next || f.Continues && f.Stream != c.Stream
	if !full && f.Brief() && f.Codec == c.Codec {
		return f.appendBrief(dst)
	}
	if f.Brief() {
		head |= flagStarts
	}
	if full {
		dst = append(dst, head|flagFull, Version)
		dst = le.AppendUint32(dst, uint32(f.Timeline))
		dst = le.AppendUint64(dst, uint64(f.Start))
		if f.Continues {
			dst = le.AppendUint32(dst, f.Stream)
		}
	} else {
		dst = append(dst, head)
	}
	dst = binary.AppendUvarint(dst, uint64(f.RawLen))
	dst = binary.AppendUvarint(dst, uint64(len(f.Payload)))
	if f.Brief() {
		dst = le.AppendUint16(dst, uint16(f.RawSum))
		return le.AppendUint16(dst, uint16(f.Sum))
	}
	dst = le.AppendUint32(dst, f.RawSum)
	return le.AppendUint32(dst, f.Sum)
}

// Carries reports, by an error, whether header, which AppendHeader made, is read as that of f where the cursor was before. The
// payload of a raw frame whose two sums agree is not read.
//
// Errors: those of Decode, but ErrShort.
func (c *Cursor) Carries(header []byte, f *Frame) error {
	got := Frame{Timeline: c.Timeline, Start: c.Next}
	n, payload, err := c.header(&got, header)
	if err != nil {
		return err
	}
	got.Payload = f.Payload
	if n != len(header) || payload != len(f.Payload) || got.Timeline != f.Timeline || got.Start != f.Start || got.Codec != f.Codec ||
		got.Starts != f.Starts || got.Continues != f.Continues || got.Stream != f.Stream || got.RawLen != f.RawLen || got.RawSum != f.RawSum || got.Sum != f.Sum {
		return f.corrupt("the frame does not survive encoding")
	}
	if (f.Codec != CodecRaw || !got.CarriesWAL()) && got.checksum() != got.Sum {
		return f.corrupt("frame checksum")
	}
	return nil
}

// Decode reads one frame from the start of b and returns it with its encoded length. The payload is a slice of b.
// The cursor advances only if the frame is good.
//
// Errors: ErrShort if b ends before the frame does; *VersionError for another format version or an unknown codec;
// *CorruptError if a field breaks a rule of the format or the checksum is wrong; *UnseenStreamError if a compact
// header continues a stream that the cursor has not met. Nothing is allocated, whatever the lengths claim.
func (c *Cursor) Decode(b []byte) (f Frame, n int, err error) {
	f = Frame{Timeline: c.Timeline, Start: c.Next}
	n, payload, err := c.header(&f, b)
	if err != nil {
		return Frame{}, 0, err
	}
	if len(b)-n < payload {
		return Frame{}, 0, ErrShort
	}
	f.Payload = b[n : n+payload : n+payload]
	if f.checksum() != f.Sum {
		return Frame{}, 0, f.corrupt("frame checksum")
	}
	c.follow(&f)
	return f, n + payload, nil
}

func (c *Cursor) follow(f *Frame) {
	c.Timeline, c.Next, c.Codec = f.Timeline, f.End(), CodecRaw
	if id := f.StreamID(); id != 0 {
		c.Stream, c.Codec = id, f.Codec
	}
}

// FrameLen returns the encoded length of the frame at the start of b without checking its checksum, so that a reader
// knows how much to fetch. ErrShort means that b is too short even for the header.
func (c *Cursor) FrameLen(b []byte) (int, error) {
	f := Frame{Timeline: c.Timeline, Start: c.Next}
	n, payload, err := c.header(&f, b)
	return n + payload, err
}

// header decodes everything before the payload into f and returns the header's and the payload's length.
func (c *Cursor) header(f *Frame, b []byte) (n, payload int, err error) {
	if len(b) == 0 {
		return 0, 0, ErrShort
	}
	head := b[0]
	if head&flagBrief != 0 {
		return c.briefHeader(f, b)
	}
	f.Codec, f.Starts, f.Continues = Codec(head&codecMask), head&flagStarts != 0, head&flagContinues != 0
	marked := f.Starts && f.Continues
	f.Starts = f.Starts && !marked
	n = 1
	if head&flagFull != 0 {
		if n, err = f.fullHeader(b); err != nil {
			return 0, 0, err
		}
	} else {
		if c.Timeline == 0 {
			return 0, 0, f.corrupt("compact header without a predecessor")
		}
		if f.Continues {
			if c.Stream == 0 {
				return 0, 0, &UnseenStreamError{Timeline: f.Timeline, LSN: f.Start}
			}
			f.Stream = c.Stream
		}
	}
	rawLen, n, err := uvarint(b, n)
	if err != nil {
		return 0, 0, f.wrap(err, "raw length")
	}
	payloadLen, n, err := uvarint(b, n)
	if err != nil {
		return 0, 0, f.wrap(err, "payload length")
	}
	if err := c.check(f, head, rawLen, payloadLen); err != nil {
		return 0, 0, err
	}
	if marked != brief(f.Continues, rawLen, payloadLen) {
		return 0, 0, f.corrupt("lengths and flags disagree on whether the frame is brief")
	}
	if marked {
		if len(b)-n < 4 {
			return 0, 0, ErrShort
		}
		f.RawLen, f.RawSum, f.Sum = uint32(rawLen), uint32(le.Uint16(b[n:])), uint32(le.Uint16(b[n+2:]))
		return n + 4, int(payloadLen), nil
	}
	if len(b)-n < 8 {
		return 0, 0, ErrShort
	}
	f.RawLen, f.RawSum, f.Sum = uint32(rawLen), le.Uint32(b[n:]), le.Uint32(b[n+4:])
	return n + 8, int(payloadLen), nil
}

func (f *Frame) fullHeader(b []byte) (n int, err error) {
	if len(b) < 2 {
		return 0, ErrShort
	}
	if b[1] != Version {
		return 0, &VersionError{What: "frame format version", Got: int(b[1])}
	}
	if n = 1 + fullBytes; len(b) < n {
		return 0, ErrShort
	}
	f.Timeline, f.Start = protocol.Timeline(le.Uint32(b[2:])), protocol.LSN(le.Uint64(b[6:]))
	if f.Continues {
		if len(b) < n+streamBytes {
			return 0, ErrShort
		}
		f.Stream = le.Uint32(b[n:])
		n += streamBytes
	}
	return n, nil
}

// check enforces the rules that hold between the header's fields.
func (c *Cursor) check(f *Frame, head byte, rawLen, payloadLen uint64) error {
	limit := uint64(c.ResetDistance)
	if limit == 0 {
		limit = MaxResetDistance
	}
	room := limit - uint64(f.Start)&(limit-1) // bytes up to the next boundary
	switch {
	case f.Codec != CodecTimelineEnd && f.Codec > CodecModel:
		return &VersionError{What: "codec", Got: int(f.Codec)}
	case f.Timeline == 0:
		return f.corrupt("timeline 0")
	case f.Continues && room == limit:
		return f.corrupt("continues a stream over a reset boundary")
	case f.Codec == CodecTimelineEnd:
		return f.checkTimelineEnd(rawLen, payloadLen)
	case rawLen == 0 || rawLen > room || uint64(f.Start)+rawLen < rawLen:
		return f.corrupt(fmt.Sprintf("raw length %d with %d bytes left in the window", rawLen, room))
	case f.Codec == CodecRaw && (f.Starts || f.Continues || payloadLen != rawLen):
		return f.corrupt(fmt.Sprintf("raw frame of %d bytes with a payload of %d", rawLen, payloadLen))
	case f.Codec != CodecRaw && payloadLen >= rawLen:
		return f.corrupt(fmt.Sprintf("payload of %d bytes for %d bytes of WAL", payloadLen, rawLen))
	}
	return nil
}

func (f *Frame) checkTimelineEnd(rawLen, payloadLen uint64) error {
	if rawLen != 0 || f.Starts || f.Continues || payloadLen < 4 || payloadLen > 4+protocol.MaxHistoryBytes {
		return f.corrupt("malformed end of timeline")
	}
	return nil
}

// uvarint reads a base-128 number below 2^32 in its shortest form at b[at:].
func uvarint(b []byte, at int) (v uint64, next int, err error) {
	for shift := 0; shift < 35; shift += 7 {
		if at >= len(b) {
			return 0, 0, ErrShort
		}
		c := b[at]
		at++
		v |= uint64(c&0x7f) << shift
		if c < 0x80 {
			if c == 0 && shift > 0 || v >= 1<<32 {
				break
			}
			return v, at, nil
		}
	}
	return 0, 0, ErrCorrupt
}
