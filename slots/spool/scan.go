package spool

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/slots/fs"
)

// scanResult is what the good frames at the beginning of a window file say.
type scanResult struct {
	frames int
	offset int64        // behind the last good frame
	end    protocol.LSN // behind the last good frame, the switch point if it ends the timeline
	next   protocol.Timeline
	stream uint32 // of the last good frame
	cursor link.Cursor
}

// scan reads the frames of w, whose header has been read, up to size. The result is valid up to the first bad frame even
// with an error.
func (w *window) scan(file fs.File, size int64) (scanResult, error) {
	r := frames{file: file}
	r.seek(link.WindowHeaderBytes, link.Cursor{ResetDistance: w.header.ResetDistance})
	result := scanResult{offset: r.offset, end: w.header.Start, cursor: r.cursor}
	for {
		f, _, err := r.next(size)
		if errors.Is(err, io.EOF) {
			return result, nil
		}
		if err == nil {
			err = w.follows(&f, result)
		}
		if err != nil {
			return result, err
		}
		if f.Codec == link.CodecTimelineEnd {
			end, err := f.TimelineEnd()
			if err != nil {
				return result, err
			}
			result.next = end.Next
		}
		result.frames++
		result.offset, result.end, result.stream, result.cursor = r.offset, f.End(), f.StreamID(), r.cursor
	}
}

var errDisorder = errors.New("frame in the wrong place")

// follows checks that a good frame belongs where it stands.
func (w *window) follows(f *link.Frame, before scanResult) error {
	inOrder := f.Start == before.end && f.Start < w.limit() || f.Codec == link.CodecTimelineEnd && f.Start <= before.end
	if f.Timeline == w.header.Timeline && inOrder && before.next == 0 {
		return nil
	}
	return fmt.Errorf("%w: it starts at %s on timeline %d, expected %s", errDisorder, f.Start, f.Timeline, before.end)
}

// torn tells the remains of an unfinished write from damage: it reports whether what follows the last good frame is one
// frame that is incomplete or fails its checksum, with nothing behind it but zeros.
func (r scanResult) torn(file fs.File, size int64) (bool, error) {
	if r.next != 0 {
		return false, nil // nothing is ever written behind the end of a timeline
	}
	rest, err := readRest(file, r.offset, size)
	if err != nil {
		return false, err
	}
	written := bytes.TrimRight(rest, "\x00")
	cursor := r.cursor
	need, err := cursor.FrameLen(written)
	switch {
	case errors.Is(err, link.ErrShort):
		return true, nil
	case err != nil:
		return false, nil
	case need >= len(written):
		return !validFrame(cursor, rest[:min(need, len(rest))]), nil
	}
	return false, nil
}

func validFrame(cursor link.Cursor, b []byte) bool {
	_, _, err := cursor.Decode(b)
	return err == nil
}

// tornHeader reports whether a window file whose header is bad never had a good one: it is too short, or its first bytes
// were never written, and no frame stands behind it.
func tornHeader(file fs.File, size int64, cause error) (bool, error) {
	var version *link.VersionError
	if errors.As(cause, &version) {
		return false, nil
	}
	if size < link.WindowHeaderBytes {
		return true, nil
	}
	rest, err := readRest(file, 0, size)
	if err != nil {
		return false, err
	}
	return len(bytes.TrimRight(rest, "\x00")) < link.WindowHeaderBytes, nil
}

// maxRestBytes bounds what is read into memory to judge a bad tail: a frame of the largest kind and then some.
const maxRestBytes = 2*link.MaxResetDistance + link.MaxFrameHeaderBytes

func readRest(file fs.File, offset, size int64) ([]byte, error) {
	rest := make([]byte, min(size-offset, maxRestBytes))
	if _, err := file.ReadAt(rest, offset); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read the tail: %w", err)
	}
	return rest, nil
}
