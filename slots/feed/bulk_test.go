package feed

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// WAL above ten megabytes in a second is bulk until two seconds after; slower WAL never is.
func TestBulk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, f := &bulk{}, flow{since: time.Now()}
		for range 64 {
			time.Sleep(5 * time.Millisecond)
			f.taken(b, 128<<10)
		}
		if left := b.remaining(); left != bulkHold {
			t.Fatalf("fast WAL: %s remain", left)
		}
		p := patience{}
		began := time.Now()
		p.await(context.Background(), b.remaining)
		if waited := time.Since(began); waited != bulkHold || p.waited != 0 {
			t.Fatalf("waited %s, %s counted", waited, p.waited)
		}
		for range 64 {
			time.Sleep(20 * time.Millisecond)
			f.taken(b, 128<<10)
		}
		if left := b.remaining(); left > 0 {
			t.Fatalf("slow WAL: %s remain", left)
		}
	})
}

// Sealing waits for a minute in all where WAL always comes in bulk, and then no more until it once did not.
func TestPatienceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := bulkHold
		remaining := func() time.Duration { return left }
		p := patience{}
		began := time.Now()
		for range 3 {
			p.await(context.Background(), remaining)
			if waited := time.Since(began); waited != sealPatience {
				t.Fatalf("waited %s", waited)
			}
		}
		left = 0
		p.await(context.Background(), remaining)
		left = bulkHold
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		p.await(ctx, remaining)
		if waited := time.Since(began); waited != sealPatience+time.Second {
			t.Fatalf("after a pause: waited %s", waited)
		}
	})
}
