package wal

import (
	"encoding/binary"

	"walproxy/protocol"
)

// Sizes of page headers, and the limits of a WAL block, a power of two.
//
// Source: PostgreSQL src/include/access/xlog_internal.h, SizeOfXLogShortPHD, SizeOfXLogLongPHD (13-18); configure, --with-wal-blocksize.
const (
	ShortHeaderBytes = 24
	LongHeaderBytes  = 40
	DefaultPageSize  = 8192
	MinPageSize      = 1 << 10
	MaxPageSize      = 64 << 10

	DefaultSegmentSize = 16 << 20
)

// PageFlags is xlp_info.
type PageFlags uint16

// The flags of a page. Servers before 13.5 and 14.1 know no OverwroteContrecord.
const (
	FirstIsContrecord   PageFlags = 1 << iota // the page begins with the rest of a record
	LongHeader                                // system identifier and sizes follow
	BackupRemovable                           // no base backup was running
	OverwroteContrecord                       // the record before was lost in a crash; this page begins with a new one

	allPageFlags = 1<<iota - 1
)

// PageHeader stands at the start of each WAL page:
//
//	 0  u16 magic     2  u16 flags    4  u32 timeline
//	 8  u64 address (the page's own LSN)
//	16  u32 bytes left of the record that goes on here, from this page on    20  u32 unused
//	24  u64 system identifier   32  u32 segment size   36  u32 WAL block size      (long headers only)
//
// Source: PostgreSQL src/include/access/xlog_internal.h, XLogPageHeaderData, XLogLongPageHeaderData (13-18).
type PageHeader struct {
	Version     Version
	Flags       PageFlags
	Timeline    protocol.Timeline // at the time the page was begun: after a fork, the parent's on the page that holds the switch point
	Addr        protocol.LSN
	RemLen      uint32
	Unused      uint32 // zero from every known server
	SystemID    protocol.SystemID
	SegmentSize uint32
	PageSize    uint32
}

// Bytes returns the length of the encoded header.
func (h *PageHeader) Bytes() int {
	if h.Flags&LongHeader != 0 {
		return LongHeaderBytes
	}
	return ShortHeaderBytes
}

var le = binary.LittleEndian

// ParsePageHeader decodes the header that begins page and returns it with its length. page is not retained. Nothing but the
// magic is checked; PageHeader.Check does the rest.
//
// Errors: ErrShort; *VersionError with no LSN if the magic is not that of a known version.
func ParsePageHeader(page []byte) (PageHeader, int, error) {
	var h PageHeader
	n, rule := h.parse(page)
	switch {
	case rule != RuleNone:
		return PageHeader{}, 0, &VersionError{Magic: le.Uint16(page)}
	case n == 0:
		return PageHeader{}, 0, ErrShort
	}
	return h, n, nil
}

// PageHeaderBytes returns the length of the header at the start of b if b looks like the page at pos: a known magic, no unknown
// flag, its own address. 0 if not, or if b is shorter than the header. It allocates nothing, whatever b is.
func PageHeaderBytes(b []byte, pos protocol.LSN) int {
	if len(b) < ShortHeaderBytes || le.Uint64(b[8:]) != uint64(pos) || VersionOf(le.Uint16(b)) == 0 {
		return 0
	}
	h := PageHeader{Flags: PageFlags(le.Uint16(b[2:]))}
	if h.Flags&^allPageFlags != 0 || len(b) < h.Bytes() {
		return 0
	}
	return h.Bytes()
}

// parse returns 0 if bytes are missing.
func (h *PageHeader) parse(b []byte) (int, Rule) {
	if len(b) < ShortHeaderBytes {
		return 0, RuleNone
	}
	*h = PageHeader{
		Version: VersionOf(le.Uint16(b)), Flags: PageFlags(le.Uint16(b[2:])), Timeline: protocol.Timeline(le.Uint32(b[4:])),
		Addr: protocol.LSN(le.Uint64(b[8:])), RemLen: le.Uint32(b[16:]), Unused: le.Uint32(b[20:]),
	}
	if h.Version == 0 {
		return 0, RuleMagic
	}
	if h.Flags&LongHeader == 0 {
		return ShortHeaderBytes, RuleNone
	}
	if len(b) < LongHeaderBytes {
		return 0, RuleNone
	}
	h.SystemID, h.SegmentSize, h.PageSize = protocol.SystemID(le.Uint64(b[24:])), le.Uint32(b[32:]), le.Uint32(b[36:])
	return LongHeaderBytes, RuleNone
}

// Append appends the encoded header to dst and returns the extended buffer. It is the inverse of ParsePageHeader for every header.
func (h *PageHeader) Append(dst []byte) []byte {
	dst = le.AppendUint16(dst, h.Version.Magic())
	dst = le.AppendUint16(dst, uint16(h.Flags))
	dst = le.AppendUint32(dst, uint32(h.Timeline))
	dst = le.AppendUint64(dst, uint64(h.Addr))
	dst = le.AppendUint32(dst, h.RemLen)
	dst = le.AppendUint32(dst, h.Unused)
	if h.Flags&LongHeader == 0 {
		return dst
	}
	dst = le.AppendUint64(dst, uint64(h.SystemID))
	dst = le.AppendUint32(dst, h.SegmentSize)
	return le.AppendUint32(dst, h.PageSize)
}

// Stream is what the pages of one stretch of WAL have in common. Zero fields are unknown and agree with anything.
type Stream struct {
	Version     Version
	SystemID    protocol.SystemID
	SegmentSize uint32
	PageSize    uint32
	Timeline    protocol.Timeline // of the page before
}

// Check holds h, found at addr, against what is known of the stream. It makes the checks of the server's reader.
//
// Errors: *PageError.
func (h *PageHeader) Check(addr protocol.LSN, s *Stream) error {
	if rule := h.check(addr, s); rule != RuleNone {
		return &PageError{LSN: addr, Rule: rule}
	}
	return nil
}

func (h *PageHeader) check(addr protocol.LSN, s *Stream) Rule {
	long := h.Flags&LongHeader != 0
	switch {
	case s.Version != 0 && h.Version != s.Version:
		return RuleMagic
	case h.Flags&^allPageFlags != 0:
		return RulePageInfo
	case h.Addr != addr:
		return RulePageAddr
	case s.SegmentSize != 0 && long != (uint64(addr)%uint64(s.SegmentSize) == 0):
		return RuleLongHeader
	case long && s.SystemID != 0 && h.SystemID != s.SystemID:
		return RuleSystemID
	case long && s.SegmentSize != 0 && h.SegmentSize != s.SegmentSize:
		return RuleSegmentSize
	case long && s.PageSize != 0 && h.PageSize != s.PageSize:
		return RuleBlockSize
	case h.Timeline < s.Timeline:
		return RuleTimeline
	}
	return RuleNone
}

// IsZero reports whether b holds nothing but zero bytes.
func IsZero(b []byte) bool {
	for len(b) >= 8 {
		if le.Uint64(b) != 0 {
			return false
		}
		b = b[8:]
	}
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
