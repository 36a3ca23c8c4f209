package bench

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
)

// pool is the workers of one input.
type pool struct {
	options Options
	workers []*worker
}

// newPool makes a worker for each processor that there are windows for.
func newPool(o Options, streams []stream) (*pool, error) {
	p, windows := &pool{options: o}, 0
	for i := range streams {
		streams[i].windows(o.Recompress.ResetDistance, func(window) bool {
			windows++
			return windows < o.CPUs
		})
	}
	for range min(o.CPUs, windows) {
		w, err := newWorker(o)
		if err != nil {
			return nil, err
		}
		p.workers = append(p.workers, w)
	}
	return p, nil
}

// run gives the windows of the streams to whichever worker is free, and returns the sum of what they measured.
func (p *pool) run(ctx context.Context, streams []stream, progress *progress) (*tally, error) {
	group, ctx := errgroup.WithContext(ctx)
	jobs := make(chan window) // closed by the first goroutine, the only one that sends
	done := make(chan int64)  // bytes of a finished window; closed when all workers have ended
	group.Go(func() error {
		defer close(jobs)
		return p.hand(ctx, streams, jobs)
	})
	for _, w := range p.workers {
		group.Go(func() error {
			for win := range jobs {
				if err := w.do(win); err != nil {
					return err
				}
				done <- int64(win.bytes)
			}
			return nil
		})
	}
	var err error
	go func() {
		err = group.Wait()
		close(done)
	}()
	for bytes := range done {
		progress.add(bytes)
	}
	if err != nil {
		return nil, err
	}
	return p.sum(), nil
}

func (p *pool) hand(ctx context.Context, streams []stream, jobs chan<- window) error {
	for i := range streams {
		streams[i].windows(p.options.Recompress.ResetDistance, func(win window) bool {
			select {
			case jobs <- win:
				return true
			case <-ctx.Done():
				return false
			}
		})
	}
	return context.Cause(ctx)
}

// sum adds the workers up. Time is that of the workers which had anything to do, divided by their number: what was done side by
// side took that long.
func (p *pool) sum() *tally {
	t, busy := newTally(), 0
	for _, w := range p.workers {
		if w.tally.windows > 0 {
			busy++
		}
		t.add(w.tally)
		t.addCosts(w.costs)
	}
	if busy > 1 {
		t.encode /= time.Duration(busy)
		t.decode /= time.Duration(busy)
		t.cold.encode /= time.Duration(busy)
		t.cold.decode /= time.Duration(busy)
	}
	return t
}
