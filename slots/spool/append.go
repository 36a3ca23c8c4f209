package spool

import (
	"errors"
	"fmt"
	"path"
	"syscall"

	"walproxy/protocol"
	"walproxy/protocol/link"
)

// Append writes f, which must be sealed, behind the last frame. f.Payload may be reused on return. Readers see the frame at
// once; it is not durable until Sync. One call at a time.
//
// f must start at State().End on State().Timeline; anything begins an empty log. A CodecTimelineEnd frame may start at or
// below State().End: the timeline ended there, its history is stored, and State is {next timeline, f.Start} afterwards.
//
// Errors: ErrGap; ErrFull; ErrNoIdentity; *link.UnseenStreamError if f continues another stream than the last one of its
// window; *link.CorruptError if f is not well-formed; an error of the file system. Nothing has changed after any of them.
func (l *Log) Append(f *link.Frame) error {
	l.appendMu.Lock()
	defer l.appendMu.Unlock()
	end, identity, err := l.admit(f)
	if err != nil {
		return err
	}
	w, before := l.current, l.cursor
	if l.beginsWindow(f) {
		if w, err = l.prepareWindow(f, identity); err != nil {
			return err
		}
	} else {
		l.buf = l.buf[:0]
	}
	if err := l.encode(f); err != nil {
		l.cursor = before
		return err
	}
	if w != l.current {
		err = l.createWindow(w)
	} else {
		err = l.write(w)
	}
	if err != nil {
		l.cursor = before
		return fmt.Errorf("append frame at %s on timeline %d: %w", f.Start, f.Timeline, err)
	}
	l.publish(f, w, end)
	if l.noSync {
		return l.Sync() // it has nothing to do, but for the files of windows that are complete
	}
	return nil
}

// admit checks whether f may be appended now, and stores the history that the end of a timeline brings.
func (l *Log) admit(f *link.Frame) (end link.TimelineEnd, identity protocol.Identity, err error) {
	l.mu.Lock()
	state, identity, known, failed := l.state, l.identity, l.known, l.failed
	l.mu.Unlock()
	isEnd := f.Codec == link.CodecTimelineEnd
	follows := f.Start == state.End || isEnd && f.Start < state.End && f.Start >= l.begin(f.Timeline)
	switch {
	case failed != nil:
		return end, identity, failed
	case !known:
		return end, identity, ErrNoIdentity
	case state.Timeline != 0 && (f.Timeline != state.Timeline || !follows):
		return end, identity, fmt.Errorf("append frame at %s on timeline %d: %w, which is %s on timeline %d",
			f.Start, f.Timeline, ErrGap, state.End, state.Timeline)
	case isEnd:
		if end, err = f.TimelineEnd(); err != nil {
			return end, identity, err
		}
		if len(end.History) > 0 {
			err = l.AddHistory(end.Next, end.History)
		}
	}
	return end, identity, err
}

func (l *Log) begin(tli protocol.Timeline) protocol.LSN {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.lines); n > 0 && l.lines[n-1].timeline == tli {
		return l.lines[n-1].begin
	}
	return 0
}

// beginsWindow reports whether f goes into a file of its own. The end of a timeline stays with the WAL before it.
func (l *Log) beginsWindow(f *link.Frame) bool {
	w := l.current
	if w == nil || w.header.Timeline != f.Timeline {
		return true
	}
	return f.Codec != link.CodecTimelineEnd && (f.Start >= w.limit() || w.header.ResetDistance != l.distance.Load())
}

// prepareWindow sees to it that enough of what is before f is durable, and begins the content of a window in l.buf.
func (l *Log) prepareWindow(f *link.Frame, identity protocol.Identity) (*window, error) {
	if l.current != nil {
		if err := l.trim(l.current); err != nil { // once it is not the newest it is not written again
			return nil, err
		}
		if err := l.syncBefore(f); err != nil {
			return nil, err
		}
	}
	w := &window{path: windowPath(l.root, f.Timeline, f.Start), header: link.WindowHeader{
		Kind: link.WindowLive, SystemID: identity.SystemID, Timeline: f.Timeline, SegmentSize: identity.SegmentSize,
		WALBlockSize: identity.WALBlockSize, ResetDistance: l.distance.Load(), Start: f.Start,
	}}
	l.buf = w.header.Append(l.buf[:0])
	l.cursor = link.Cursor{ResetDistance: l.distance.Load()}
	return w, nil
}

// maxCopyBytes bounds the payload that is copied behind its header, to be written with it. A larger one is written by itself.
const maxCopyBytes = 16 << 10

// encode appends f to l.buf and l.payload and advances l.cursor. It reads the frame back, so that nothing is stored that cannot be
// read.
func (l *Log) encode(f *link.Frame) error {
	if f.Continues && f.Stream != l.cursor.Stream {
		return &link.UnseenStreamError{Timeline: f.Timeline, LSN: f.Start}
	}
	check, from := l.cursor, len(l.buf)
	l.buf = l.cursor.AppendHeader(l.buf, f)
	if err := check.Carries(l.buf[from:], f); err != nil {
		return err
	}
	if l.payload = f.Payload; len(l.payload) <= maxCopyBytes {
		l.buf, l.payload = append(l.buf, l.payload...), nil
	}
	l.mu.Lock()
	total := l.state.Bytes + l.encoded()
	l.mu.Unlock()
	if l.cap > 0 && total > l.cap {
		return fmt.Errorf("append frame at %s on timeline %d: %w: %d bytes would exceed the cap of %d", f.Start, f.Timeline, ErrFull, total, l.cap)
	}
	return nil
}

// encoded returns the length of l.buf and l.payload.
func (l *Log) encoded() int64 { return int64(len(l.buf) + len(l.payload)) }

// aheadBytes bounds the zeros that are written behind a small frame for which the file has to become longer. The frames that follow
// overwrite them in place: to make those durable the file system writes their page and nothing else, where a file that has become
// longer takes its inode, or a commit of the journal, as well.
const aheadBytes = 64 << 10

var ahead [aheadBytes]byte

// put writes l.buf and l.payload at an offset of w's file.
func (l *Log) put(w *window, offset int64) error {
	end := offset + l.encoded()
	if end > w.length {
		w.length = end
		if len(l.payload) == 0 && !l.noSync {
			l.extend(w)
		}
	}
	_, err := w.file.WriteAt(l.buf, offset)
	if err == nil && len(l.payload) > 0 {
		_, err = w.file.WriteAt(l.payload, offset+int64(len(l.buf)))
	}
	return err
}

// extend writes zeros at the end of w's file. They come before the frame that is to lie in front of them, so that a write that is
// cut short never leaves all of the frame. Where there is no room for them the frame may still have it.
func (l *Log) extend(w *window) {
	end := w.length
	w.length = (end + aheadBytes - 1) / aheadBytes * aheadBytes
	if _, err := w.file.WriteAt(ahead[:w.length-end], end); err != nil {
		l.logger.Debug("write ahead", errField(err))
	}
}

// write appends l.buf and l.payload to the newest window.
func (l *Log) write(w *window) error {
	if l.torn { // a shorter frame would leave the rest of the failed one behind it
		if err := l.trim(w); err != nil {
			return err
		}
	}
	if err := l.put(w, w.size.Load()); err != nil {
		l.torn = l.trim(w) != nil
		return full(err)
	}
	return nil
}

// trim removes what is behind the frames of w, the newest window: zeros, or what a failed write left.
func (l *Log) trim(w *window) error {
	size := w.size.Load()
	if w.length > size {
		if err := w.file.Truncate(size); err != nil {
			return err
		}
		w.length = size
	}
	l.torn = false
	return nil
}

// createWindow makes the file of w with the content l.buf and l.payload.
func (l *Log) createWindow(w *window) error {
	dir := path.Dir(w.path)
	names := []string{dir}
	if l.current == nil || path.Dir(l.current.path) != dir {
		if err := l.fs.MkdirAll(dir); err != nil {
			return full(err)
		}
		names = append(names, l.root, l.dir)
	}
	file, err := l.fs.Create(w.path)
	if err != nil {
		return full(err)
	}
	w.file, w.names = file, names
	if err := l.put(w, 0); err != nil {
		return errors.Join(full(err), file.Close(), l.fs.Remove(w.path))
	}
	return nil
}

// publish makes the frame just written visible.
func (l *Log) publish(f *link.Frame, w *window, end link.TimelineEnd) {
	old, grown := l.current, l.encoded()
	l.current, l.payload = w, nil
	w.size.Add(grown)
	l.mu.Lock()
	if w != old {
		l.addWindow(w)
	}
	last := l.lines[len(l.lines)-1]
	last.end = f.End()
	l.appends++
	l.state.Bytes += grown
	l.state.End, l.state.Stream = f.End(), l.cursor.Stream
	if end.Next != 0 {
		l.state.Stream = 0
		last.next = end.Next
		l.lines = append(l.lines, &line{timeline: end.Next, begin: f.Start, end: f.Start})
		l.state.Timeline = end.Next
		l.state.Flushed = min(l.state.Flushed, f.Start)
	}
	if l.noSync && len(l.unsynced) == 1 && l.durable == w {
		l.synced, l.state.Flushed = l.appends, l.state.End
	}
	bytes := l.state.Bytes
	l.mu.Unlock()
	switch { // what is behind a window's last byte is visible before readers learn that it is the last
	case end.Next != 0:
		w.ended.Store(true)
	case old != nil && old != w:
		old.ended.Store(true)
		l.completed.Notify()
	}
	l.metrics.appendedFrame(bytes)
	l.appended.Notify()
	l.changed.Notify()
}

// addWindow lists a new window. l.mu is held.
func (l *Log) addWindow(w *window) {
	if len(l.lines) == 0 {
		l.lines = []*line{{timeline: w.header.Timeline, begin: w.header.Start, end: w.header.Start}}
		l.state = State{Timeline: w.header.Timeline, Begin: w.header.Start, End: w.header.Start, Flushed: w.header.Start}
	}
	last := l.lines[len(l.lines)-1]
	last.windows = append(last.windows, w)
	l.newest = w
	l.unsynced = append(l.unsynced, w)
	l.metrics.windowCount(1)
}

// full puts an error of the file system that means "no room" into the class ErrFull.
func full(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG) {
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return err
}
