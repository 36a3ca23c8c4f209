package feed

import (
	"context"
	"sync/atomic"
	"time"
)

// A node that takes in or gives away more than paceBytes in paceTime catches up with something, or somebody with it. What can wait,
// sealing, then leaves them the disk and the CPUs until bulkHold after the last time: longer than a disk that is behind stops all.
const (
	paceBytes = 4 << 20
	paceTime  = 400 * time.Millisecond
	bulkHold  = 2 * time.Second
	// sealPatience is how long sealing waits for that at most. Where WAL always comes so fast it goes on beside it.
	sealPatience = time.Minute
)

// bulk tells whether WAL flows in bulk anywhere. Safe for concurrent use.
type bulk struct {
	until atomic.Int64
}

// flow is the WAL that comes in, or that one reader takes. It belongs to one goroutine.
type flow struct {
	bytes int       // taken since
	since time.Time // when the count began
}

// taken counts WAL that was taken in or given away.
func (f *flow) taken(b *bulk, bytes int) {
	if f.bytes += bytes; f.bytes < paceBytes {
		return
	}
	now := time.Now()
	if now.Sub(f.since) < paceTime*time.Duration(f.bytes/paceBytes) {
		b.until.Store(now.Add(bulkHold).UnixNano())
	}
	f.bytes, f.since = 0, now
}

// remaining returns for how long WAL counts as flowing in bulk; zero or less if it does not.
func (b *bulk) remaining() time.Duration { return time.Until(time.Unix(0, b.until.Load())) }

// patience waits while WAL comes in bulk, but not for ever.
type patience struct {
	waited time.Duration // since WAL last came otherwise
}

// await returns when remaining says that nothing is left, when sealPatience is used up, or when ctx ends.
func (p *patience) await(ctx context.Context, remaining func() time.Duration) {
	for {
		left := remaining()
		if left <= 0 {
			p.waited = 0
			return
		}
		left = min(left, sealPatience-p.waited)
		if left <= 0 {
			return
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
			p.waited += left
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}
