package integration

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"walproxy/integration/nodeproc"
	"walproxy/integration/pgcluster"
)

// TestConformanceIdleSlot: a server of 18 gives up slots that nobody uses. That of a node is in use while the node runs; one that
// was lost meanwhile stops the node, which says so and goes on when the slot was dropped.
func TestConformanceIdleSlot(t *testing.T) {
	t.Parallel()
	t.Run("58_idle_slot", func(t *testing.T) {
		ctx := setting(t, patience)
		primary := startPrimary(ctx, t, pgcluster.Options{Major: 18, NoFsync: true, Conf: append([]string{"idle_replication_slot_timeout = 1s"}, fastRetry...)})
		standby := cloneOf(ctx, t, primary)
		node := startNode(ctx, t, nodeproc.Options{Config: strings.Replace(fastNode(primary.Conninfo(), ""), "upstream:\n", "upstream:\n  slot: node\n  create_slot: on\n", 1)})
		must(t, standby.MakeStandby(node.Conninfo(), ""))
		must(t, standby.Start(ctx))
		must(t, standby.WaitReplayed(ctx, write(ctx, t, primary, 1)))
		must(t, primary.Exec(ctx, "SELECT pg_create_physical_replication_slot('idle', true)"))
		lost := func(slot string) bool {
			must(t, primary.Exec(ctx, "CHECKPOINT"))
			reason, err := primary.Value(ctx, "SELECT coalesce(invalidation_reason, '') FROM pg_replication_slots WHERE slot_name = '"+slot+"'")
			must(t, err)
			return reason == "idle_timeout"
		}
		must(t, pgcluster.Until(ctx, func() (bool, error) { return lost("idle"), nil }))
		if lost("node") {
			t.Error("the slot of a running node was given up")
		}
		must(t, node.Stop(ctx))
		must(t, pgcluster.Until(ctx, func() (bool, error) { return lost("node"), nil }))
		must(t, node.StartReady(ctx))
		end := write(ctx, t, primary, 100)
		must(t, pgcluster.Until(ctx, func() (bool, error) {
			return strings.Contains(jsonOf[statusJSON](t, node, "status").Upstream.Error, `can no longer access replication slot "node"`), nil
		}))
		must(t, primary.Exec(ctx, "SELECT pg_drop_replication_slot('node')"))
		must(t, standby.WaitReplayed(ctx, end))
		sameRows(ctx, t, primary, standby)
	})
}

// TestConformanceSynchronous: a primary that waits for the standbys behind two nodes, for both or for the first one. It knows each by
// its node's name.
func TestConformanceSynchronous(t *testing.T) {
	t.Parallel()
	t.Run("60_first_and_any", func(t *testing.T) {
		ctx := setting(t, patience)
		primary := startPrimary(ctx, t, pgcluster.Options{Major: 15, NoFsync: true, Conf: fastRetry})
		var standbys []*pgcluster.Cluster
		for i, standby := range []*pgcluster.Cluster{cloneOf(ctx, t, primary), cloneOf(ctx, t, primary)} {
			upstream := fmt.Sprintf("%s application_name=n%d", primary.Conninfo(), i+1)
			node := startNode(ctx, t, nodeproc.Options{Config: strings.Replace(fastNode(upstream, reporting), "wal_sender_timeout: 5s", "wal_sender_timeout: 1h", 1)})
			must(t, standby.MakeStandby(node.Conninfo(), ""))
			must(t, standby.Start(ctx))
			standbys = append(standbys, standby)
		}
		for _, c := range []struct{ names, state, waits, frees string }{{"ANY 2 (n1, n2)", "n1 quorum, n2 quorum", "12", ""}, {"FIRST 1 (n1, n2)", "n1 sync, n2 potential", "1", "2"}} {
			must(t, primary.Configure("synchronous_standby_names = '"+c.names+"'"))
			must(t, primary.Reload())
			must(t, pgcluster.Until(ctx, func() (bool, error) {
				state, err := primary.Value(ctx, "SELECT string_agg(application_name || ' ' || sync_state, ', ' ORDER BY application_name) FROM pg_stat_replication WHERE state = 'streaming'")
				return state == c.state, err
			}))
			for i, standby := range standbys {
				must(t, standby.WaitReplayed(ctx, write(ctx, t, primary, 1)))
				must(t, standby.SignalAll(syscall.SIGSTOP))
				committed := make(chan error, 1)
				go func() { committed <- primary.Exec(ctx, "INSERT INTO t (text) VALUES ('held')") }()
				if strings.Contains(c.waits, fmt.Sprint(i+1)) {
					commitWaits(ctx, t, primary, committed, c.names)
				} else {
					must(t, <-committed)
					committed <- nil
				}
				must(t, standby.SignalAll(syscall.SIGCONT))
				must(t, <-committed)
			}
		}
	})
}

// commitWaits checks that a commit waits, and still does when both nodes have reported anew.
func commitWaits(ctx context.Context, t *testing.T, primary *pgcluster.Cluster, committed chan error, names string) {
	t.Helper()
	must(t, pgcluster.Until(ctx, func() (bool, error) {
		waiting, err := primary.Value(ctx, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
		return waiting == "1", err
	}))
	now, err := primary.Value(ctx, "SELECT clock_timestamp()")
	must(t, err)
	must(t, pgcluster.Until(ctx, func() (bool, error) {
		reported, err := primary.Value(ctx, "SELECT count(*) FROM pg_stat_replication WHERE reply_time > '"+now+"'")
		return reported == "2", err
	}))
	select {
	case err := <-committed:
		t.Errorf("%s: a commit returned (%v) although a standby that it waits for is held", names, err)
		committed <- err
	default:
	}
}

// processed is what pgbench says about the transactions that it has done.
var processed = regexp.MustCompile(`transactions actually processed: \d+`)

// TestLoadSoak runs pgbench for a while, in a soak run for an hour on each version. The standby behind two nodes has the same WAL and
// the same rows, and every page of it has the right checksum.
func TestLoadSoak(t *testing.T) {
	t.Parallel()
	majors := pgcluster.Majors()
	if rounds(0, 1) == 0 {
		majors = []int{17} // TestRelay has them all
	}
	duration, seed := lasting(t, 2*time.Second, time.Hour), fmt.Sprint(random(t).Uint32())
	t.Run("35_load", func(t *testing.T) {
		for _, major := range majors {
			t.Run(fmt.Sprint(major), func(t *testing.T) {
				t.Parallel()
				ctx := setting(t, patience+3*duration)
				r := startRelay(ctx, t, pgcluster.Options{Major: major, Checksums: true, Autovacuum: true, Conf: []string{"wal_keep_size = 64GB"}})
				_, err := r.primary.Pgbench(ctx, "-i", "-q", "-s", "1")
				must(t, err)
				said, err := r.primary.Pgbench(ctx, "-n", "-c", "4", "-j", "2", "-T", fmt.Sprint(int(duration.Seconds())), "--random-seed", seed)
				must(t, err)
				end := write(ctx, t, r.primary, 1)
				r.caughtUp(end)
				t.Logf("pgbench for %s: %s, %d bytes of WAL", duration, processed.Find(said), end-r.from)
				for _, table := range []string{"pgbench_accounts", "pgbench_branches", "pgbench_tellers", "pgbench_history"} {
					sql := "SELECT count(*), sum(hashtextextended(t::text, 0)) FROM " + table + " t"
					theirs, err := r.primary.Query(ctx, sql)
					must(t, err)
					ours, err := r.standby.Query(ctx, sql)
					must(t, err)
					if fmt.Sprint(theirs) != fmt.Sprint(ours) {
						t.Errorf("%s: %v, behind two nodes %v", table, theirs, ours)
					}
				}
				must(t, r.standby.Restart(ctx, pgcluster.Fast)) // so that pages are read from disk, which checks them
				must(t, r.standby.Exec(ctx, "SELECT count(*) FROM pgbench_accounts; SELECT count(*) FROM pgbench_history"))
				failed, err := r.standby.Value(ctx, "SELECT sum(coalesce(checksum_failures, 0)) FROM pg_stat_database")
				must(t, err)
				if failed != "0" {
					t.Errorf("%s pages with wrong checksums", failed)
				}
				r.same()
			})
		}
	})
}
