package spool

import (
	"errors"
	"fmt"
	"io"
	"path"

	"go.uber.org/zap"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/slots/fs"
)

// readIndex reads the index of a sealed window.
//
// Errors: *CorruptError; *link.VersionError; those of the file.
func (w *window) readIndex(file fs.File, h link.WindowHeader) (link.Index, error) {
	buf := make([]byte, h.IndexBytes) // the header bounds it
	n, err := file.ReadAt(buf, int64(h.IndexOffset))
	if err != nil && !errors.Is(err, io.EOF) {
		return link.Index{}, fmt.Errorf("read index of %s: %w", w.path, err)
	}
	index, err := link.DecodeIndex(h, buf[:n])
	if err != nil {
		return link.Index{}, w.bad(int64(h.IndexOffset), h.Start, err)
	}
	return index, nil
}

// sealedEnd reads the end of the timeline from a sealed window.
func (w *window) sealedEnd(file fs.File) (scanResult, error) {
	index, err := w.readIndex(file, w.header)
	if err != nil {
		return scanResult{}, err
	}
	entry, ends := index.Ends()
	if !ends {
		return scanResult{}, w.bad(w.size.Load(), w.header.End, errNoEnd)
	}
	r := NewFrames(file, entry.Offset, index.Cursor(index.Len()-1))
	f, _, err := r.Next(w.size.Load())
	if err == nil && (f.Timeline != w.header.Timeline || f.Start != w.header.End) {
		err = errDisorder
	}
	if err != nil {
		return scanResult{}, w.bad(entry.Offset, w.header.End, err)
	}
	end, err := f.TimelineEnd()
	if err != nil {
		return scanResult{}, w.bad(entry.Offset, w.header.End, err)
	}
	return scanResult{frames: 1, offset: r.offset, end: f.Start, next: end.Next}, nil
}

// unseal makes the newest window a live one again if it is sealed, which it never is unless later ones were taken away. So the
// log goes on behind it as behind any other.
func (l *Log) unseal(w *window) error {
	if !l.isSealed(w) {
		return nil
	}
	content, err := fs.ReadFile(l.fs, w.path, link.MaxWindowBytes)
	if err != nil {
		return fmt.Errorf("unseal window: %w", err)
	}
	h, err := link.ReadWindow(content, nil)
	if err != nil {
		return w.bad(0, w.header.Start, err)
	}
	live := h
	live.Kind, live.End, live.IndexOffset, live.IndexBytes = link.WindowLive, 0, 0, 0
	content = content[:h.IndexOffset]
	live.Append(content[:0])
	if err := l.rename(w.path, content); err != nil {
		return fmt.Errorf("unseal window %s: %w", w.path, err)
	}
	if l.marker.timeline == w.header.Timeline && l.marker.start == w.header.Start {
		l.marker = marker{} // it tells the length from before the window was sealed
	}
	l.logger.Warn("the newest window was sealed and takes frames again: later ones were taken away",
		zap.String("file", w.path), lsnField(h.Start))
	return l.syncDir(path.Dir(w.path))
}

// OpenSealed opens the file of the sealed window of tli that begins at start, and returns it with its header. The file never
// changes and stays readable when the window is removed. The caller closes it and checks what it reads (link.ReadWindow).
//
// Errors: *RemovedError below what is held; ErrNotYet if no sealed window begins at start; *CorruptError.
func (l *Log) OpenSealed(tli protocol.Timeline, start protocol.LSN) (fs.File, link.WindowHeader, error) {
	w, err := l.sealedAt(tli, start)
	if err != nil {
		return nil, link.WindowHeader{}, err
	}
	file, err := l.fs.Open(w.path)
	if errors.Is(err, fs.ErrNotExist) {
		_, removed := l.sealedAt(tli, start)
		return nil, link.WindowHeader{}, errors.Join(removed, err)
	}
	if err != nil {
		return nil, link.WindowHeader{}, fmt.Errorf("open window: %w", err)
	}
	var buf [link.WindowHeaderBytes]byte
	n, err := file.ReadAt(buf[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, link.WindowHeader{}, errors.Join(fmt.Errorf("read header of %s: %w", w.path, err), file.Close())
	}
	if h, err := link.DecodeWindowHeader(buf[:n]); err != nil || h != w.header {
		err = errors.Join(errors.New("the header is no longer that of the window"), err)
		return nil, link.WindowHeader{}, errors.Join(w.corrupt(0, start, err), file.Close())
	}
	return file, w.header, nil
}

// sealedAt finds the sealed window that begins at start.
func (l *Log) sealedAt(tli protocol.Timeline, start protocol.LSN) (*window, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := l.lineOf(tli)
	if len(l.lines) > 0 && (tli < l.lines[0].timeline || line != nil && start < line.begin) {
		return nil, &RemovedError{Timeline: tli, LSN: start, Oldest: l.lines[0].begin}
	}
	if line != nil {
		for _, w := range line.windows {
			if w.header.Start == start && w.header.Kind == link.WindowSealed {
				return w, nil
			}
		}
	}
	return nil, fmt.Errorf("open sealed window at %s on timeline %d: %w", start, tli, ErrNotYet)
}
