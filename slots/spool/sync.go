package spool

import (
	"fmt"
	"time"
)

// Sync makes durable whatever was appended before the call. Callers that come while an fsync is under way share the next one.
// Append goes on meanwhile. After an error nothing more is accepted: the log must be opened again.
func (l *Log) Sync() error {
	l.mu.Lock()
	target := l.appends
	l.mu.Unlock()
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	l.mu.Lock()
	if l.failed != nil || l.synced >= target {
		defer l.mu.Unlock()
		return l.failed
	}
	w, appends, names, tli, end := l.newest, l.appends, l.newNames, l.state.Timeline, l.state.End
	size := w.size.Load() // a frame's bytes are in the file before they count here
	l.mu.Unlock()
	err := l.syncFiles(w, size, names)
	l.mu.Lock()
	completed := err == nil && w != l.durable
	if err != nil {
		l.failed = err
	} else {
		l.synced, l.newNames, l.durable = appends, nil, w // newNames only changes with syncMu held
		if tli != l.state.Timeline {                      // the timeline ended meanwhile
			end = min(end, l.state.End)
		}
		l.state.Flushed = end
	}
	l.mu.Unlock()
	l.changed.Notify()
	if completed {
		l.completed.Notify()
	}
	return err
}

// syncFiles makes the first size bytes of a window and its name durable. l.syncMu is held, so the window stays open.
func (l *Log) syncFiles(w *window, size int64, names []string) error {
	if l.noSync {
		return nil
	}
	began := time.Now()
	if err := w.file.Sync(); err != nil {
		return fmt.Errorf("sync window %s: %w; restart the node", w.path, err)
	}
	for _, dir := range names {
		if err := l.fs.SyncDir(dir); err != nil {
			return fmt.Errorf("sync directory %s: %w; restart the node", dir, err)
		}
	}
	l.writeMarker(w, size)
	l.metrics.syncedIn(time.Since(began))
	return nil
}
