package spool

import (
	"fmt"
	"path"

	"go.uber.org/zap"

	"walproxy/protocol"
)

// Retain removes the windows that end at or below keep, oldest first, never the newest one that is durable: what is left
// after a crash still says where the log goes on. Readers that are in a removed
// window read it to its end.
func (l *Log) Retain(keep protocol.LSN) error {
	l.retainMu.Lock()
	defer l.retainMu.Unlock()
	for {
		w, lastOfLine := l.unlistOldest(keep)
		if w == nil {
			return nil
		}
		l.changed.Notify()
		if err := l.fs.Remove(w.path); err != nil {
			return fmt.Errorf("remove window: %w", err)
		}
		if err := l.syncDir(path.Dir(w.path)); err != nil {
			return fmt.Errorf("remove window %s: sync directory: %w", w.path, err)
		}
		l.logger.Debug("window removed", lsnField(w.header.Start), zap.Uint32("tli", uint32(w.header.Timeline)))
		if !lastOfLine {
			continue
		}
		if err := l.fs.Remove(path.Dir(w.path)); err != nil {
			return fmt.Errorf("remove directory of timeline %d: %w", w.header.Timeline, err)
		}
	}
}

// unlistOldest takes the oldest window off the list if it may go, and tells whether its timeline is gone with it.
func (l *Log) unlistOldest(keep protocol.LSN) (w *window, lastOfLine bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.lines) == 0 {
		return nil, false
	}
	oldest := l.lines[0]
	if len(oldest.windows) == 0 || l.durable == nil || oldest.windows[0] == l.durable || oldest.endOf(0) > keep {
		return nil, false
	}
	w, oldest.windows = oldest.windows[0], oldest.windows[1:]
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
	return w, lastOfLine
}
