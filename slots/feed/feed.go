// Package feed is a node's WAL: chunks or frames come in from the upstream, chunks or frames go out to any number of
// consumers. Behind it are the spool on disk, the recompression, and a tail in memory that consumers at the end share.
package feed

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/recompress"
	"walproxy/slots/spool"
)

// DefaultTailBytes is the size of the tail when Options leaves it open.
const DefaultTailBytes = 16 << 20

// Options configure a Feed.
type Options struct {
	Recompress recompress.Options // how chunks become frames; ResetDistance is also that of the spool
	TailBytes  int                // raw WAL kept in memory, a power of two; 0 means DefaultTailBytes
	// MakeRoom is called when the spool has reached its cap or the disk is full, with the error. It returns when another try
	// makes sense, or with an error that stops the upstream. nil: the error stops the upstream.
	// BacklogBytes is the mark above which codec auto goes over to the faster codec: WAL that the upstream has and that has not
	// arrived. 0: it never does.
	BacklogBytes uint64
	MakeRoom     func(ctx context.Context, full error) error
	// Hold is how long, at most, the record that is incomplete at the end of a chunk is kept back for the rest of it; Feed.Hold must
	// run then. 0: no record is.
	Hold time.Duration
	// Observe is given all WAL that is taken in, in order, by the goroutine that writes; wal is valid during the call. nil: nobody.
	Observe func(tli protocol.Timeline, start protocol.LSN, wal []byte)
	Logger  *zap.Logger
	Metrics *Metrics
}

// Feed is safe for one goroutine that writes (WAL, Frame, EndTimeline, Compare) and many that read.
type Feed struct {
	log  *spool.Log
	opt  Options
	zap  *zap.Logger
	tail *tail
	bulk bulk

	behind atomic.Bool // the upstream is further ahead than behindBytes

	// The writing goroutine's own; with Options.Hold, of whoever has writing.
	writing sync.Mutex
	holder  recompress.Holder
	since   time.Time          // when it began to hold what it holds
	holds   chan struct{}      // of capacity 1: it holds something
	writer  *recompress.Writer // chunks to frames
	verify  *recompress.Reader // frames from a link are decoded before they count
	synced  uint32             // the stream that verify is in the middle of; 0 if none
	flow    flow
	raw     []byte       // decoded frame, unless it is a raw one
	ahead   protocol.LSN // up to where the upstream could send
	hurry   bool
}

// New returns a feed over log. It does not own log.
func New(log *spool.Log, opt Options) (*Feed, error) {
	if opt.TailBytes == 0 {
		opt.TailBytes = DefaultTailBytes
	}
	if opt.TailBytes < 0 || opt.TailBytes&(opt.TailBytes-1) != 0 {
		return nil, fmt.Errorf("new feed: a tail of %d bytes is not a power of two", opt.TailBytes)
	}
	if opt.Logger == nil {
		opt.Logger = zap.NewNop()
	}
	writer, err := recompress.NewWriter(opt.Recompress)
	if err != nil {
		return nil, fmt.Errorf("new feed: %w", err)
	}
	verify, err := newDecoder()
	if err != nil {
		return nil, fmt.Errorf("new feed: %w", err)
	}
	f := &Feed{
		log: log, opt: opt, zap: opt.Logger.Named("feed"), tail: newTail(opt.TailBytes),
		writer: writer, verify: verify, holds: make(chan struct{}, 1),
	}
	if s := log.State(); s.Timeline != 0 {
		f.tail.push(s.Timeline, s.End, nil)
	}
	return f, nil
}

// newDecoder returns a reader of frames from any window that the format allows.
func newDecoder() (*recompress.Reader, error) {
	return recompress.NewReader(recompress.Options{ResetDistance: link.MaxResetDistance})
}

// Position returns the current timeline and the end of the WAL that consumers can have; zero if there is none yet.
func (f *Feed) Position() (protocol.Timeline, protocol.LSN) {
	return f.tail.position()
}

// WAL that comes in bulk is synced less often: a node that takes in more than bulkBytes in the time of one fsync catches up with
// something, and its upstream waits for no position in particular. The next fsync then comes after bulkInterval, or as soon as
// the WAL stops. Fewer fsyncs leave more of the disk to whoever else syncs on it.
const (
	bulkBytes    = 2 << 20
	bulkInterval = 100 * time.Millisecond
	// Where the upstream is known to be further ahead than behindBytes, no commit there waits for what is being taken in.
	behindBytes    = 16 << 20
	behindInterval = 500 * time.Millisecond
	behindQuiet    = 50 * time.Millisecond
	bulkQuiet      = 10 * time.Millisecond // without WAL: it has stopped
	// overlapBytes leaves the spool as much room again, so that WAL comes in while the fsync is under way.
	overlapBytes = spool.MaxUnsyncedBytes / 2
)

// Sync makes what was written durable whenever there is something to do, until ctx ends; then once more.
// Waits of several appends share one fsync.
func (f *Feed) Sync(ctx context.Context) error {
	if f.log.NoSync() { // nothing ever is
		<-ctx.Done()
		return nil
	}
	for {
		changed := f.log.Changed()
		if s := f.log.State(); s.Flushed < s.End {
			if s.End-s.Flushed > bulkBytes {
				f.awaitBulk(ctx)
			}
			if err := f.log.Sync(); err != nil {
				return fmt.Errorf("sync spool at %s: %w", s.End, err)
			}
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// awaitBulk waits for more WAL to share the next fsync: until bulkInterval is over, no more comes, or ctx ends. It looks now and
// then: to be woken by every append costs more than the appends.
func (f *Feed) awaitBulk(ctx context.Context) {
	interval, pause := bulkInterval, bulkQuiet
	if f.behind.Load() {
		interval, pause = behindInterval, behindQuiet
	}
	began := time.Now()
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for at := f.log.State().End; ; {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		s := f.log.State()
		if s.End == at || s.End-s.Flushed >= overlapBytes || time.Since(began) >= interval {
			return
		}
		at = s.End
		timer.Reset(pause)
	}
}
