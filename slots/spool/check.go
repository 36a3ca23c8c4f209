package spool

import (
	"errors"
	"fmt"
	"io"
	"path"

	"walproxy/protocol/link"
	"walproxy/slots/fs"
)

// readHeader reads and checks the header of w against its name and the identity, and sets w.size.
func (l *Log) readHeader(w *window, file fs.File, size int64) error {
	buf := make([]byte, link.WindowHeaderBytes)
	n, err := file.ReadAt(buf, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read header of %s: %w", w.path, err)
	}
	header, err := link.DecodeWindowHeader(buf[:n])
	var version *link.VersionError
	switch {
	case errors.As(err, &version):
		return fmt.Errorf("read header of %s: %w", w.path, err)
	case err != nil:
	case header.Timeline != w.header.Timeline || header.Start != w.header.Start:
		err = fmt.Errorf("it holds WAL from %s on timeline %d", header.Start, header.Timeline)
	case header.SystemID != l.identity.SystemID:
		err = fmt.Errorf("it holds WAL of system %s, the data directory is that of %s", header.SystemID, l.identity.SystemID)
	}
	if err == nil && header.Kind == link.WindowSealed && header.FileBytes() != size {
		err = fmt.Errorf("the file has %d bytes, a sealed window of %d", size, header.FileBytes())
	}
	if err != nil {
		return w.corrupt(0, w.header.Start, err)
	}
	w.header = header
	if header.Kind == link.WindowSealed {
		size = int64(header.IndexOffset)
	}
	w.size.Store(size)
	return nil
}

// checkLines checks that windows and timelines are contiguous and sets the lines' ends.
func (l *Log) checkLines(tail tail) error {
	for i, line := range l.lines {
		newest := line.windows[len(line.windows)-1]
		scan := tail.scan
		if newest != tail.window {
			var err error
			if scan, err = l.readEnded(newest); err != nil {
				return err
			}
			if next := l.lines[i+1]; scan.next != next.timeline || scan.end != next.begin {
				return next.windows[0].corrupt(0, scan.end, fmt.Errorf("it begins at %s, but timeline %d goes on at %s with timeline %d",
					next.begin, line.timeline, scan.end, scan.next))
			}
			newest.ended.Store(true)
		}
		line.end, line.next = scan.end, scan.next
		for j, w := range line.windows[:len(line.windows)-1] {
			if err := l.readClosed(w, line.windows[j+1]); err != nil {
				return err
			}
		}
	}
	return nil
}

var errNoEnd = errors.New("the end of the timeline is missing")

// readEnded reads the newest window of a timeline that has ended.
func (l *Log) readEnded(w *window) (scan scanResult, err error) {
	err = l.withFile(w, func(file fs.File, size int64) error {
		if err := l.readHeader(w, file, size); err != nil {
			return err
		}
		if w.header.Kind == link.WindowSealed {
			scan, err = w.sealedEnd(file)
			return err
		}
		scan, err = w.scan(file, size)
		if err == nil && scan.next == 0 {
			err = errNoEnd
		}
		if err != nil {
			return w.bad(scan.offset, scan.end, err)
		}
		w.size.Store(scan.offset)
		return nil
	})
	return scan, err
}

// readClosed checks a window that another one of its timeline follows.
func (l *Log) readClosed(w, next *window) error {
	err := l.withFile(w, func(file fs.File, size int64) error { return l.readHeader(w, file, size) })
	if err != nil {
		return err
	}
	w.ended.Store(true)
	start, limit := next.header.Start, w.limit()
	if w.header.Kind == link.WindowSealed {
		if limit = w.header.End; start == limit {
			return nil
		}
		return w.corrupt(w.size.Load(), limit, fmt.Errorf("the next window is %s, WAL from %s on is missing", path.Base(next.path), limit))
	}
	if start == limit || start < limit && w.header.ResetDistance != l.headerDistance(next) {
		return nil
	}
	return w.corrupt(w.size.Load(), limit, fmt.Errorf("the next window is %s, WAL from %s on is missing", path.Base(next.path), limit))
}

// headerDistance returns the reset distance of a window whose header may not be read yet, or 0.
func (l *Log) headerDistance(w *window) uint32 {
	if w.header.ResetDistance == 0 {
		if err := l.withFile(w, func(file fs.File, size int64) error { return l.readHeader(w, file, size) }); err != nil {
			return 0
		}
	}
	return w.header.ResetDistance
}

func (l *Log) withFile(w *window, use func(fs.File, int64) error) (err error) {
	file, err := l.fs.Open(w.path)
	if err != nil {
		return fmt.Errorf("open window: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	size, err := file.Size()
	if err != nil {
		return fmt.Errorf("open window %s: %w", w.path, err)
	}
	return use(file, size)
}
