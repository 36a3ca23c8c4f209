// Package continuous archives a node's WAL as it comes in: an ordinary consumer with a slot, which stores a cell of WAL as soon as
// it is complete and, with a tail, also what is there of the newest one.
package continuous

import (
	"context"

	"walproxy/archive"
	"walproxy/protocol"
	"walproxy/protocol/link"
)

// Spool is a node's log of WAL as an archiver sees it. Safe for concurrent use with whoever writes.
type Spool interface {
	// Identity returns whose WAL it is; false until that is known.
	Identity() (archive.Identity, bool)
	// ResetDistance returns the length in bytes of the windows that begin now.
	ResetDistance() uint32
	// Lines returns what is held from tli on, timelines and windows ascending: of tli itself the windows that begin at or behind
	// start. There are none while there is no WAL.
	Lines(tli protocol.Timeline, start protocol.LSN) []Line
	// History returns the content of a timeline's history file.
	History(tli protocol.Timeline) ([]byte, bool)
	// Sealed appends the file of the sealed window of tli that begins at start to dst.
	Sealed(dst []byte, tli protocol.Timeline, start protocol.LSN) ([]byte, error)
	// Frames shows the frames of the window of tli that begins at start to visit, until they reach end, which is held; behind
	// the last one of a timeline that has ended comes the frame that says so. A frame is valid during the visit.
	Frames(ctx context.Context, tli protocol.Timeline, start, end protocol.LSN, visit func(*link.Frame) error) error
	// Changed returns a channel that is closed at the next change. Take it before looking.
	Changed() <-chan struct{}
}

// Line is what is held of one timeline.
type Line struct {
	Timeline protocol.Timeline
	End      protocol.LSN      // behind the last byte; the switch point once Next is set
	Next     protocol.Timeline // 0 while the timeline goes on
	Windows  []Window          // ascending, contiguous
}

// Window is one window of a line.
type Window struct {
	Start         protocol.LSN
	End           protocol.LSN // behind the last byte; it may lie beyond the line's End, or below Start if the line ended before it
	Sealed        bool
	Closed        bool   // nothing is added any more
	ResetDistance uint32 // bytes
}

// Slot holds WAL in the spool for the archiver. Safe for concurrent use.
type Slot interface {
	// Hold makes the slot if it is missing, or a good one of it again if it was invalidated, with WAL kept from lsn on; a good
	// slot stays where it is. It returns from where WAL is kept, and whether the slot had been invalidated. Durable on return.
	Hold(lsn protocol.LSN) (from protocol.LSN, lost bool, err error)
	// Advance lets go of WAL below stored, and tells the node that reached is in the archive too.
	Advance(tli protocol.Timeline, stored, reached protocol.LSN)
}
