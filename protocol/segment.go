package protocol

import (
	"fmt"
	"strconv"
)

// Limits of wal_segment_size, a power of two.
//
// Source: PostgreSQL src/include/access/xlog_internal.h, WalSegMinSize and WalSegMaxSize (13-18).
const (
	MinSegmentSize = 1 << 20
	MaxSegmentSize = 1 << 30
)

// ValidSegmentSize reports whether bytes is a wal_segment_size that PostgreSQL accepts.
func ValidSegmentSize(bytes uint64) bool {
	return bytes >= MinSegmentSize && bytes <= MaxSegmentSize && bytes&(bytes-1) == 0
}

// SegmentName returns the file name of the segment that holds lsn: 24 upper-case hexadecimal digits.
// segmentSize must satisfy ValidSegmentSize.
//
// Source: PostgreSQL src/include/access/xlog_internal.h, XLogFileName (13-18).
func SegmentName(tli Timeline, lsn LSN, segmentSize uint64) string {
	segment, perID := uint64(lsn)/segmentSize, uint64(1<<32)/segmentSize
	return fmt.Sprintf("%08X%08X%08X", uint32(tli), segment/perID, segment%perID)
}

// ParseSegmentName reads a segment's file name and returns its timeline and the LSN of its first byte.
// Names with a suffix (".partial", ".backup") are an error, as are names that no segment of this size can have.
func ParseSegmentName(name string, segmentSize uint64) (Timeline, LSN, error) {
	bad := func() (Timeline, LSN, error) {
		return 0, 0, fmt.Errorf("parse WAL segment name %q: want 24 upper-case hexadecimal digits", name)
	}
	if len(name) != 24 {
		return bad()
	}
	var part [3]uint64
	for i := range part {
		digits := name[8*i : 8*i+8]
		for j := range len(digits) {
			if c := digits[j]; !(c >= '0' && c <= '9' || c >= 'A' && c <= 'F') {
				return bad()
			}
		}
		part[i], _ = strconv.ParseUint(digits, 16, 32) // eight hexadecimal digits always fit
	}
	perID := uint64(1<<32) / segmentSize
	if part[0] == 0 || part[2] >= perID {
		return 0, 0, fmt.Errorf("parse WAL segment name %q: no such segment when segments are %d bytes", name, segmentSize)
	}
	return Timeline(part[0]), LSN((part[1]*perID + part[2]) * segmentSize), nil
}

// HistoryName returns the file name of a timeline's history file. Timeline 1 has none.
func HistoryName(tli Timeline) string { return fmt.Sprintf("%08X.history", uint32(tli)) }
