package spool

import (
	"errors"
	"fmt"

	"walproxy/protocol"
	"walproxy/protocol/link"
)

var (
	// ErrGap means that a frame does not begin where the log ends.
	ErrGap = errors.New("frame does not follow the end of the spool")
	// ErrFull is the class of errors that say there is no room: the cap is reached, or the disk is full. Nothing was
	// written; the same Append succeeds once there is room.
	ErrFull = errors.New("spool is full")
	// ErrNotYet means that a position lies above what is held.
	ErrNotYet = errors.New("WAL is not here yet")
	// ErrNoTimeline means that a timeline is not part of the log, although older and newer ones are.
	ErrNoTimeline = errors.New("timeline is not part of the spool")
	// ErrNoIdentity means that the log does not know yet whose WAL it holds.
	ErrNoIdentity = errors.New("spool has no identity yet")
	// ErrHistoryDiffers means that another content is stored as this timeline's history.
	ErrHistoryDiffers = errors.New("timeline history differs from the one stored")
	// ErrClosed means that the log or reader was closed.
	ErrClosed = errors.New("spool is closed")
)

// CorruptError says that a file of the data directory is not what was written. It is a link.ErrCorrupt.
type CorruptError struct {
	File     string
	Offset   int64 // bytes into File
	Timeline protocol.Timeline
	LSN      protocol.LSN // first WAL that cannot be read; 0 for files without WAL
	Err      error
	Hint     string // what the operator can do
}

func (e *CorruptError) Error() string {
	text := "corrupt file " + e.File
	if e.LSN != 0 || e.Timeline != 0 {
		text += fmt.Sprintf(" at offset %d, WAL from %s on timeline %d", e.Offset, e.LSN, e.Timeline)
	}
	return fmt.Sprintf("%s: %v; %s", text, e.Err, e.Hint)
}

// Is makes every CorruptError one of the class link.ErrCorrupt, whatever the cause.
func (e *CorruptError) Is(target error) bool { return target == link.ErrCorrupt }

func (e *CorruptError) Unwrap() error { return e.Err }

// RemovedError says that a position lies below what is held.
type RemovedError struct {
	Timeline protocol.Timeline
	LSN      protocol.LSN // asked for
	Oldest   protocol.LSN // first byte held of the oldest timeline that is held
}

func (e *RemovedError) Error() string {
	return fmt.Sprintf("WAL at %s on timeline %d is no longer in the spool, which begins at %s", e.LSN, e.Timeline, e.Oldest)
}

// IdentityError says that WAL belongs to another cluster than the one in the data directory.
type IdentityError struct {
	Have, Got protocol.Identity
}

func (e *IdentityError) Error() string {
	return fmt.Sprintf("data directory belongs to system %s with WAL segments of %d bytes, the upstream is system %s with %d bytes; "+
		"use another data directory for another cluster",
		e.Have.SystemID, e.Have.SegmentSize, e.Got.SystemID, e.Got.SegmentSize)
}
