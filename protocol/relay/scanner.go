// Package relay carries messages of the PostgreSQL protocol between an upstream and a client: it cuts the stream at messages
// without holding whole ones, reads the little that a node must know of a base backup, and compresses an answer for the way
// from node to node. Bytes in, bytes out; connections and sessions belong to the packages around it.
package relay

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

const (
	headerBytes = 1 + 4
	bufferBytes = 256 << 10
	// MaxAloneBytes bounds a message that is delivered as a whole. Errors, notices and rows are short,
	// the longest is WAL: 16 pages of 8 kB.
	MaxAloneBytes = 192 << 10
)

// ErrMessage is the class of all errors about messages that break the protocol.
var ErrMessage = errors.New("malformed message")

var be = binary.BigEndian

// Scanner cuts a stream of messages into pieces. Messages of the kinds that matter are delivered alone and whole, everything
// between them in runs as long as what has arrived. Its memory does not depend on the length of messages.
type Scanner struct {
	src   io.Reader
	alone func(kind byte) bool
	buf   []byte
	r, w  int // buf[r:w] has been read and not been delivered
	left  int // bytes of a message in a run that are still to come
}

// NewScanner returns a scanner of the messages of src. alone tells the kinds that are delivered alone.
func NewScanner(src io.Reader, alone func(kind byte) bool) *Scanner {
	return &Scanner{src: src, alone: alone, buf: make([]byte, bufferBytes)}
}

// Piece is a message alone, or a run of bytes of other messages.
type Piece struct {
	Kind  byte   // of the message; 0 for a run
	Bytes []byte // with headers; valid until the next call
}

// Body returns the body of a message alone.
func (p Piece) Body() []byte { return p.Bytes[headerBytes:] }

// Next waits for the next piece. Errors: of class ErrMessage; io.EOF between messages, io.ErrUnexpectedEOF within one; others
// of the source. Where the source can be read again after an error (a deadline), so can the scanner.
func (s *Scanner) Next() (Piece, error) {
	for {
		n, kind, err := s.run()
		if err != nil {
			return Piece{}, err
		}
		if n > 0 {
			p := Piece{Kind: kind, Bytes: s.buf[s.r : s.r+n : s.r+n]}
			s.r += n
			return p, nil
		}
		if err := s.fill(); err != nil {
			return Piece{}, err
		}
	}
}

// Between reports whether the last piece ended with the end of a message.
func (s *Scanner) Between() bool { return s.left == 0 }

// run returns the length of the next piece in the buffer, 0 if more must be read, and its kind if it is a message alone.
func (s *Scanner) run() (n int, kind byte, err error) {
	n = min(s.left, s.w-s.r)
	s.left -= n
	for s.left == 0 && s.w-s.r-n >= headerBytes {
		head := s.buf[s.r+n:]
		length := int64(int32(be.Uint32(head[1:])))
		if length < 4 {
			return 0, 0, fmt.Errorf("%w: %q has length %d", ErrMessage, head[0], length)
		}
		if s.alone(head[0]) {
			return s.whole(n, head[0], int(length)+1)
		}
		take := min(int(length)+1, s.w-s.r-n)
		n, s.left = n+take, int(length)+1-take
	}
	return n, 0, nil
}

// whole delivers the message alone that follows a run of n bytes, once the run has been and the message has arrived.
func (s *Scanner) whole(n int, kind byte, total int) (int, byte, error) {
	switch {
	case total > MaxAloneBytes:
		return 0, 0, fmt.Errorf("%w: %q of %d bytes, the limit is %d", ErrMessage, kind, total, MaxAloneBytes)
	case n > 0:
		return n, 0, nil
	case total > s.w-s.r:
		return 0, 0, nil
	}
	return total, kind, nil
}

// fill reads more behind what is in the buffer, which is less than a message alone.
func (s *Scanner) fill() error {
	if s.r > 0 {
		s.w = copy(s.buf, s.buf[s.r:s.w])
		s.r = 0
	}
	n, err := s.src.Read(s.buf[s.w:])
	s.w += n
	switch {
	case n > 0:
		return nil // an error comes again
	case err == nil:
		return io.ErrNoProgress
	case errors.Is(err, io.EOF) && (s.w > 0 || s.left > 0):
		return io.ErrUnexpectedEOF
	}
	return err
}
