package spool

import (
	"errors"
	"io"

	"walproxy/protocol/link"
)

const (
	firstBufferBytes = 32 << 10
	// maxBufferBytes bounds what a reader reads ahead. Only a larger frame makes the buffer larger, for as long as it lasts.
	maxBufferBytes = 256<<10 + 2*link.MaxFrameHeaderBytes
)

// Frames reads the frames of one window file in order. The caller says how far the file is complete.
type Frames struct {
	file   io.ReaderAt
	cursor link.Cursor
	offset int64 // of the next frame
	buf    []byte
	lo, hi int // buf[lo:hi] holds the file from offset on
	calm   int // fetches since the last one that needed a large buffer
}

// NewFrames returns a reader of file that begins at offset, a frame's, with the cursor in front of it.
func NewFrames(file io.ReaderAt, offset int64, cursor link.Cursor) *Frames {
	return &Frames{file: file, offset: offset, cursor: cursor}
}

// calmFetches is after how many fetches without a large frame a large buffer is given up.
const calmFetches = 64

// seek goes to a frame whose offset and preceding cursor are known.
func (r *Frames) seek(offset int64, cursor link.Cursor) {
	r.cursor, r.offset, r.lo, r.hi = cursor, offset, 0, 0
}

// Next returns the next frame and its encoded length. Its payload is valid until the next call. end is the length of the file
// that may be read. After an error the position is unchanged.
//
// Errors: io.EOF at end; link.ErrShort if end cuts a frame; what link.Cursor.Decode and the file return.
func (r *Frames) Next(end int64) (link.Frame, int, error) {
	if r.offset >= end {
		return link.Frame{}, 0, io.EOF
	}
	if err := r.fetch(end, link.MaxFrameHeaderBytes); err != nil {
		return link.Frame{}, 0, err
	}
	need, err := r.cursor.FrameLen(r.buf[r.lo:r.hi])
	if err != nil {
		return link.Frame{}, 0, err
	}
	if int64(need) > end-r.offset {
		return link.Frame{}, 0, link.ErrShort
	}
	if err := r.fetch(end, need); err != nil {
		return link.Frame{}, 0, err
	}
	f, n, err := r.cursor.Decode(r.buf[r.lo:r.hi])
	if err != nil {
		return link.Frame{}, 0, err
	}
	r.lo += n
	r.offset += int64(n)
	return f, n, nil
}

// longBytes is the length of a frame behind which no other is read ahead: it would only have to move to the front of the buffer.
const longBytes = 32 << 10

// fetch sees to it that want bytes, or all up to end if fewer are left, are in the buffer.
func (r *Frames) fetch(end int64, want int) error {
	left := end - r.offset
	want = int(min(int64(want), left))
	if r.hi-r.lo >= want {
		return nil
	}
	have := r.hi - r.lo
	if size := r.bufferSize(left, want); size != len(r.buf) {
		grown := make([]byte, size)
		copy(grown, r.buf[r.lo:r.hi])
		r.buf = grown
	} else {
		copy(r.buf, r.buf[r.lo:r.hi])
	}
	r.lo, r.hi = 0, have
	room := min(int64(len(r.buf)), left)
	if want > longBytes {
		room = min(room, int64(want+link.MaxFrameHeaderBytes))
	}
	n, err := r.file.ReadAt(r.buf[have:room], r.offset+int64(have))
	r.hi += n
	if r.hi >= want {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// bufferSize returns how long the buffer should be for want bytes when left bytes of the file are unread.
func (r *Frames) bufferSize(left int64, want int) int {
	r.calm++
	if want > maxBufferBytes {
		r.calm = 0
	}
	size := firstBufferBytes
	if left > firstBufferBytes {
		size = maxBufferBytes
	}
	size = max(size, want)
	if size > len(r.buf) || len(r.buf) > maxBufferBytes && r.calm > calmFetches {
		return size
	}
	return len(r.buf)
}
