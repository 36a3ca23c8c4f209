package integration

import (
	"context"
	"fmt"
	"testing"

	"walproxy/integration/nodeproc"
	"walproxy/integration/pgcluster"
	"walproxy/protocol"
)

// reporting is the configuration of a node that tells its upstream what its consumers have flushed.
const reporting = "acknowledge:\n  write: min\n  flush: min\n"

// TestSynchronousStandbyBehindTwoNodes makes the primary wait for the standby behind two nodes: whenever a commit returns, the
// standby has flushed its WAL.
func TestSynchronousStandbyBehindTwoNodes(t *testing.T) {
	t.Parallel()
	ctx := setting(t, patience)
	primary, standby := synchronous(ctx, t, reporting)
	for n := range 200 {
		must(t, primary.Exec(ctx, fmt.Sprintf("INSERT INTO t (text) VALUES ('%d')", n)))
		rows, err := standby.Query(ctx, "SELECT pg_last_wal_receive_lsn(), (SELECT last_value FROM t_id_seq)")
		must(t, err)
		flushed, err := protocol.ParseLSN(rows[0][0])
		must(t, err)
		committed, err := primary.Value(ctx, "SELECT pg_current_wal_insert_lsn()")
		must(t, err)
		lsn, err := protocol.ParseLSN(committed)
		must(t, err)
		// Nobody else writes, so all that lies between is what the server adds by itself, which fits into a page.
		if flushed+8192 < lsn {
			t.Fatalf("commit %d returned although the standby has flushed only up to %s of %s", n, flushed, lsn)
		}
	}
	sameRows(ctx, t, primary, standby)
}

// TestNodeAsSynchronousStandby lets the node answer for its own spool: commits return without any consumer, and what was
// committed is in the node's spool even if the node is killed at that moment.
func TestNodeAsSynchronousStandby(t *testing.T) {
	t.Parallel()
	ctx := setting(t, patience)
	primary := startPrimary(ctx, t, pgcluster.Options{Major: 15, Conf: fastRetry})
	node := startNode(ctx, t, nodeproc.Options{Config: fastNode(primary.Conninfo()+" application_name=sync", "")})
	mustBeSynchronous(ctx, t, primary)
	from := write(ctx, t, primary, 1).Floor(primary.Options.SegmentBytes())
	lsn := write(ctx, t, primary, 100)
	node.Kill()
	must(t, primary.Stop(ctx, pgcluster.Immediate)) // the node can fetch nothing any more
	must(t, node.StartReady(ctx))
	receiver := receive(t, node.Conninfo())
	must(t, pgcluster.AwaitWAL(ctx, primary.WAL(), pgcluster.Source{Dir: receiver.Dir, SegmentBytes: primary.Options.SegmentBytes()}, 1, from, lsn))
}

// synchronous starts primary → A ═ B → standby with the standby as the synchronous one.
func synchronous(ctx context.Context, t *testing.T, settings string) (primary, standby *pgcluster.Cluster) {
	t.Helper()
	primary = startPrimary(ctx, t, pgcluster.Options{Major: 15, Conf: fastRetry})
	standby = cloneOf(ctx, t, primary)
	a := startNode(ctx, t, nodeproc.Options{Config: fastNode(primary.Conninfo()+" application_name=sync", settings)})
	b := startNode(ctx, t, nodeproc.Options{Config: fastNode(a.Conninfo(), settings)})
	must(t, standby.MakeStandby(b.Conninfo(), ""))
	must(t, standby.Start(ctx))
	mustBeSynchronous(ctx, t, primary)
	return primary, standby
}

func mustBeSynchronous(ctx context.Context, t *testing.T, primary *pgcluster.Cluster) {
	t.Helper()
	must(t, primary.Configure("synchronous_standby_names = 'sync'"))
	must(t, primary.Reload())
	must(t, pgcluster.Until(ctx, func() (bool, error) {
		state, err := primary.Value(ctx, "SELECT coalesce(max(sync_state), '') FROM pg_stat_replication")
		return state == "sync", err
	}))
}
