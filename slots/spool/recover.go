package spool

import (
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"go.uber.org/zap"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/slots/fs"
)

// recover builds the state in memory from the files and repairs what a crash left behind.
func (l *Log) recover() error {
	if err := l.loadIdentity(); err != nil {
		return err
	}
	if err := l.loadHistories(); err != nil {
		return err
	}
	if err := l.openMarker(); err != nil {
		return err
	}
	if err := l.list(); err != nil {
		return err
	}
	tail, err := l.openTail()
	if err != nil {
		return err
	}
	if err := l.checkLines(tail); err != nil {
		return err
	}
	return l.start(tail)
}

// list finds the windows by their names. Directories without one are removed.
func (l *Log) list() error {
	names, err := l.fs.ReadDir(l.root)
	if err != nil {
		return fmt.Errorf("list windows: %w", err)
	}
	for _, name := range names {
		number, ok := parseHex(name, 8)
		if !ok || number == 0 {
			l.logger.Warn("unknown file in the spool", zap.String("file", path.Join(l.root, name)))
			continue
		}
		line := &line{timeline: protocol.Timeline(number)}
		if err := l.listWindows(line); err != nil {
			return err
		}
		if len(line.windows) > 0 {
			line.begin = line.windows[0].header.Start
			l.lines = append(l.lines, line)
		} else if err := l.fs.Remove(timelineDir(l.root, line.timeline)); err != nil {
			l.logger.Warn("remove empty directory", zap.Uint32("tli", uint32(line.timeline)), errField(err))
		}
	}
	return nil
}

func (l *Log) listWindows(line *line) error {
	dir := timelineDir(l.root, line.timeline)
	names, err := l.fs.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("list windows: %w", err)
	}
	for _, name := range names {
		file := path.Join(dir, name)
		stem, isWindow := strings.CutSuffix(name, windowSuffix)
		start, ok := parseHex(stem, 16)
		switch {
		case isWindow && ok:
			w := &window{path: file}
			w.header.Timeline, w.header.Start = line.timeline, protocol.LSN(start)
			line.windows = append(line.windows, w)
		case strings.HasSuffix(name, fs.TempSuffix):
			if err := l.fs.Remove(file); err != nil {
				return fmt.Errorf("remove leftover: %w", err)
			}
		default:
			l.logger.Warn("unknown file in the spool", zap.String("file", file))
		}
	}
	return nil
}

// tail is what the newest window holds.
type tail struct {
	window *window
	scan   scanResult
}

// openTail opens the newest window, cuts off what a crash tore, and goes back to the one before if nothing is left of it.
// The zero tail means that the log is empty.
func (l *Log) openTail() (tail, error) {
	for len(l.lines) > 0 {
		last := l.lines[len(l.lines)-1]
		w := last.windows[len(last.windows)-1]
		file, err := l.fs.OpenWrite(w.path)
		if err != nil {
			return tail{}, fmt.Errorf("open window: %w", err)
		}
		w.file = file
		scan, err := l.repair(w)
		if err != nil {
			return tail{}, errors.Join(err, file.Close())
		}
		if scan.frames > 0 {
			return tail{window: w, scan: scan}, nil
		}
		w.file = nil
		if err := errors.Join(file.Close(), l.fs.Remove(w.path), l.syncDir(path.Dir(w.path))); err != nil {
			return tail{}, fmt.Errorf("remove torn window: %w", err)
		}
		last.windows = last.windows[:len(last.windows)-1]
		if len(last.windows) == 0 {
			l.lines = l.lines[:len(l.lines)-1]
		}
	}
	if l.marker.size > 0 {
		return tail{}, l.missingWindow()
	}
	return tail{}, nil
}

// repair reads the newest window to its end and truncates a torn tail. A result without frames means that nothing of the
// window ever became durable.
func (l *Log) repair(w *window) (scanResult, error) {
	size, err := w.file.Size()
	if err != nil {
		return scanResult{}, fmt.Errorf("open window %s: %w", w.path, err)
	}
	confirmed, err := l.confirmed(w)
	if err != nil {
		return scanResult{}, err
	}
	if err := l.readHeader(w, w.file, size); err != nil {
		if torn, tornErr := tornHeader(w.file, size, err); tornErr != nil || !torn || confirmed > 0 {
			return scanResult{}, errors.Join(err, tornErr)
		}
		l.logger.Warn("window file without a header removed: a crash came before it was durable",
			zap.String("file", w.path), lsnField(w.header.Start), zap.Int64("bytes", size))
		return scanResult{}, nil
	}
	scan, err := w.scan(w.file, size)
	if err == nil && scan.offset < confirmed {
		err = io.ErrUnexpectedEOF
	}
	if err == nil {
		return scan, nil
	}
	torn, tornErr := scan.torn(w.file, size, err)
	if tornErr != nil || !torn || scan.offset < confirmed {
		return scanResult{}, errors.Join(w.bad(scan.offset, scan.end, err), tornErr)
	}
	l.logger.Warn("torn tail cut off: a crash came before it was durable", zap.String("file", w.path),
		lsnField(scan.end), zap.Int64("bytes", size-scan.offset))
	if scan.frames == 0 {
		return scan, nil
	}
	if err := w.file.Truncate(scan.offset); err != nil {
		return scanResult{}, fmt.Errorf("cut off torn tail of %s: %w", w.path, err)
	}
	return scan, nil
}

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
	case header.Kind != link.WindowLive:
		return fmt.Errorf("read header of %s: %w", w.path, &link.VersionError{What: "window kind", Got: int(header.Kind)})
	case header.Timeline != w.header.Timeline || header.Start != w.header.Start:
		err = fmt.Errorf("it holds WAL from %s on timeline %d", header.Start, header.Timeline)
	case header.SystemID != l.identity.SystemID:
		err = fmt.Errorf("it holds WAL of system %s, the data directory is that of %s", header.SystemID, l.identity.SystemID)
	}
	if err != nil {
		return w.corrupt(0, w.header.Start, err)
	}
	w.header = header
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
				return next.windows[0].corrupt(0, scan.end, fmt.Errorf("timeline %d, which begins at %s, does not follow timeline %d, which ends at %s with timeline %d next",
					next.timeline, next.begin, line.timeline, scan.end, scan.next))
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
		scan, err = w.scan(file, size)
		if err == nil && scan.next == 0 {
			err = errNoEnd
		}
		if err != nil {
			return w.bad(scan.offset, scan.end, err)
		}
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

// start sets the state and makes durable what was found, which may be in the page cache alone.
func (l *Log) start(tail tail) error {
	if tail.window == nil {
		l.lines = nil
		return nil
	}
	w := tail.window
	w.size.Store(tail.scan.offset)
	l.current, l.newest, l.durable, l.cursor = w, w, w, tail.scan.cursor
	if err := l.syncFiles(w, tail.scan.offset, []string{path.Dir(w.path), l.root, l.dir}); err != nil {
		return errors.Join(err, w.file.Close())
	}
	last := l.lines[len(l.lines)-1]
	l.state = State{Timeline: last.timeline, Begin: l.lines[0].begin, End: last.end, Flushed: last.end, Stream: tail.scan.stream}
	if last.next != 0 {
		w.ended.Store(true)
		l.state.Timeline = last.next
		l.lines = append(l.lines, &line{timeline: last.next, begin: last.end, end: last.end})
	}
	count := 0
	for _, line := range l.lines {
		for _, w := range line.windows {
			l.state.Bytes += w.size.Load()
			count++
		}
	}
	l.metrics.opened(l.state.Bytes, count)
	return nil
}

func (l *Log) syncDir(dir string) error {
	if l.noSync {
		return nil
	}
	return l.fs.SyncDir(dir)
}
