package wal

import (
	"errors"

	"walproxy/protocol"
)

// ErrOrder means that an event does not follow the one before it.
var ErrOrder = errors.New("wal: events do not join")

// Joiner is the inverse of a Walker: it makes one run of bytes out of events. Page headers wait until content reaches them.
// Not safe for concurrent use; reuse keeps its buffers.
type Joiner struct {
	pageSize uint64
	pos      protocol.LSN
	headers  []byte // of the pages that content has not reached
	pages    []waitingPage
}

type waitingPage struct {
	at    protocol.LSN
	bytes int
}

// NewJoiner returns a joiner for events from start on. pageSize is that of the walker: Options.PageSize, 0 meaning DefaultPageSize.
func NewJoiner(start protocol.LSN, pageSize int) *Joiner {
	if pageSize <= 0 {
		pageSize = DefaultPageSize
	}
	return &Joiner{pageSize: uint64(pageSize), pos: start}
}

// Append appends the bytes that ev completes to dst and returns the extended buffer. ev is not retained.
//
// Errors: ErrOrder if ev does not start where the event before ended.
func (j *Joiner) Append(dst []byte, ev *Event) ([]byte, error) {
	if ev.Kind == KindPage {
		j.headers = append(j.headers, ev.Data...)
		j.pages = append(j.pages, waitingPage{at: ev.Start, bytes: len(ev.Data)})
		return dst, nil
	}
	dst = j.header(dst)
	if ev.Start != j.pos {
		return dst, ErrOrder
	}
	data, padding := ev.Data, 0
	if ev.Kind == KindRecord {
		padding = int(align(uint64(len(data)))) - len(data)
	}
	for {
		dst = j.header(dst)
		n := min(uint64(len(data)), j.pageSize-uint64(j.pos)%j.pageSize)
		dst, data = append(dst, data[:n]...), data[n:]
		j.pos += protocol.LSN(n)
		if len(data) == 0 {
			break
		}
	}
	var zeros [8]byte
	dst = append(dst, zeros[:padding]...)
	j.pos += protocol.LSN(padding)
	if ev.End != j.pos {
		return dst, ErrOrder
	}
	return dst, nil
}

// Finish appends page headers that no content followed.
func (j *Joiner) Finish(dst []byte) []byte { return j.header(dst) }

// header appends the header of the page that starts at the position, if it waits.
func (j *Joiner) header(dst []byte) []byte {
	if len(j.pages) == 0 || j.pages[0].at != j.pos {
		return dst
	}
	n := j.pages[0].bytes
	dst = append(dst, j.headers[:n]...)
	j.pos += protocol.LSN(n)
	j.pages = append(j.pages[:0], j.pages[1:]...)
	j.headers = append(j.headers[:0], j.headers[n:]...)
	return dst
}
