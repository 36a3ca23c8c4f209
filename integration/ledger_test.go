package integration

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"walproxy/integration/pgcluster"
)

// ledger commits numbered rows, one transaction each, and remembers which ones were acknowledged.
type ledger struct {
	primary *pgcluster.Cluster
	mu      sync.Mutex // guards the next two
	acked   []int
	failed  error
	moved   chan struct{} // gets a value, if it has none, after each commit
	cancel  context.CancelFunc
	done    chan struct{}
}

func startLedger(ctx context.Context, t *testing.T, primary *pgcluster.Cluster) *ledger {
	t.Helper()
	must(t, primary.Exec(ctx, "DROP TABLE IF EXISTS ledger; CREATE TABLE ledger (n int PRIMARY KEY)"))
	ctx, cancel := context.WithCancel(ctx)
	l := &ledger{primary: primary, moved: make(chan struct{}, 1), cancel: cancel, done: make(chan struct{})}
	go l.run(ctx)
	t.Cleanup(func() {
		cancel()
		<-l.done
	})
	return l
}

func (l *ledger) run(ctx context.Context) {
	defer close(l.done)
	for n := 0; ctx.Err() == nil; n++ {
		err := l.primary.Exec(ctx, fmt.Sprintf("INSERT INTO ledger VALUES (%d); INSERT INTO t (text) SELECT repeat('x', 1 + %d %% 500)", n, n))
		l.mu.Lock()
		if err == nil {
			l.acked = append(l.acked, n)
		} else if ctx.Err() == nil {
			l.failed = err // whether n is committed is not known
		}
		l.mu.Unlock()
		if err != nil { // until the server is back; only ctx ends that
			_ = pgcluster.Until(ctx, func() (bool, error) { return l.primary.Exec(ctx, "SELECT 1") == nil, nil })
		}
		select {
		case l.moved <- struct{}{}:
		default:
		}
	}
}

func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acked)
}

// more waits for so many further commits.
func (l *ledger) more(ctx context.Context, t *testing.T, commits int) {
	t.Helper()
	for want := l.count() + commits; l.count() < want; {
		select {
		case <-l.moved:
		case <-ctx.Done():
			t.Fatalf("no further commits; the last failure was: %v", l.failed)
		}
	}
}

func (l *ledger) stop(t *testing.T) {
	t.Helper()
	l.cancel()
	<-l.done
	t.Logf("%d commits acknowledged; the last one that failed: %v", len(l.acked), l.failed)
}

// check finds every acknowledged row on a server.
func (l *ledger) check(ctx context.Context, t *testing.T, c *pgcluster.Cluster) {
	t.Helper()
	if missing := l.missing(ctx, t, c); len(missing) > 0 {
		t.Errorf("acknowledged commits are missing: %v", missing)
	}
}

// missing returns the acknowledged rows that are not on a server.
func (l *ledger) missing(ctx context.Context, t *testing.T, c *pgcluster.Cluster) (missing []int) {
	t.Helper()
	l.mu.Lock()
	acked := slices.Clone(l.acked)
	l.mu.Unlock()
	rows, err := c.Query(ctx, "SELECT string_agg(n::text, ' ' ORDER BY n) FROM ledger")
	must(t, err)
	have := make(map[int]bool)
	for _, text := range strings.Fields(rows[0][0]) {
		n, err := strconv.Atoi(text)
		must(t, err)
		have[n] = true
	}
	for _, n := range acked {
		if !have[n] {
			missing = append(missing, n)
		}
	}
	return missing
}
