package link

import (
	"fmt"

	"walproxy/protocol"
)

// WindowHeaderBytes is the length of the header of a window file in format version 1.
const WindowHeaderBytes = 84

// WindowMagic begins every window file, sealed or not.
const WindowMagic = "WALPROXW"

// WindowKind tells a window that still grows from one that is complete.
type WindowKind uint8

const (
	WindowLive   WindowKind = 1 // frames are appended; no index
	WindowSealed WindowKind = 2 // immutable: frames, then an index
)

// WindowHeader begins a window file: whose WAL it is, and which part of it.
type WindowHeader struct {
	Kind          WindowKind
	SystemID      protocol.SystemID
	Timeline      protocol.Timeline
	SegmentSize   uint32       // wal_segment_size in bytes
	WALBlockSize  uint32       // wal_block_size in bytes
	ResetDistance uint32       // bytes; the window is [Start.Floor(ResetDistance), the next boundary)
	Start         protocol.LSN // first byte held; above the boundary if the node began here
	// A sealed window also says where it ends and where its index lies; all zero in a live one.
	End         protocol.LSN // behind the last byte held; the switch point, which may lie below Start, if the timeline ends here
	IndexOffset uint64       // in the file; frames lie before it
	IndexBytes  uint32       // the file ends behind them
}

// Append appends the encoded header, WindowHeaderBytes long, to dst and returns the extended buffer.
func (h WindowHeader) Append(dst []byte) []byte {
	from := len(dst)
	dst = append(dst, WindowMagic...)
	dst = le.AppendUint16(dst, Version)
	dst = append(dst, byte(h.Kind), 0)
	dst = le.AppendUint32(dst, WindowHeaderBytes)
	dst = le.AppendUint64(dst, uint64(h.SystemID))
	dst = le.AppendUint32(dst, uint32(h.Timeline))
	dst = le.AppendUint32(dst, h.SegmentSize)
	dst = le.AppendUint32(dst, h.WALBlockSize)
	dst = le.AppendUint32(dst, h.ResetDistance)
	dst = le.AppendUint64(dst, uint64(h.Start))
	dst = le.AppendUint64(dst, uint64(h.End))
	dst = le.AppendUint64(dst, h.IndexOffset)
	dst = le.AppendUint32(dst, h.IndexBytes)
	dst = append(dst, make([]byte, 12)...) // reserved
	return le.AppendUint32(dst, Checksum(dst[from:]))
}

// DecodeWindowHeader reads the header at the start of b.
//
// Errors: ErrShort, *VersionError, or an error of class ErrCorrupt.
func DecodeWindowHeader(b []byte) (WindowHeader, error) {
	bad := func(what string) (WindowHeader, error) {
		return WindowHeader{}, fmt.Errorf("%w window header: %s", ErrCorrupt, what)
	}
	if len(b) < len(WindowMagic)+2 {
		return WindowHeader{}, ErrShort
	}
	if string(b[:8]) != WindowMagic {
		return bad("this is not a window file")
	}
	if version := le.Uint16(b[8:]); version != Version {
		return WindowHeader{}, &VersionError{What: "window format version", Got: int(version)}
	}
	if len(b) < WindowHeaderBytes {
		return WindowHeader{}, ErrShort
	}
	if le.Uint32(b[WindowHeaderBytes-4:]) != Checksum(b[:WindowHeaderBytes-4]) {
		return bad("checksum")
	}
	h := WindowHeader{
		Kind: WindowKind(b[10]), SystemID: protocol.SystemID(le.Uint64(b[16:])), Timeline: protocol.Timeline(le.Uint32(b[24:])),
		SegmentSize: le.Uint32(b[28:]), WALBlockSize: le.Uint32(b[32:]), ResetDistance: le.Uint32(b[36:]),
		Start: protocol.LSN(le.Uint64(b[40:])), End: protocol.LSN(le.Uint64(b[48:])),
		IndexOffset: le.Uint64(b[56:]), IndexBytes: le.Uint32(b[64:]),
	}
	switch {
	case h.Kind != WindowLive && h.Kind != WindowSealed:
		return WindowHeader{}, &VersionError{What: "window kind", Got: int(h.Kind)}
	case b[11] != 0 || le.Uint32(b[12:]) != WindowHeaderBytes || le.Uint64(b[68:]) != 0 || le.Uint32(b[76:]) != 0:
		return bad("reserved bytes are set")
	case h.Timeline == 0 || !protocol.ValidSegmentSize(uint64(h.SegmentSize)) || !ValidResetDistance(uint64(h.ResetDistance)):
		return bad(fmt.Sprintf("timeline %d, segment size %d, reset distance %d", h.Timeline, h.SegmentSize, h.ResetDistance))
	case h.Kind == WindowLive && (h.End != 0 || h.IndexOffset != 0 || h.IndexBytes != 0):
		return bad("a live window has no index")
	case h.Kind == WindowSealed && !h.validSealed():
		return bad(fmt.Sprintf("end %s, index of %d bytes at offset %d", h.End, h.IndexBytes, h.IndexOffset))
	}
	return h, nil
}

// validSealed reports whether end and index are possible.
func (h WindowHeader) validSealed() bool {
	distance := uint64(h.ResetDistance)
	room := distance - uint64(h.Start)&(distance-1)
	return (h.End < h.Start || uint64(h.End-h.Start) <= room) && // below: the timeline ended before the window
		h.IndexOffset > WindowHeaderBytes && h.IndexBytes >= minIndexBytes && h.IndexBytes <= MaxIndexBytes &&
		h.IndexOffset <= MaxWindowBytes-uint64(h.IndexBytes)
}

// FileBytes returns the length of a sealed window's file; that of the header for a live one.
func (h WindowHeader) FileBytes() int64 {
	if h.Kind != WindowSealed {
		return WindowHeaderBytes
	}
	return int64(h.IndexOffset) + int64(h.IndexBytes)
}
