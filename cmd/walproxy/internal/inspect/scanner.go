package inspect

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"walproxy/protocol/link"
)

// maxFrameBytes bounds an encoded frame.
const maxFrameBytes = link.MaxFrameHeaderBytes + link.MaxResetDistance

// firstReadBytes is how much is read ahead at first.
const firstReadBytes = 64 << 10

// scanner reads a window file from its beginning. It holds one frame at a time.
type scanner struct {
	r      io.Reader
	buf    []byte // read and not yet consumed: buf[at:]
	at     int
	offset int64 // of buf[at] in the file
	ended  bool  // r has no more
	header link.WindowHeader
	cursor link.Cursor
}

// newScanner reads the header. The scanner is there, with what was read, also beside an error.
func newScanner(r io.Reader) (*scanner, error) {
	s := &scanner{r: r}
	err := s.fill(link.WindowHeaderBytes)
	if err == nil {
		s.header, err = link.DecodeWindowHeader(s.rest())
	}
	if err == nil {
		s.cursor.ResetDistance = s.header.ResetDistance
		s.consume(link.WindowHeaderBytes)
	}
	return s, err
}

// next returns the next frame and its encoded length. The payload is valid until the next call.
//
// Errors: io.EOF behind the last frame; link.ErrShort if the file ends within a frame; those of link.Cursor.Decode.
func (s *scanner) next() (f link.Frame, bytes int, err error) {
	f, bytes, err = s.frame()
	if err != nil && s.header.Kind == link.WindowLive && !errors.Is(err, io.EOF) && !errors.Is(err, link.ErrShort) {
		return f, 0, s.blank(err)
	}
	return f, bytes, err
}

// blank returns io.EOF instead of cause if there are only zeros from here on, as a node writes them ahead of frames: link.ErrShort
// if a frame came meanwhile.
func (s *scanner) blank(cause error) error {
	for first := true; ; first = false {
		rest := s.rest()
		switch {
		case len(bytes.TrimRight(rest, "\x00")) == 0:
		case first:
			return cause
		default:
			return link.ErrShort
		}
		s.at += len(rest) // s.offset stays behind the last frame
		if err := s.fill(1); err != nil {
			return err
		}
		if len(s.rest()) == 0 {
			return io.EOF
		}
	}
}

func (s *scanner) frame() (f link.Frame, bytes int, err error) {
	if err := s.fill(link.MaxFrameHeaderBytes); err != nil {
		return f, 0, err
	}
	if len(s.rest()) == 0 || s.header.Kind == link.WindowSealed && s.offset >= int64(s.header.IndexOffset) {
		return f, 0, io.EOF
	}
	n, err := s.cursor.FrameLen(s.rest())
	if err != nil {
		return f, 0, err
	}
	if n > maxFrameBytes {
		return f, 0, fmt.Errorf("%w frame of %d bytes", link.ErrCorrupt, n)
	}
	if err := s.fill(n); err != nil {
		return f, 0, err
	}
	f, n, err = s.cursor.Decode(s.rest())
	if err == nil {
		s.consume(n)
	}
	return f, n, err
}

func (s *scanner) rest() []byte { return s.buf[s.at:] }

func (s *scanner) consume(n int) { s.at, s.offset = s.at+n, s.offset+int64(n) }

// fill reads until n bytes are there or the file ends.
func (s *scanner) fill(n int) error {
	if len(s.rest()) >= n || s.ended {
		return nil
	}
	have := copy(s.buf, s.rest())
	s.at = 0
	if cap(s.buf) < n {
		grown := make([]byte, max(n, firstReadBytes))
		copy(grown, s.buf[:have])
		s.buf = grown
	}
	s.buf = s.buf[:cap(s.buf)]
	got, err := io.ReadAtLeast(s.r, s.buf[have:], n-have)
	s.buf = s.buf[:have+got]
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		s.ended, err = true, nil
	}
	return err
}
