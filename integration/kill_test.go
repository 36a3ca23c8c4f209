package integration

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"walproxy/integration/nodeproc"
	"walproxy/integration/pgcluster"
)

// TestKills kills node A, node B, the primary or the standby with SIGKILL at random moments under load and starts it again.
// Afterwards the standby is identical, and no commit that the primary has acknowledged is missing.
func TestKills(t *testing.T) {
	t.Parallel()
	ctx := setting(t, 15*patience)
	choice := random(t)
	r := startRelay(ctx, t, pgcluster.Options{Major: 15, Conf: []string{"wal_keep_size = 4GB"}})
	ledger := startLedger(ctx, t, r.primary)
	nodes := []*nodeproc.Node{r.a, r.b}
	for round := range rounds(30, 1000) {
		ledger.more(ctx, t, 5+choice.IntN(100))
		what := choice.IntN(4)
		t.Logf("round %d: %s, %d commits", round, [...]string{"node A", "node B", "primary", "standby"}[what], ledger.count())
		switch what {
		case 0, 1:
			nodes[what].Kill()
			must(t, nodes[what].StartReady(ctx))
		case 2:
			must(t, r.primary.Kill9())
			must(t, r.primary.Start(ctx))
		case 3:
			must(t, r.standby.Kill9())
			must(t, r.standby.Start(ctx))
		}
	}
	ledger.stop(t)
	r.same()
	ledger.check(ctx, t, r.standby)
}

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
	must(t, primary.Exec(ctx, "CREATE TABLE ledger (n int PRIMARY KEY)"))
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
		if err != nil {
			_ = l.primary.WaitReady(ctx) // only its own end stops it
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
	rows, err := c.Query(ctx, "SELECT string_agg(n::text, ' ' ORDER BY n) FROM ledger")
	must(t, err)
	have := make(map[int]bool)
	for _, text := range strings.Fields(rows[0][0]) {
		n, err := strconv.Atoi(text)
		must(t, err)
		have[n] = true
	}
	for _, n := range l.acked {
		if !have[n] {
			t.Errorf("acknowledged commit %d is missing", n)
		}
	}
}
