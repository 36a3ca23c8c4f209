package spool

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/slots/fs"
	"walproxy/slots/notify"
)

// DefaultResetDistance in bytes is how much WAL a window holds unless told otherwise.
const DefaultResetDistance = 4 << 20

// Options of a log. The zero value is ready to use.
type Options struct {
	FS            fs.FS       // nil: the operating system's
	Logger        *zap.Logger // nil: silent
	Metrics       *Metrics    // nil: none
	ResetDistance uint32      // bytes, of an empty log: one that holds windows goes on as its newest one; 0: DefaultResetDistance
	CapBytes      int64       // of all window files; 0: no cap
	NoSync        bool        // never fsync: a crash of the machine may lose or damage anything (tests, demonstrations)
}

// State is where a log stands.
type State struct {
	Timeline protocol.Timeline // of the next frame; 0 for an empty log
	Begin    protocol.LSN      // first byte held, on the oldest timeline
	End      protocol.LSN      // where the next frame starts
	Flushed  protocol.LSN      // behind the last durable byte of Timeline; at most End
	Stream   uint32            // identity of the stream met last in the newest window, 0 if none
	Bytes    int64             // of all window files
}

// TimelineSpan is what a log holds of one timeline.
type TimelineSpan struct {
	Timeline protocol.Timeline
	Begin    protocol.LSN      // first byte held
	End      protocol.LSN      // behind the last byte; the switch point once Next is set
	Next     protocol.Timeline // 0 while the timeline goes on
}

// Log is an open log. One goroutine at a time appends; every other method is safe for concurrent use with it and itself.
type Log struct {
	fs      fs.FS
	logger  *zap.Logger
	metrics *Metrics
	dir     string // data directory
	root    string // <data>/spool
	noSync  bool
	cap     int64
	lock    io.Closer

	// Lock order: appendMu or retainMu, then syncMu, then mu. mu is never held during file access.
	appendMu sync.Mutex // guards the next six, and window files against two writers
	buf      []byte     // encoded frame, but for a payload that lies in payload
	payload  []byte     // the caller's, during Append
	cursor   link.Cursor
	distance atomic.Uint32 // reset distance of the next window; read without appendMu
	torn     bool          // what is behind the newest window's size may be the bytes of a failed write
	current  *window

	marker marker // as found by Open, which alone uses it

	syncMu     sync.Mutex // one fsync at a time; guards the next four
	markerFile fs.File
	markerBuf  []byte
	marked     marker // what it said when it was synced
	markedAt   time.Time

	fileMu   sync.Mutex // one change of identity and history files at a time
	retainMu sync.Mutex // one removal at a time; guards the next one
	removing removal    // whose file may not be gone for good; the zero removal if none is

	mu        sync.Mutex // guards everything below
	state     State
	appends   uint64 // frames appended since Open
	synced    uint64 // how many of them are durable
	newest    *window
	durable   *window   // the newest one that Sync has seen
	unsynced  []*window // those of which something may not be durable, ascending; the newest is always among them
	lines     []*line   // ascending
	identity  protocol.Identity
	known     bool // identity is set
	histories map[protocol.Timeline][]byte
	failed    error // sticky: fsync failed, or closed

	changed   notify.Notifier // of State
	flushed   notify.Notifier // of State.Flushed
	appended  notify.Notifier // of what readers see
	completed notify.Notifier // of what can be sealed
}

// Open opens the log in the data directory dir, which it makes if it is missing, and repairs what a crash left.
//
// Errors: fs.ErrLocked if another process has it open; *CorruptError; *link.VersionError and *statefile.VersionError for
// files of a newer walproxy. Nothing is changed on disk when an error is returned, torn tails and temporary files apart.
func Open(dir string, options Options) (*Log, error) {
	l := &Log{
		fs: options.FS, logger: options.Logger, metrics: options.Metrics, dir: dir, root: path.Join(dir, "spool"),
		noSync: options.NoSync, cap: options.CapBytes, histories: map[protocol.Timeline][]byte{},
	}
	if l.fs == nil {
		l.fs = fs.OS{}
	}
	if l.logger == nil {
		l.logger = zap.NewNop()
	}
	l.logger = l.logger.Named("spool")
	distance := cmp.Or(options.ResetDistance, DefaultResetDistance)
	if !link.ValidResetDistance(uint64(distance)) {
		return nil, fmt.Errorf("open spool %s: reset distance %d is no power of two from 1 MiB to 64 MiB", dir, distance)
	}
	l.distance.Store(distance)
	if err := l.fs.MkdirAll(l.root); err != nil {
		return nil, fmt.Errorf("open spool %s: %w", dir, err)
	}
	if err := l.syncDir(path.Dir(path.Clean(dir))); err != nil && !errors.Is(err, os.ErrPermission) {
		return nil, fmt.Errorf("open spool %s: sync parent directory: %w", dir, err)
	}
	lock, err := l.fs.Lock(path.Join(dir, "lock"))
	if err != nil {
		return nil, fmt.Errorf("open spool %s (is another walproxy running on it?): %w", dir, err)
	}
	l.lock = lock
	if err := l.recover(); err != nil {
		return nil, errors.Join(fmt.Errorf("open spool %s: %w", dir, err), l.Close())
	}
	if l.current != nil {
		l.distance.Store(l.current.header.ResetDistance)
	}
	return l, nil
}

// Close makes everything durable and releases the data directory. Readers that wait return ErrClosed. It is idempotent; no
// Append may be under way.
func (l *Log) Close() error {
	l.appendMu.Lock()
	defer l.appendMu.Unlock()
	l.mu.Lock()
	failed := l.failed
	l.mu.Unlock()
	if errors.Is(failed, ErrClosed) {
		return nil
	}
	var err error
	if l.current != nil && failed == nil {
		err = l.trim(l.current)
	}
	err = errors.Join(err, l.Sync())
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	l.mu.Lock()
	l.failed = ErrClosed
	open := l.unsynced
	l.unsynced = nil
	l.mu.Unlock()
	for _, w := range open {
		err = errors.Join(err, w.file.Close())
	}
	if l.markerFile != nil {
		err = errors.Join(err, l.markerFile.Close())
	}
	l.changed.Notify()
	l.appended.Notify()
	return errors.Join(err, l.lock.Close())
}

// State returns where the log stands.
func (l *Log) State() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state
}

// WindowInfo describes a window file.
type WindowInfo struct {
	Timeline protocol.Timeline
	Start    protocol.LSN // first byte held
	End      protocol.LSN // behind the last byte; the switch point if the timeline ends here
	Sealed   bool         // the file is complete, and what it holds never changes
	Bytes    int64        // of the file
}

// Windows returns the windows held, in the order of timelines and LSNs.
func (l *Log) Windows() []WindowInfo {
	l.mu.Lock()
	defer l.mu.Unlock()
	var infos []WindowInfo
	for _, line := range l.lines {
		for i, w := range line.windows {
			infos = append(infos, WindowInfo{Timeline: line.timeline, Start: w.header.Start, End: line.endOf(i),
				Sealed: w.header.Kind == link.WindowSealed, Bytes: w.fileBytes()})
		}
	}
	return infos
}

// Changed returns a channel that is closed at the next change of State. Take it before looking at State.
func (l *Log) Changed() <-chan struct{} { return l.changed.Wait() }

// Flushed returns a channel that is closed at the next change of State().Flushed.
func (l *Log) Flushed() <-chan struct{} { return l.flushed.Wait() }

// Timelines returns what is held of each timeline, in ascending order; the last one is State's, also if nothing of it is held yet.
func (l *Log) Timelines() []TimelineSpan {
	l.mu.Lock()
	defer l.mu.Unlock()
	spans := make([]TimelineSpan, len(l.lines))
	for i, line := range l.lines {
		spans[i] = TimelineSpan{Timeline: line.timeline, Begin: line.begin, End: line.end, Next: line.next}
	}
	return spans
}

// NoSync reports whether the log was opened with Options.NoSync.
func (l *Log) NoSync() bool { return l.noSync }

// ResetDistance returns the length in bytes of windows that begin from now on. It does not wait for an append.
func (l *Log) ResetDistance() uint32 { return l.distance.Load() }

// SetResetDistance changes the length of windows, as the upstream of a link orders it. The next frame then begins a window
// and may not continue a stream. Call it from the goroutine that appends.
func (l *Log) SetResetDistance(bytes uint32) error {
	if !link.ValidResetDistance(uint64(bytes)) {
		return fmt.Errorf("set reset distance: %d is no power of two from 1 MiB to 64 MiB", bytes)
	}
	l.appendMu.Lock()
	defer l.appendMu.Unlock()
	l.distance.Store(bytes)
	return nil
}
