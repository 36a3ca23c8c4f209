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
	sealed  int64        // where the frames of a sealed file end; 0 for a live one
	index   link.Index   // of a sealed file, while the first frame is looked for
	entry   int          // of index, where the file was entered; 0: at its first frame
	frames  Frames
	frame   link.Frame
	ended   bool
	closed  bool
	at      int64     // where the frame returned last begins in the file
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

// Damaged makes an error of what decoding f returned, the frame that Next returned last: a *CorruptError with its place,
// unless its codec is of another version.
func (r *Reader) Damaged(f *link.Frame, err error) error {
	if r.window == nil {
		return err
	}
	return r.window.bad(r.at, f.Start, err)
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
		if r.sealed != 0 {
			size = r.sealed
		}
		at := seekPoint{offset: r.frames.offset, cursor: r.frames.cursor}
		f, _, err := r.frames.Next(size)
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
	r.next, r.at = f.End(), at.offset
	if r.sought || isEnd {
		r.found()
		r.frame, r.ended = f, isEnd
		return true, nil
	}
	if f.Starts || at.offset == link.WindowHeaderBytes || r.entry > 0 && at.offset == r.index.At(r.entry).Offset {
		r.started = seekPoint{offset: at.offset, cursor: at.cursor, start: f.Start, stream: f.StreamID()}
	}
	if f.End() <= r.target {
		return false, nil
	}
	if f.Continues && f.Stream != r.started.stream && r.entry > 0 { // its stream began further back
		r.seekEntry(r.index.Enter(r.index.At(r.entry).Start - 1))
		return false, nil
	}
	r.found()
	if !f.Continues {
		r.frame = f
		return true, nil
	}
	r.frames.seek(r.started.offset, r.started.cursor)
	r.next = r.started.start
	return false, nil
}

// found ends the search for the first frame.
func (r *Reader) found() { r.sought, r.index, r.entry = true, link.Index{}, 0 }

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
	if err := r.enterSealed(); err != nil {
		r.leave()
		return false, err
	}
	if r.entry == 0 {
		r.next = w.header.Start
	}
	return true, nil
}

// enterSealed looks at the file just opened, since a window that was listed as live may be sealed now, and goes to the frame
// from which r.target can be reached if the file is a sealed one and r.target lies in it.
func (r *Reader) enterSealed() error {
	var buf [link.WindowHeaderBytes]byte
	n, err := r.file.ReadAt(buf[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read header of %s: %w", r.window.path, err)
	}
	h, err := link.DecodeWindowHeader(buf[:n])
	if err != nil {
		return r.window.bad(0, r.next, err)
	}
	want := r.window.header
	if r.window.ended.Load() && want.Kind == link.WindowLive && h.Kind == link.WindowSealed {
		want.Kind, want.End, want.IndexOffset, want.IndexBytes = h.Kind, h.End, h.IndexOffset, h.IndexBytes
	}
	if h != want {
		return r.window.corrupt(0, r.next, fmt.Errorf("the header is no longer that of the window: %+v", h))
	}
	if h.Kind != link.WindowSealed {
		return nil
	}
	r.sealed = int64(h.IndexOffset)
	index, err := r.window.readIndex(r.file, h) // needed or not: damage is to be found
	if err == nil && !r.sought && r.target > h.Start {
		r.index = index
		r.seekEntry(index.Enter(r.target))
	}
	return err
}

// seekEntry goes to the frame of an entry of the index.
func (r *Reader) seekEntry(i int) {
	e := r.index.At(i)
	r.entry, r.next = i, e.Start
	if i == 0 {
		r.next = r.window.header.Start
	}
	r.frames.seek(e.Offset, r.index.Cursor(i))
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
	r.sealed, r.index, r.entry = 0, link.Index{}, 0
}

// Close releases the file. It is idempotent.
func (r *Reader) Close() error {
	r.closed = true
	if r.window != nil {
		r.leave()
	}
	return nil
}
