package pgcluster_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"walproxy/integration/pgcluster"
)

// atOnce bounds how many servers' tests run side by side, so that small machines keep up.
var atOnce = make(chan struct{}, 2)

// eachMajor runs test for every major version, two at a time.
func eachMajor(t *testing.T, test func(ctx context.Context, t *testing.T, major int)) {
	for _, major := range pgcluster.Majors() {
		t.Run(fmt.Sprint(major), func(t *testing.T) {
			t.Parallel()
			atOnce <- struct{}{}
			defer func() { <-atOnce }()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			test(ctx, t, major)
		})
	}
}

// create returns a new, stopped cluster that is removed when the test ends.
func create(ctx context.Context, t *testing.T, options pgcluster.Options) *pgcluster.Cluster {
	t.Helper()
	c, err := pgcluster.Create(ctx, options)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, c)
	return c
}

func closeAtEnd(t *testing.T, c *pgcluster.Cluster) {
	t.Helper()
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func value(ctx context.Context, t *testing.T, c *pgcluster.Cluster, sql string) string {
	t.Helper()
	text, err := c.Value(ctx, sql)
	must(t, err)
	return text
}

// TestLifecycle: start, stop, kill -9 with recovery, a standby cloned from the stopped primary, streaming, promotion.
func TestLifecycle(t *testing.T) {
	eachMajor(t, func(ctx context.Context, t *testing.T, major int) {
		primary := create(ctx, t, pgcluster.Options{Major: major})
		must(t, primary.Start(ctx))
		if got := value(ctx, t, primary, "SELECT current_setting('server_version_num')::int / 10000"); got != fmt.Sprint(major) {
			t.Fatalf("server of version %s, want %d", got, major)
		}
		must(t, primary.Exec(ctx, "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t SELECT generate_series(1, 1000)"))

		must(t, primary.Kill9())
		if primary.Running() {
			t.Fatal("running after kill -9")
		}
		must(t, primary.Start(ctx))
		if got := value(ctx, t, primary, "SELECT count(*) FROM t"); got != "1000" {
			t.Fatalf("%s rows after recovery, want 1000", got)
		}

		must(t, primary.Stop(ctx, pgcluster.Fast))
		standby, err := primary.Clone(ctx, "")
		must(t, err)
		closeAtEnd(t, standby)
		must(t, primary.Start(ctx))
		must(t, primary.Exec(ctx, "SELECT pg_create_physical_replication_slot('s', true)"))
		must(t, standby.MakeStandby(primary.Conninfo(), "s"))
		must(t, standby.Start(ctx))

		must(t, primary.Exec(ctx, "INSERT INTO t SELECT generate_series(1001, 5000)"))
		lsn, err := primary.FlushLSN(ctx)
		must(t, err)
		must(t, standby.WaitReplayed(ctx, lsn))
		if got := value(ctx, t, standby, "SELECT sum(id) FROM t"); got != "12502500" {
			t.Fatalf("sum on the standby is %s, want 12502500", got)
		}
		compare(t, primary, standby, 1, firstSegment, lsn)

		must(t, primary.Stop(ctx, pgcluster.Immediate))
		must(t, standby.Promote(ctx))
		must(t, standby.Exec(ctx, "INSERT INTO t VALUES (0)"))
		timeline, err := standby.Timeline(ctx)
		must(t, err)
		if timeline != 2 {
			t.Fatalf("timeline %d after promotion, want 2", timeline)
		}
	})
}
