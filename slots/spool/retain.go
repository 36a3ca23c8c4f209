package spool

import (
	"errors"
	"fmt"
	"path"

	"go.uber.org/zap"

	"walproxy/protocol"
	"walproxy/slots/fs"
)

// Retain removes the windows that end at or below keep, oldest first, never the newest one that is durable: what is left
// after a crash still says where the log goes on. Readers that are in a removed
// window read it to its end. After an error the window whose removal failed is the first to go at the next call, whatever keep is then:
// if a later one went before it, a gap would be left on disk.
func (l *Log) Retain(keep protocol.LSN) error {
	l.retainMu.Lock()
	defer l.retainMu.Unlock()
	for {
		if l.removing.window == nil {
			l.removing = l.unlistOldest(keep)
			if l.removing.window == nil {
				return nil
			}
			l.changed.Notify()
		}
		if err := l.remove(l.removing.window); err != nil {
			return err
		}
		w, lastOfLine := l.removing.window, l.removing.lastOfLine
		l.removing = removal{}
		l.logger.Debug("window removed", lsnField(w.header.Start), zap.Uint32("tli", uint32(w.header.Timeline)))
		if !lastOfLine {
			continue
		}
		if err := l.fs.Remove(path.Dir(w.path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove directory of timeline %d: %w", w.header.Timeline, err)
		}
	}
}

// removal is of a window that is no longer listed, while its file may still be there or come back.
type removal struct {
	window     *window
	lastOfLine bool // its timeline is gone with it
}

// remove removes the file of w for good. It may be gone already, by a call that failed later on or by somebody else.
func (l *Log) remove(w *window) error {
	if err := l.fs.Remove(w.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove window: %w", err)
	}
	if err := l.syncDir(path.Dir(w.path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove window %s: sync directory: %w", w.path, err)
	}
	return nil
}

// unlistOldest takes the oldest window off the list if it may go.
func (l *Log) unlistOldest(keep protocol.LSN) removal {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.lines) == 0 {
		return removal{}
	}
	oldest := l.lines[0]
	if len(oldest.windows) == 0 || l.durable == nil || oldest.windows[0] == l.durable || oldest.endOf(0) > keep {
		return removal{}
	}
	w, lastOfLine := oldest.windows[0], false
	oldest.windows = oldest.windows[1:]
	l.state.Bytes -= w.fileBytes()
	if len(oldest.windows) == 0 {
		l.lines = l.lines[1:]
		lastOfLine = true
	} else {
		oldest.begin = oldest.windows[0].header.Start
	}
	l.state.Begin = l.lines[0].begin
	l.metrics.windowCount(-1)
	l.metrics.size(l.state.Bytes)
	return removal{w, lastOfLine}
}
