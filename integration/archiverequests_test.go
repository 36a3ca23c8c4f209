package integration

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"walproxy/integration/pgcluster"
	"walproxy/integration/s3server"
	"walproxy/protocol"
)

// What docs/archive.md says of the requests that WAL costs, counted before an S3 server: by a node without and with the tail, by
// archive push and get.
func TestArchiveRequests(t *testing.T) {
	t.Parallel()
	ctx := setting(t, patience)
	counter, err := s3server.NewCounter(ctx)
	must(t, err)
	t.Cleanup(func() { must(t, counter.Close()) })
	primary := startPrimary(ctx, t, pgcluster.Options{Major: 15, SegmentMiB: 1, NoFsync: true, Conf: fastRetry})
	s := walStore{url: counter.URL("plain"), env: counter.Env()}
	node := startNodeOn(ctx, t, primary, s, "")
	from := s.settled(ctx, t, write(ctx, t, primary, 8000))
	counter.Take()
	to := write(ctx, t, primary, 40000).Floor(1 << 20)
	must(t, pgcluster.Until(ctx, func() (bool, error) { return archiveSlot(ctx, t, node) >= to, nil }))
	must(t, node.Stop(ctx))
	cells := int((to - from) >> 20)
	expectRequests(t, counter, "a node, without the tail", map[string]int{"PUT": cells, "GET": cells})

	other := walStore{url: counter.URL("pushed"), env: counter.Env()}
	push := func(lsn protocol.LSN) {
		if out, code := other.run(ctx, t, "push", filepath.Join(primary.WALDir(), protocol.SegmentName(1, lsn, 1<<20))); code != 0 {
			t.Fatalf("push: exit %d\n%s", code, out)
		}
	}
	push(from)
	expectRequests(t, counter, "the first push", map[string]int{"PUT": 3, "GET": 2})
	for lsn := from.Next(1 << 20); lsn < to; lsn = lsn.Next(1 << 20) {
		push(lsn)
	}
	expectRequests(t, counter, "pushes", map[string]int{"PUT": cells - 1, "GET": cells - 1})
	other.sameSegments(ctx, t, primary, 1, from, to)
	expectRequests(t, counter, "gets", map[string]int{"GET": 2 * cells})
	withTail(ctx, t, counter, primary)
}

// settled returns where the last complete cell ends that lies before lsn, when all before it is in the archive.
func (s walStore) settled(ctx context.Context, t *testing.T, lsn protocol.LSN) protocol.LSN {
	t.Helper()
	s.await(ctx, t, 1, lsn.Floor(1<<20))
	return lsn.Floor(1 << 20)
}

// withTail holds the requests of a node with the tail against the interval.
func withTail(ctx context.Context, t *testing.T, counter *s3server.Counter, primary *pgcluster.Cluster) {
	const interval = 500 * time.Millisecond
	s := walStore{url: counter.URL("tail"), env: counter.Env()}
	node := startNodeOn(ctx, t, primary, s, "  tail: on\n  tail_interval: "+interval.String()+"\n")
	from := write(ctx, t, primary, 100)
	s.await(ctx, t, 1, from)
	counter.Take()
	began := time.Now()
	var to protocol.LSN
	for range 30 {
		to = write(ctx, t, primary, 500)
	}
	must(t, pgcluster.Until(ctx, func() (bool, error) { return archiveSlot(ctx, t, node) >= to.Floor(1<<20), nil }))
	intervals := int(time.Since(began)/interval) + 2
	cells := int((to.Next(1<<20) - from.Floor(1<<20)) >> 20)
	got := counter.Take()
	if got["PUT"] < cells-1 || got["PUT"] > intervals+2*cells || got["DELETE"] > got["PUT"] || got["GET"] > cells || got["LIST"] > 0 {
		t.Errorf("a node with the tail, %d cells, %d intervals: %v", cells, intervals, got)
	}
}

// expectRequests fails unless these requests were counted.
func expectRequests(t *testing.T, c *s3server.Counter, what string, want map[string]int) {
	t.Helper()
	got := c.Take()
	for _, method := range []string{"PUT", "GET", "LIST", "DELETE", "HEAD"} {
		if got[method] != want[method] {
			t.Errorf("%s: %v, want %v", what, got, want)
			return
		}
	}
}
