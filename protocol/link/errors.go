package link

import (
	"errors"
	"fmt"

	"walproxy/protocol"
)

var (
	// ErrShort means that the bytes end before the value does: read more, or the rest is missing.
	ErrShort = errors.New("link: more bytes needed")
	// ErrCorrupt is the class of every error that says bytes are not what their writer wrote.
	ErrCorrupt = errors.New("link: corrupt")
)

// CorruptError says where in the WAL a frame is damaged and what gave it away. It is an ErrCorrupt.
type CorruptError struct {
	Timeline protocol.Timeline
	LSN      protocol.LSN
	What     string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("corrupt frame at %s on timeline %d: %s", e.LSN, e.Timeline, e.What)
}

func (e *CorruptError) Unwrap() error { return ErrCorrupt }

// VersionError says that bytes are of a format this program does not know; they may be fine for a newer one.
type VersionError struct {
	What string
	Got  int
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("unknown %s %d: written by a newer walproxy? this one knows format version %d", e.What, e.Got, Version)
}

// UnseenStreamError says that a frame continues a stream whose start the reader has not seen. Read from the stream's start.
type UnseenStreamError struct {
	Timeline protocol.Timeline
	LSN      protocol.LSN
}

func (e *UnseenStreamError) Error() string {
	return fmt.Sprintf("frame at %s on timeline %d continues a stream whose start was not seen", e.LSN, e.Timeline)
}

func (f *Frame) corrupt(what string) error {
	return &CorruptError{Timeline: f.Timeline, LSN: f.Start, What: what}
}

func (f *Frame) wrap(err error, what string) error {
	if errors.Is(err, ErrCorrupt) {
		return f.corrupt(what)
	}
	return err
}
