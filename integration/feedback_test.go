package integration

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"walproxy/integration/pgcluster"
)

// TestHotStandbyFeedback runs a long query on a standby behind two nodes. VACUUM on the primary leaves the rows that the query
// sees, as long as the standby asks for it, and no longer. Transaction ids wrap around meanwhile, from epoch 6 to epoch 7: a
// primary takes no feedback of another epoch than it has.
func TestHotStandbyFeedback(t *testing.T) {
	t.Parallel()
	t.Run("59_over_a_wraparound", feedbackOverWraparound)
}

func feedbackOverWraparound(t *testing.T) {
	t.Parallel()
	ctx := setting(t, patience)
	primary := startPrimary(ctx, t, pgcluster.Options{Major: 15, Conf: fastRetry})
	nearWraparound(ctx, t, primary, 6)
	r := relayBehind(ctx, t, primary, "")
	must(t, r.standby.Configure("hot_standby_feedback = on", "max_standby_streaming_delay = 0"))
	must(t, r.standby.Restart(ctx, pgcluster.Fast))
	write(ctx, t, r.primary, 10000)
	must(t, r.primary.Exec(ctx, "DELETE FROM t WHERE id % 2 = 0"))
	r.caughtUp(write(ctx, t, r.primary, 1))

	query, err := r.standby.Connect(ctx)
	must(t, err)
	defer query.Close(context.WithoutCancel(ctx))
	_, err = query.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ").ReadAll()
	must(t, err)
	before := countRows(ctx, t, query)
	xminOf := func() string {
		xmin, err := r.primary.Value(ctx, "SELECT coalesce(max(backend_xmin::text), '') FROM pg_stat_replication")
		must(t, err)
		return xmin
	}
	must(t, pgcluster.Until(ctx, func() (bool, error) { return xminOf() != "", nil }))

	must(t, r.primary.Exec(ctx, "DELETE FROM t"))
	wrapAround(ctx, t, r.primary, 7)
	must(t, r.primary.Exec(ctx, "VACUUM t"))
	if size := tableSize(ctx, t, r.primary); size == "0" {
		t.Fatal("VACUUM removed what a query on the standby sees")
	}
	r.caughtUp(write(ctx, t, r.primary, 1))
	if after := countRows(ctx, t, query); after != before || before == "0" { // an error here would be: canceled due to conflict with recovery
		t.Fatalf("the query sees %s rows, and saw %s", after, before)
	}
	_, err = query.Exec(ctx, "COMMIT").ReadAll()
	must(t, err)

	// Without the query the rows may go; without the standby nothing is held at all. Whether VACUUM then gives the space back is
	// the server's affair, so what is looked at is what the primary was told.
	must(t, r.primary.Exec(ctx, "DELETE FROM t"))
	last, err := r.primary.Value(ctx, "SELECT txid_current() & 4294967295")
	must(t, err)
	r.caughtUp(write(ctx, t, r.primary, 1))
	must(t, pgcluster.Until(ctx, func() (bool, error) {
		moved, err := r.primary.Value(ctx, "SELECT count(*) FROM pg_stat_replication WHERE age(backend_xmin) < age('"+last+"'::xid)")
		return moved == "1", err
	}))
	if xminOf() == "" {
		t.Error("the standby asks for nothing although its feedback is on")
	}
	must(t, r.standby.Stop(ctx, pgcluster.Fast))
	must(t, pgcluster.Until(ctx, func() (bool, error) { return xminOf() == "", nil }))
	must(t, r.standby.Start(ctx))
	must(t, pgcluster.Until(ctx, func() (bool, error) { return xminOf() != "", nil }))
	r.same()
}

// xidsLeft is how many transaction ids are left of an epoch behind nearWraparound.
const xidsLeft = 3000

// nearWraparound makes a server, which it restarts, go on close to the end of an epoch.
func nearWraparound(ctx context.Context, t *testing.T, c *pgcluster.Cluster, epoch int) {
	t.Helper()
	must(t, c.Exec(ctx, "VACUUM (FREEZE)")) // older ids would be in the future
	must(t, c.Stop(ctx, pgcluster.Fast))
	reset, err := c.Install.Tool("pg_resetwal")
	must(t, err)
	status := filepath.Join(c.DataDir, "pg_xact", "0FFF") // where the outcome of the last million transactions of an epoch is
	_, err = pgcluster.RunAs(ctx, "dd", "if=/dev/zero", "of="+status, "bs=256k", "count=1")
	must(t, err)
	const next = 1<<32 - xidsLeft
	_, err = pgcluster.RunAs(ctx, reset, "-D", c.DataDir, "-e", fmt.Sprint(epoch), "-x", fmt.Sprint(next), "-u", fmt.Sprint(next-1000))
	must(t, err)
	must(t, c.Start(ctx))
	must(t, c.Exec(ctx, "TRUNCATE t")) // it was made in what is the future now, for VACUUM
}

// wrapAround uses up transaction ids until the epoch is another one.
func wrapAround(ctx context.Context, t *testing.T, c *pgcluster.Cluster, want int) {
	t.Helper()
	must(t, c.Exec(ctx, fmt.Sprintf(`CREATE TABLE xids (n int);
		DO 'BEGIN FOR n IN 1 .. %d LOOP BEGIN INSERT INTO xids VALUES (n); EXCEPTION WHEN division_by_zero THEN END; END LOOP; END'`, xidsLeft)))
	epoch, err := c.Value(ctx, "SELECT txid_current() >> 32")
	must(t, err)
	if epoch != fmt.Sprint(want) {
		t.Fatalf("the epoch is %s, want %d", epoch, want)
	}
}

func countRows(ctx context.Context, t *testing.T, conn *pgconn.PgConn) string {
	t.Helper()
	results, err := conn.Exec(ctx, "SELECT count(*) FROM t").ReadAll()
	must(t, err)
	return string(results[0].Rows[0][0])
}

func tableSize(ctx context.Context, t *testing.T, c *pgcluster.Cluster) string {
	t.Helper()
	size, err := c.Value(ctx, "SELECT pg_relation_size('t')")
	must(t, err)
	return size
}
