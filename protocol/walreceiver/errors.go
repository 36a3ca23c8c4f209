package walreceiver

import (
	"errors"
	"fmt"
	"time"

	"walproxy/protocol"
)

// DivergedError says that the upstream's WAL differs from what is held already at the same LSN: one of the two has been
// rewritten. Nothing after LSN can be trusted, so the receiver stops.
type DivergedError struct {
	Timeline protocol.Timeline
	LSN      protocol.LSN // of the first byte that differs
	Peer     string
}

func (e *DivergedError) Error() string {
	return fmt.Sprintf("WAL held here differs from the upstream's (%s) at %s on timeline %d: the histories have diverged; "+
		"find out which copy is right, and start again with an empty data directory if it is the upstream's", e.Peer, e.LSN, e.Timeline)
}

// Fatal reports that trying again does not help.
func (e *DivergedError) Fatal() bool { return true }

// FatalError is an error of a Sink. Trying again does not help; Run returns it.
type FatalError struct {
	Op  string
	Err error
}

func (e *FatalError) Error() string { return e.Op + ": " + e.Err.Error() }

func (e *FatalError) Unwrap() error { return e.Err }

// Fatal reports that trying again does not help.
func (e *FatalError) Fatal() bool { return true }

// isFatal reports whether trying again does not help.
func isFatal(err error) bool {
	var f interface{ Fatal() bool }
	return errors.As(err, &f) && f.Fatal()
}

// RemovedError says that the upstream no longer has the WAL that is needed next.
type RemovedError struct {
	Timeline protocol.Timeline
	LSN      protocol.LSN
	Segment  string // file name of the segment that holds LSN; empty if the upstream is a node
	Peer     string
	Err      error
}

// Error says what helps. A running server remembers what it removed and refuses it although the file is there again: it must
// be started anew behind the copy. Source: PostgreSQL src/backend/access/transam/xlog.c, CheckXLogRemoved (13-18).
func (e *RemovedError) Error() string {
	help := ""
	if e.Segment != "" {
		help = fmt.Sprintf("stop the upstream, copy segment %s and those behind it from an archive into its pg_wal, and start it; or ", e.Segment)
	}
	return fmt.Sprintf("upstream %s no longer has WAL at %s on timeline %d: %sstart again with an empty data directory; "+
		"use a replication slot to prevent this: %v", e.Peer, e.LSN, e.Timeline, help, e.Err)
}

func (e *RemovedError) Unwrap() error { return e.Err }

// BehindError says that the upstream has not reached the position asked for: a standby that lags, or a server that lost WAL.
type BehindError struct {
	Timeline protocol.Timeline
	LSN      protocol.LSN
	Peer     string
	Err      error
}

func (e *BehindError) Error() string {
	return fmt.Sprintf("upstream %s has not reached %s on timeline %d yet: %v", e.Peer, e.LSN, e.Timeline, e.Err)
}

func (e *BehindError) Unwrap() error { return e.Err }

// TimelineError says that the upstream is on a timeline that does not continue ours. Another host may be the right one.
type TimelineError struct {
	Ours, Theirs protocol.Timeline
	LSN          protocol.LSN // end of what is held on Ours
	Peer         string
	Why          string
}

func (e *TimelineError) Error() string {
	return fmt.Sprintf("upstream %s is on timeline %d, ours is %d at %s: %s", e.Peer, e.Theirs, e.Ours, e.LSN, e.Why)
}

// GapError says that a message does not continue the stream. The connection is given up and made anew.
type GapError struct {
	Timeline  protocol.Timeline
	Want, Got protocol.LSN
	Peer      string
}

func (e *GapError) Error() string {
	return fmt.Sprintf("upstream %s sent WAL at %s on timeline %d, expected %s", e.Peer, e.Got, e.Timeline, e.Want)
}

// ProtocolError says that the upstream sent what the protocol does not allow.
type ProtocolError struct {
	Peer string
	What string
}

func (e *ProtocolError) Error() string {
	return fmt.Sprintf("upstream %s broke the protocol: %s", e.Peer, e.What)
}

// TimeoutError says that the upstream has been silent for too long.
type TimeoutError struct {
	Peer   string
	Silent time.Duration
}

func (e *TimeoutError) Error() string {
	return fmt.Sprintf("upstream %s sent nothing for %s", e.Peer, e.Silent)
}

// ShutdownError says that the upstream ended the stream in good order because it shuts down.
type ShutdownError struct{ Peer string }

func (e *ShutdownError) Error() string { return fmt.Sprintf("upstream %s shut down", e.Peer) }
