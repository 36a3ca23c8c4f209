package feed

import (
	"errors"
	"fmt"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/slots/spool"
)

// ReadError says that the spool could not be read, with the file and what to do about it. Consumers are told less: Public.
type ReadError struct {
	Timeline protocol.Timeline
	LSN      protocol.LSN
	Err      error
}

func (e *ReadError) Error() string {
	return fmt.Sprintf("read spool at %s on timeline %d: %v", e.LSN, e.Timeline, e.Err)
}

func (e *ReadError) Unwrap() error { return e.Err }

// Public returns what a consumer may know: no file of this machine.
func (e *ReadError) Public() *protocol.Error {
	if !errors.Is(e.Err, link.ErrCorrupt) {
		return protocol.Errorf(protocol.CodeInternalError, "could not read WAL at %s on timeline %d from the spool", e.LSN, e.Timeline)
	}
	public := protocol.Errorf(protocol.CodeDataCorrupted, "WAL at %s on timeline %d is damaged in the spool", e.LSN, e.Timeline)
	public.Hint = "The log of this node says what to do. Its upstream may still have this WAL."
	return public
}

// serverError turns what the spool says into what a server would say: *protocol.Error, or *ReadError.
func (f *Feed) serverError(err error, tli protocol.Timeline, lsn protocol.LSN) error {
	var removed *spool.RemovedError
	switch {
	case errors.As(err, &removed):
		return f.removed(tli, lsn)
	case errors.Is(err, spool.ErrNotYet):
		return protocol.Errorf(protocol.CodeInternalError, "requested starting point %s is ahead of the WAL flush position of this server", lsn)
	}
	return &ReadError{Timeline: tli, LSN: lsn, Err: err}
}

// disordered is the error of frames that do not lead to lsn.
func (f *Feed) disordered(tli protocol.Timeline, lsn protocol.LSN, what string) error {
	return &ReadError{Timeline: tli, LSN: lsn, Err: &link.CorruptError{Timeline: tli, LSN: lsn, What: what}}
}
