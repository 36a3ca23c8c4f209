package spool

import (
	"errors"
	"fmt"
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
	if err = l.checkLines(tail); err == nil {
		err = l.start(tail)
	}
	if err != nil && tail.window != nil {
		err = errors.Join(err, tail.window.file.Close())
	}
	return err
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
			continue
		}
		dir := timelineDir(l.root, line.timeline) // as for the oldest line in start: what was removed from it stays removed
		if err := l.syncDir(dir); err != nil {
			return fmt.Errorf("sync empty directory: %w", err)
		}
		if err := l.fs.Remove(dir); err != nil {
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
		stem, isWindow := strings.CutSuffix(name, WindowSuffix)
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

// start sets the state and makes durable what was found, which may be in the page cache alone.
func (l *Log) start(tail tail) error {
	if tail.window == nil {
		l.lines = nil
		return nil
	}
	w := tail.window
	w.size.Store(tail.scan.offset)
	w.names = []string{path.Dir(w.path), l.root, l.dir}
	// A removal by the last process may not be durable yet: the next one is not to overtake it.
	if err := l.syncDir(timelineDir(l.root, l.lines[0].timeline)); err != nil {
		return fmt.Errorf("sync directory of the oldest windows: %w", err)
	}
	newest := []*window{w}
	if err := l.syncFiles(newest, tail.scan.offset); err != nil {
		return err
	}
	l.current, l.newest, l.durable, l.unsynced, l.cursor = w, w, w, newest, tail.scan.cursor
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
