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
	stream uint32 // met last, 0 behind the end of the timeline
	cursor link.Cursor
}

// scan reads the frames of w, whose header has been read, up to size, or up to where nothing but zeros is left: they were written
// ahead of frames. The result is valid up to the first bad frame even with an error.
func (w *window) scan(file fs.File, size int64) (scanResult, error) {
	r := NewFrames(file, link.WindowHeaderBytes, link.Cursor{ResetDistance: w.header.ResetDistance})
	result := scanResult{offset: r.offset, end: w.header.Start, cursor: r.cursor}
	for {
		f, _, err := r.Next(size)
		if errors.Is(err, io.EOF) {
			return result, nil
		}
		if err == nil {
			err = w.follows(&f, result)
		}
		if err != nil {
			if blank, blankErr := blankFrom(file, result.offset, size); blank || blankErr != nil {
				err = blankErr
			}
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
		result.offset, result.end, result.stream, result.cursor = r.offset, f.End(), r.cursor.Stream, r.cursor
		if f.Codec == link.CodecTimelineEnd {
			result.stream = 0
		}
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

// torn tells the remains of writes that a loss of power cut short from damage, where reading the frame at r.offset failed
// with cause. Torn is a last frame that is incomplete or fails its checksum, with nothing but zeros behind it, and a frame
// that lies in a sector which was never written, whatever is behind it.
func (r scanResult) torn(file fs.File, size int64, cause error) (bool, error) {
	rest, need, err := r.badFrame(file, size, cause)
	return need > len(rest) || need > 0 && (zeros(rest[need:]) || unwritten(rest, r.offset, need)), err
}

// inProgress tells a frame that is being written from damage, where a reader beside the writer failed with cause at r.offset: some of it
// is not there yet, because the file ends, or because zeros that were written ahead are still in its place and behind it.
func (r scanResult) inProgress(file fs.File, size int64, cause error) (bool, error) {
	rest, need, err := r.badFrame(file, size, cause)
	return need > len(rest) || need > 0 && need < len(rest) && zeros(rest[need:]) && unwritten(rest, r.offset, need), err
}

// badFrame returns what there is from r.offset on, where reading a frame failed with cause, and how many bytes the frame takes: more
// than that if it is cut, what a header takes at most if its header does not tell. Both are nothing where no write that was cut short can
// be the cause.
func (r scanResult) badFrame(file fs.File, size int64, cause error) (rest []byte, need int, err error) {
	var unseen *link.UnseenStreamError
	if r.next != 0 || !errors.Is(cause, link.ErrCorrupt) && !errors.Is(cause, link.ErrShort) && !errors.As(cause, &unseen) {
		return nil, 0, nil // nothing is ever written behind the end of a timeline
	}
	if rest, err = readRest(file, r.offset, size); err != nil {
		return nil, 0, err
	}
	cursor := r.cursor
	switch need, err = cursor.FrameLen(rest); {
	case errors.Is(err, link.ErrShort):
		return rest, len(rest) + 1, nil
	case err != nil: // a header of which zeros that were written ahead are a part
		return rest, min(link.MaxFrameHeaderBytes, len(rest)), nil
	}
	return rest, need, nil
}

// sectorBytes is what a disk writes as a whole.
const sectorBytes = 512

// unwritten reports whether one of the sectors that hold the first n bytes of b, which begins at offset of its file, is zero
// from there on.
func unwritten(b []byte, offset int64, n int) bool {
	for at := 0; at < min(n, len(b)); {
		end := min(at+sectorBytes-int(offset+int64(at))%sectorBytes, len(b))
		if zeros(b[at:end]) {
			return true
		}
		at = end
	}
	return false
}

// blankFrom reports whether there are only zeros from offset on, which is where no frame was written.
func blankFrom(file io.ReaderAt, offset, size int64) (bool, error) {
	buf := make([]byte, min(size-offset, aheadBytes))
	for offset < size {
		n, err := file.ReadAt(buf[:min(size-offset, aheadBytes)], offset)
		switch {
		case !zeros(buf[:n]):
			return false, nil
		case errors.Is(err, io.EOF): // a walk beside the writer: the zeros are gone, with the window complete
			return true, nil
		case n == 0:
			return false, err
		}
		offset += int64(n)
	}
	return true, nil
}

func zeros(b []byte) bool { return len(bytes.TrimRight(b, "\x00")) == 0 }

// tornHeader reports whether a window file whose header is bad never had a good one: it is too short, its first sector was
// never written, or no frame stands behind it.
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
	return unwritten(rest, 0, link.WindowHeaderBytes) || zeros(rest[link.WindowHeaderBytes:]), nil
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
