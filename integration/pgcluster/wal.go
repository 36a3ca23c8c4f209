package pgcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"walproxy/protocol"
)

// compareBytes is how much of each side CompareWAL holds in memory.
const compareBytes = 1 << 20

// Source is a directory with WAL segments of one segment size: a server's pg_wal, or what pg_receivewal writes.
type Source struct {
	Dir          string
	SegmentBytes uint64
}

// WAL returns the cluster's own WAL as a source. Only what is before FlushLSN is defined there.
func (c *Cluster) WAL() Source {
	return Source{Dir: c.WALDir(), SegmentBytes: c.Options.SegmentBytes()}
}

// MissingError says that a source does not hold the WAL at an LSN.
type MissingError struct {
	Dir      string
	Timeline protocol.Timeline
	LSN      protocol.LSN // the first missing byte
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("%s holds no WAL of timeline %d at %s", e.Dir, e.Timeline, e.LSN)
}

// DiffError says that two sources hold different WAL.
type DiffError struct {
	A, B     string // the two directories
	Timeline protocol.Timeline
	LSN      protocol.LSN // the first byte that differs
	ByteA    byte
	ByteB    byte
}

func (e *DiffError) Error() string {
	return fmt.Sprintf("WAL of timeline %d differs at %s: %#02x in %s, %#02x in %s",
		e.Timeline, e.LSN, e.ByteA, e.A, e.ByteB, e.B)
}

// ReadWAL returns the WAL of one timeline from one LSN to another, the latter not included. A segment is looked for by its
// name and then with the ending .partial. Errors: *MissingError if a segment is not there or too short.
func ReadWAL(source Source, timeline protocol.Timeline, from, to protocol.LSN) ([]byte, error) {
	if to < from {
		return nil, fmt.Errorf("read WAL from %s to %s: the end is before the start", from, to)
	}
	wal := make([]byte, to-from)
	if err := source.readAt(wal, timeline, from); err != nil {
		return nil, err
	}
	return wal, nil
}

// CompareWAL compares the WAL of one timeline in two sources byte for byte, from one LSN to another, the latter not
// included. Errors: *DiffError with the first difference, *MissingError if a side lacks a part of the range.
// The memory it takes does not depend on the range.
func CompareWAL(a, b Source, timeline protocol.Timeline, from, to protocol.LSN) error {
	if to < from {
		return fmt.Errorf("compare WAL from %s to %s: the end is before the start", from, to)
	}
	size := min(compareBytes, uint64(to-from))
	left, right := make([]byte, size), make([]byte, size)
	for lsn := from; lsn < to; {
		n := min(compareBytes, int(to-lsn))
		if err := a.readAt(left[:n], timeline, lsn); err != nil {
			return err
		}
		if err := b.readAt(right[:n], timeline, lsn); err != nil {
			return err
		}
		if i := firstDifference(left[:n], right[:n]); i >= 0 {
			return &DiffError{A: a.Dir, B: b.Dir, Timeline: timeline, LSN: lsn + protocol.LSN(i), ByteA: left[i], ByteB: right[i]}
		}
		lsn += protocol.LSN(n)
	}
	return nil
}

// AwaitWAL returns when b, which is being written, holds the same WAL as a from one LSN to another. Where b lacks WAL or
// still has the zeros that pg_receivewal fills a new segment with, it waits. Errors: *DiffError at once for a byte that
// differs and is not zero; what CompareWAL says last, if ctx ends first.
func AwaitWAL(ctx context.Context, a, b Source, timeline protocol.Timeline, from, to protocol.LSN) error {
	var last error
	err := Until(ctx, func() (bool, error) {
		last = CompareWAL(a, b, timeline, from, to)
		var missing *MissingError
		var diff *DiffError
		switch {
		case errors.As(last, &diff) && diff.ByteB == 0:
			from = diff.LSN // what is before it is the same already
			return false, nil
		case errors.As(last, &missing) && missing.Dir == b.Dir:
			return false, nil
		}
		return last == nil, last
	})
	if err != nil && ctx.Err() != nil && last != nil {
		return fmt.Errorf("%w: %w", err, last)
	}
	return err
}

// readAt fills dst with the WAL that starts at lsn, over as many segments as it takes.
func (s Source) readAt(dst []byte, timeline protocol.Timeline, lsn protocol.LSN) error {
	for len(dst) > 0 {
		n := min(uint64(len(dst)), uint64(lsn.Next(s.SegmentBytes)-lsn))
		read, err := s.readSegment(dst[:n], timeline, lsn)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, io.EOF):
			return &MissingError{Dir: s.Dir, Timeline: timeline, LSN: lsn + protocol.LSN(read)}
		case err != nil:
			return fmt.Errorf("read WAL at %s: %w", lsn, err)
		}
		dst, lsn = dst[n:], lsn+protocol.LSN(n)
	}
	return nil
}

// readSegment fills dst from one segment and returns how much of it was read.
func (s Source) readSegment(dst []byte, timeline protocol.Timeline, lsn protocol.LSN) (int, error) {
	path := filepath.Join(s.Dir, segmentName(timeline, lsn, s.SegmentBytes))
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		file, err = os.Open(path + ".partial")
	}
	if errors.Is(err, fs.ErrNotExist) {
		file, err = os.Open(path) // pg_receivewal may have completed it just now
	}
	if err != nil {
		return 0, err
	}
	defer file.Close()
	return file.ReadAt(dst, int64(lsn-lsn.Floor(s.SegmentBytes)))
}

func firstDifference(a, b []byte) int {
	if bytes.Equal(a, b) {
		return -1
	}
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}

// segmentName returns the file name of the segment that holds lsn.
//
// Source: PostgreSQL src/include/access/xlog_internal.h, XLogFileName (13-18).
func segmentName(timeline protocol.Timeline, lsn protocol.LSN, segmentBytes uint64) string {
	number, perID := uint64(lsn)/segmentBytes, uint64(1<<32)/segmentBytes
	return fmt.Sprintf("%08X%08X%08X", uint32(timeline), uint32(number/perID), uint32(number%perID))
}
