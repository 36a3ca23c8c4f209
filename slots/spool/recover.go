package spool

import (
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"go.uber.org/zap"

	"walproxy/protocol"
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
		if err := l.unseal(w); err != nil {
			return tail{}, err
		}
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
			l.state.Bytes += w.fileBytes()
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
