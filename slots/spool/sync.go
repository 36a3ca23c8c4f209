package spool

import (
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"walproxy/protocol"
	"walproxy/protocol/link"
)

// MaxUnsyncedBytes bounds the WAL before a window that need not be durable when the window begins, in bytes of LSN. Recovery
// relies on it: what lies further before the beginning of the newest window was durable, whatever it looks like.
const MaxUnsyncedBytes = link.MaxResetDistance

// Sync makes durable whatever was appended before the call. Callers that come while an fsync is under way share the next one.
// Append goes on meanwhile. After an error nothing more is accepted: the log must be opened again.
func (l *Log) Sync() error {
	l.mu.Lock()
	target := l.appends
	l.mu.Unlock()
	return l.syncUntil(func() bool { return l.synced >= target })
}

// syncBefore makes durable what has to be before f begins a window: what came on older timelines; the first window of its own,
// so that this one is there wherever others are; and what lies more than MaxUnsyncedBytes before f.
func (l *Log) syncBefore(f *link.Frame) error {
	l.mu.Lock()
	last := l.lines[len(l.lines)-1]
	early := len(last.windows) == 0 || len(last.windows) == 1 && l.durable != l.newest
	l.mu.Unlock()
	if early {
		return l.Sync()
	}
	return l.syncUntil(func() bool { return uint64(f.Start-l.state.Flushed) <= MaxUnsyncedBytes })
}

// syncUntil syncs until enough, which is called with l.mu held, says so. It is the only one that makes windows durable.
func (l *Log) syncUntil(enough func() bool) error {
	if done, err := l.syncedEnough(enough); done { // without waiting for an fsync that is under way
		return err
	}
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	if done, err := l.syncedEnough(enough); done {
		return err
	}
	l.mu.Lock()
	windows, appends, tli, end := slices.Clone(l.unsynced), l.appends, l.state.Timeline, l.state.End
	newest := windows[len(windows)-1]
	size := newest.size.Load() // a frame's bytes are in the file before they count here
	l.mu.Unlock()
	err := l.syncFiles(windows, size)
	l.mu.Lock()
	completed := err == nil && newest != l.durable
	if err != nil {
		l.failed = err
	} else {
		l.unsynced = slices.Delete(l.unsynced, 0, len(windows)-1) // the last one may have grown meanwhile
		l.synced, l.durable = appends, newest
		l.state.Flushed = l.flushedAt(tli, end)
	}
	l.mu.Unlock()
	if err == nil {
		l.closeSynced(windows[:len(windows)-1])
	}
	l.changed.Notify()
	l.flushed.Notify()
	if completed {
		l.completed.Notify()
	}
	return err
}

func (l *Log) syncedEnough(enough func() bool) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed != nil || enough(), l.failed
}

// flushedAt returns what is durable of the current timeline when everything below end on tli is. l.mu is held.
func (l *Log) flushedAt(tli protocol.Timeline, end protocol.LSN) protocol.LSN {
	if tli != l.state.Timeline { // it ended meanwhile, perhaps at a lower position
		return min(end, l.state.End)
	}
	return end
}

// syncFiles makes windows durable, then their names, and remembers that size bytes of the newest are. l.syncMu is
// held, so they stay open.
func (l *Log) syncFiles(windows []*window, size int64) error {
	if l.noSync {
		return nil
	}
	began := time.Now()
	var dirs []string
	if err := syncAll(windows); err != nil {
		return err
	}
	for _, w := range windows {
		for _, dir := range w.names {
			if !slices.Contains(dirs, dir) {
				dirs = append(dirs, dir)
			}
		}
	}
	for _, dir := range dirs {
		if err := l.fs.SyncDir(dir); err != nil {
			return fmt.Errorf("sync directory %s: %w; restart the node", dir, err)
		}
	}
	for _, w := range windows {
		w.names = nil
	}
	l.writeMarker(windows[len(windows)-1], size)
	l.metrics.syncedIn(time.Since(began))
	return nil
}

// maxSyncs bounds the windows that are synced at the same time.
const maxSyncs = 16

// syncAll makes the files of windows durable, in no particular order: as long as one is not, what is behind it does not count. All
// wait for the disk together, which takes one flush of its cache for many.
func syncAll(windows []*window) error {
	if len(windows) == 1 {
		return windows[0].sync()
	}
	var g errgroup.Group
	g.SetLimit(maxSyncs)
	for _, w := range windows {
		g.Go(w.sync)
	}
	return g.Wait()
}

func (w *window) sync() error {
	if err := w.file.Sync(); err != nil {
		return fmt.Errorf("sync window %s: %w; restart the node", w.path, err)
	}
	return nil
}

// closeSynced closes the files of windows that are durable and take no more frames.
func (l *Log) closeSynced(windows []*window) {
	for _, w := range windows {
		if err := w.file.Close(); err != nil && !l.noSync {
			l.logger.Warn("close window", lsnField(w.header.Start), errField(err)) // it was synced
		}
	}
}
