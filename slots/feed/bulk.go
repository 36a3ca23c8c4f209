package feed

import (
	"context"
	"sync/atomic"
	"time"
)

// A node that takes in more than paceBytes in paceTime catches up with something. What can wait, sealing, then leaves it the disk
// and the CPUs until bulkHold after the last time.
const (
	paceBytes = 4 << 20
	paceTime  = 400 * time.Millisecond
	bulkHold  = 500 * time.Millisecond
	// sealPatience is how long sealing waits for that at most. Where WAL always comes so fast it goes on beside it.
	sealPatience = time.Minute
)

// bulk tells whether WAL comes in bulk. taken belongs to the goroutine that writes, remaining to everybody.
type bulk struct {
	bytes int       // taken since
	since time.Time // when the count began
	until atomic.Int64
}

// taken counts WAL that was taken in.
func (b *bulk) taken(bytes int) {
	if b.bytes += bytes; b.bytes < paceBytes {
		return
	}
	now := time.Now()
	if now.Sub(b.since) < paceTime*time.Duration(b.bytes/paceBytes) {
		b.until.Store(now.Add(bulkHold).UnixNano())
	}
	b.bytes, b.since = 0, now
}

// remaining returns for how long WAL counts as coming in bulk; zero or less if it does not.
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
