package spool

import (
	"context"
	"errors"
	"fmt"
	"io"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/slots/fs"
)

// Reader reads the frames of one timeline in order and waits for more at the end. It holds one file open and a buffer of at
// most 256 KiB, or one frame if that is larger. Not safe for concurrent use.
type Reader struct {
	log     *Log
	tli     protocol.Timeline
	target  protocol.LSN // first byte wanted
	sought  bool         // the first frame to return is found
	next    protocol.LSN // where the next frame starts
	window  *window      // nil before the first one
	file    fs.File      // nil while window is nil
	frames  frames
	frame   link.Frame
	ended   bool
	closed  bool
	started seekPoint // of the stream that the frame before frames.offset belongs to
}

// seekPoint is a place in a window from where frames can be read.
type seekPoint struct {
	offset int64
	cursor link.Cursor
	start  protocol.LSN
	stream uint32
}

// OpenReader returns a reader of tli whose first frame is the one that holds lsn if that stands alone or starts a stream, else
// the frame that starts its stream (or the window, if the stream's start is not held). The caller closes it.
//
// Errors: *RemovedError if lsn lies below what is held; ErrNotYet above the end (the end itself is fine); ErrNoTimeline.
func (l *Log) OpenReader(tli protocol.Timeline, lsn protocol.LSN) (*Reader, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed != nil && errors.Is(l.failed, ErrClosed) {
		return nil, ErrClosed
	}
	line := l.lineOf(tli)
	switch {
	case len(l.lines) == 0 || tli > l.lines[len(l.lines)-1].timeline:
		return nil, fmt.Errorf("read WAL from %s on timeline %d: %w", lsn, tli, ErrNotYet)
	case tli < l.lines[0].timeline || line != nil && lsn < line.begin:
		return nil, &RemovedError{Timeline: tli, LSN: lsn, Oldest: l.lines[0].begin}
	case line == nil:
		return nil, fmt.Errorf("read WAL from %s on timeline %d: %w", lsn, tli, ErrNoTimeline)
	case lsn > line.end:
		return nil, fmt.Errorf("read WAL from %s on timeline %d: %w, it ends at %s", lsn, tli, ErrNotYet, line.end)
	}
	return &Reader{log: l, tli: tli, target: lsn, next: lsn}, nil
}

// lineOf returns the line of a timeline, or nil. l.mu is held.
func (l *Log) lineOf(tli protocol.Timeline) *line {
	for _, line := range l.lines {
		if line.timeline == tli {
			return line
		}
	}
	return nil
}

// Next returns the next frame and waits for it at the end of the log. The frame and its payload are valid until the next call.
// The frame that ends the timeline is returned too, and afterwards io.EOF.
//
// Errors: the context's; *RemovedError if retention overtook the reader; *CorruptError; ErrClosed.
func (r *Reader) Next(ctx context.Context) (*link.Frame, error) {
	for {
		if r.closed {
			return nil, ErrClosed
		}
		if r.ended {
			return nil, io.EOF
		}
		if ok, err := r.try(); ok || err != nil {
			return r.result(ok), err
		}
		wake := r.log.appended.Wait() // what is appended from here on closes it
		if ok, err := r.try(); ok || err != nil {
			return r.result(ok), err
		}
		if err := r.log.closedErr(); err != nil {
			return nil, err
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (r *Reader) result(ok bool) *link.Frame {
	if !ok {
		return nil
	}
	return &r.frame
}

func (l *Log) closedErr() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if errors.Is(l.failed, ErrClosed) {
		return ErrClosed
	}
	return nil
}

// try reads the next frame into r.frame, or reports false if it is not there yet.
func (r *Reader) try() (bool, error) {
	for {
		if r.window == nil {
			if ok, err := r.enter(); !ok || err != nil {
				return false, err
			}
		}
		last := r.window.ended.Load() // before size: what is there now is all
		size := r.window.size.Load()
		at := seekPoint{offset: r.frames.offset, cursor: r.frames.cursor}
		f, _, err := r.frames.next(size)
		switch {
		case errors.Is(err, io.EOF) && !last:
			return false, nil
		case errors.Is(err, io.EOF):
			r.leave()
			continue
		case err != nil:
			return false, r.window.bad(r.frames.offset, r.next, err)
		}
		if done, err := r.take(f, at); done || err != nil {
			return done, err
		}
	}
}

// take accepts a frame read from the window: it checks its place, and reports whether it is one to return.
func (r *Reader) take(f link.Frame, at seekPoint) (bool, error) {
	isEnd := f.Codec == link.CodecTimelineEnd
	if f.Timeline != r.tli || f.Start != r.next && !(isEnd && f.Start < r.next) {
		err := fmt.Errorf("%w: it starts at %s on timeline %d, expected %s", errDisorder, f.Start, f.Timeline, r.next)
		return false, r.window.corrupt(at.offset, r.next, err)
	}
	r.next = f.End()
	if r.sought || isEnd {
		r.sought, r.frame, r.ended = true, f, isEnd
		return true, nil
	}
	if f.Starts || at.offset == link.WindowHeaderBytes {
		r.started = seekPoint{offset: at.offset, cursor: at.cursor, start: f.Start, stream: f.StreamID()}
	}
	if f.End() <= r.target {
		return false, nil
	}
	r.sought = true
	if !f.Continues {
		r.frame = f
		return true, nil
	}
	r.frames.seek(r.started.offset, r.started.cursor)
	r.next = r.started.start
	return false, nil
}

// enter opens the window that holds r.next, or reports false if there is none yet.
func (r *Reader) enter() (bool, error) {
	w, err := r.find()
	if w == nil || err != nil {
		return false, err
	}
	file, err := r.log.fs.Open(w.path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, r.removed()
	}
	if err != nil {
		return false, fmt.Errorf("read WAL from %s on timeline %d: %w", r.next, r.tli, err)
	}
	r.window, r.file, r.frames.file = w, file, file
	r.frames.seek(link.WindowHeaderBytes, link.Cursor{ResetDistance: w.header.ResetDistance})
	r.next = w.header.Start
	return true, nil
}

func (r *Reader) find() (*window, error) {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	line := r.log.lineOf(r.tli)
	if line == nil || r.next < line.begin {
		return nil, &RemovedError{Timeline: r.tli, LSN: r.next, Oldest: r.log.state.Begin}
	}
	for i := len(line.windows) - 1; i >= 0; i-- {
		if w := line.windows[i]; w.header.Start <= r.next {
			return w, nil
		}
	}
	return nil, nil
}

func (r *Reader) removed() error {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	return &RemovedError{Timeline: r.tli, LSN: r.next, Oldest: r.log.state.Begin}
}

// leave closes the window after its last frame.
func (r *Reader) leave() {
	_ = r.file.Close() // only read
	r.window, r.file, r.frames.file = nil, nil, nil
}

// Close releases the file. It is idempotent.
func (r *Reader) Close() error {
	r.closed = true
	if r.window != nil {
		r.leave()
	}
	return nil
}
