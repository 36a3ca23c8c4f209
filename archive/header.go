package archive

import (
	"encoding/binary"
	"fmt"

	"walproxy/protocol"
	"walproxy/protocol/link"
)

// ObjectVersion is the version of the format of WAL objects.
const ObjectVersion = 1

// Limits of a WAL object. A decoder refuses more before it allocates.
const (
	// MaxObjectWAL bounds the WAL of an object in bytes: the largest segment.
	MaxObjectWAL = protocol.MaxSegmentSize
	// MaxWindows bounds the windows of an object.
	MaxWindows = 2048
	// MaxHeadBytes bounds header and index: a reader that fetches so much from the start has both.
	MaxHeadBytes = headerBytes + MaxWindows*entryBytes + 4

	// Magic begins every WAL object.
	Magic = "WALPROXA"

	headerBytes = 80
	entryBytes  = 12
)

var le = binary.LittleEndian

// Header begins a WAL object: whose WAL it is, and which part of it. The index behind it is in Windows.
type Header struct {
	Identity
	Span
	Windows []Window // one or more, contiguous, ascending
	Bytes   int64    // of the object
	RawSum  uint32   // CRC-32C of the WAL of all frames
}

// Window says where a sealed window lies in its object.
type Window struct {
	Start    protocol.LSN // first byte of WAL held
	RawBytes uint32       // of WAL in its frames; beyond the span's end if the timeline ended before
	RawSum   uint32       // CRC-32C of that WAL
	Offset   int64        // in the object
	Bytes    uint32       // of the window's file
}

// End returns the LSN behind the last byte of WAL in the window's frames.
func (w Window) End() protocol.LSN { return w.Start + protocol.LSN(w.RawBytes) }

// HeadBytes returns the length of header and index.
func (h *Header) HeadBytes() int { return headBytes(len(h.Windows)) }

func headBytes(windows int) int { return headerBytes + windows*entryBytes + 4 }

// Append appends header and index to dst and returns the extended buffer.
func (h *Header) Append(dst []byte) []byte {
	from := len(dst)
	dst = append(dst, Magic...)
	dst = le.AppendUint16(dst, ObjectVersion)
	dst = le.AppendUint16(dst, uint16(h.Major))
	dst = le.AppendUint32(dst, uint32(h.HeadBytes()))
	dst = le.AppendUint64(dst, uint64(h.SystemID))
	dst = le.AppendUint32(dst, uint32(h.Timeline))
	dst = le.AppendUint32(dst, h.SegmentSize)
	dst = le.AppendUint32(dst, h.WALBlockSize)
	dst = le.AppendUint32(dst, uint32(len(h.Windows)))
	dst = le.AppendUint64(dst, uint64(h.Start))
	dst = le.AppendUint64(dst, uint64(h.End))
	dst = le.AppendUint64(dst, uint64(h.Bytes))
	dst = le.AppendUint32(dst, h.RawSum)
	dst = append(dst, make([]byte, 12)...) // reserved
	for _, w := range h.Windows {
		dst = le.AppendUint32(dst, w.Bytes)
		dst = le.AppendUint32(dst, w.RawBytes)
		dst = le.AppendUint32(dst, w.RawSum)
	}
	return le.AppendUint32(dst, link.Checksum(dst[from:]))
}

// DecodeHeader reads header and index at the start of b. Nothing of b is retained.
//
// Errors: link.ErrShort if b ends before them; *VersionError; an error of class link.ErrCorrupt.
func DecodeHeader(b []byte) (Header, error) {
	bad := func(format string, args ...any) (Header, error) {
		return Header{}, fmt.Errorf("%w object header: %s", link.ErrCorrupt, fmt.Sprintf(format, args...))
	}
	if len(b) < len(Magic)+2 {
		return Header{}, link.ErrShort
	}
	if string(b[:len(Magic)]) != Magic {
		return bad("this is not a WAL object")
	}
	if version := le.Uint16(b[8:]); version != ObjectVersion {
		return Header{}, &VersionError{What: "object format version", Got: int(version)}
	}
	if len(b) < headerBytes {
		return Header{}, link.ErrShort
	}
	count, length := le.Uint32(b[36:]), le.Uint32(b[12:])
	if count == 0 || count > MaxWindows || int64(length) != int64(headBytes(int(count))) {
		return bad("%d windows, %d bytes", count, length)
	}
	if uint64(len(b)) < uint64(length) {
		return Header{}, link.ErrShort
	}
	if b = b[:length]; le.Uint32(b[length-4:]) != link.Checksum(b[:length-4]) {
		return bad("checksum")
	}
	h := Header{
		Identity: Identity{SystemID: protocol.SystemID(le.Uint64(b[16:])), Major: int(le.Uint16(b[10:])),
			SegmentSize: le.Uint32(b[28:]), WALBlockSize: le.Uint32(b[32:])},
		Span:  Span{Timeline: protocol.Timeline(le.Uint32(b[24:])), Start: protocol.LSN(le.Uint64(b[40:])), End: protocol.LSN(le.Uint64(b[48:]))},
		Bytes: int64(le.Uint64(b[56:])), RawSum: le.Uint32(b[64:]),
	}
	switch {
	case le.Uint32(b[68:]) != 0 || le.Uint64(b[72:]) != 0:
		return bad("reserved bytes are set")
	case !h.valid() || h.Timeline == 0 || h.End <= h.Start || h.End-h.Start > MaxObjectWAL:
		return bad("%s, WAL from %s to %s on timeline %d", h.Identity, h.Start, h.End, h.Timeline)
	}
	if !h.decodeIndex(b[headerBytes:length-4], int(count)) {
		return bad("the index does not fit the header")
	}
	return h, nil
}

// decodeIndex reads the entries and holds them against the header.
func (h *Header) decodeIndex(b []byte, count int) bool {
	h.Windows = make([]Window, count)
	next, offset, sum := h.Start, int64(headBytes(count)), uint32(0)
	for i := range h.Windows {
		e := b[i*entryBytes:]
		w := Window{Start: next, Offset: offset, Bytes: le.Uint32(e), RawBytes: le.Uint32(e[4:]), RawSum: le.Uint32(e[8:])}
		if w.Bytes <= link.WindowHeaderBytes || w.RawBytes == 0 || w.RawBytes > link.MaxResetDistance || w.End() < w.Start || w.Start >= h.End {
			return false
		}
		h.Windows[i] = w
		next, offset, sum = w.End(), offset+int64(w.Bytes), link.CombineSums(sum, w.RawSum, uint64(w.RawBytes))
	}
	return next >= h.End && offset == h.Bytes && sum == h.RawSum
}

// Find returns the windows that hold WAL from lsn up to end, as a range of h.Windows.
func (h *Header) Find(lsn, end protocol.LSN) (from, to int) {
	for from < len(h.Windows) && h.Windows[from].End() <= lsn {
		from++
	}
	for to = from; to < len(h.Windows) && h.Windows[to].Start < end; to++ {
	}
	return from, to
}
