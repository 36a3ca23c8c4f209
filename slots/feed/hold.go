package feed

import (
	"context"
	"time"

	"walproxy/protocol"
)

// hold returns the WAL to take in now: what was kept back and the chunk, but for the record that is incomplete at its end.
func (f *Feed) hold(tli protocol.Timeline, start protocol.LSN, chunk []byte) (protocol.LSN, []byte) {
	before, held := f.holder.Held()
	start, wal := f.holder.Take(tli, start, chunk)
	if at, n := f.holder.Held(); n > 0 && (held == 0 || at != before) {
		f.since = time.Now()
		select {
		case f.holds <- struct{}{}:
		default:
		}
	}
	return start, wal
}

// Hold takes in what is kept back when its time is over, until ctx ends. Without Options.Hold it only waits for that.
//
// Errors: those of WAL.
func (f *Feed) Hold(ctx context.Context) error {
	timer := time.NewTimer(f.opt.Hold)
	defer timer.Stop()
	for {
		select {
		case <-f.holds:
		case <-ctx.Done():
			return nil
		}
		for {
			left, err := f.overdue(ctx)
			if err != nil {
				return err
			}
			if left <= 0 {
				break
			}
			timer.Reset(left)
			select {
			case <-timer.C:
			case <-ctx.Done():
				return nil
			}
		}
	}
}

// overdue takes in what has been kept back for Options.Hold, and returns when to look again; 0 if nothing is kept back.
func (f *Feed) overdue(ctx context.Context) (time.Duration, error) {
	f.writing.Lock()
	defer f.writing.Unlock()
	if _, n := f.holder.Held(); n == 0 {
		return 0, nil
	}
	if left := f.opt.Hold - time.Since(f.since); left > 0 {
		return left, nil
	}
	if err := f.release(ctx); err != nil && ctx.Err() == nil {
		return 0, err
	}
	return 0, nil
}

// Release takes in what is kept back, because somebody wants to know how far this node is.
func (f *Feed) Release(ctx context.Context) error {
	f.writing.Lock()
	defer f.writing.Unlock()
	return f.release(ctx)
}

func (f *Feed) release(ctx context.Context) error {
	tli, start, wal := f.holder.Release()
	return f.take(ctx, tli, start, wal)
}
