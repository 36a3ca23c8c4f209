package integration

import (
	"context"
	"strings"
	"testing"

	"walproxy/integration/nodeproc"
	"walproxy/integration/pgcluster"
)

// smallSpool is full after a few windows of WAL that does not compress.
const smallSpool = "recompress:\n  codec: none\nspool:\n  cap: 40MiB\n  keep: 0\n  when_full: "

// fullNode is a node whose spool is full because a slot that nobody reads from holds WAL back.
func fullNode(ctx context.Context, t *testing.T, policy string) (*pgcluster.Cluster, *nodeproc.Node) {
	t.Helper()
	primary := startPrimary(ctx, t, pgcluster.Options{Major: 15, Conf: fastRetry})
	node := startNode(ctx, t, nodeproc.Options{Config: fastNode(primary.Conninfo(), smallSpool+policy+"\n")})
	create := receive(t, node.Conninfo(), "--slot=laggard", "--create-slot")
	must(t, create.Wait(ctx))
	laggard := receive(t, node.Conninfo(), "--slot=laggard", "--synchronous")
	r := &relay{ctx: ctx, t: t, primary: primary}
	r.waitReceived(laggard, write(ctx, t, primary, 100)) // now the slot has a position
	must(t, laggard.Stop(ctx))
	for range 40 {
		write(ctx, t, primary, 20000) // some 1.5 MiB each
	}
	return primary, node
}

// TestFullSpoolBlocks lets the spool fill up behind a slot. The node stops reading, says so, keeps within its cap, answers
// the primary meanwhile, and goes on as soon as the slot is gone.
func TestFullSpoolBlocks(t *testing.T) {
	t.Parallel()
	ctx := setting(t, patience)
	primary, node := fullNode(ctx, t, "block")
	must(t, pgcluster.Until(ctx, func() (bool, error) {
		return strings.Contains(node.Log(), "the spool is full"), nil
	}))
	m, err := node.Metrics()
	must(t, err)
	if bytes := m["walproxy_spool_bytes"]; bytes == 0 || bytes > 40<<20 {
		t.Fatalf("the spool holds %v bytes, the cap is %d", bytes, 40<<20)
	}
	if m["walproxy_spool_alarm"] != 1 || m["walproxy_spool_blocked"] != 1 || m["walproxy_spool_fill_ratio"] < 0.8 {
		t.Errorf("alarm %v, blocked %v, fill %v", m["walproxy_spool_alarm"], m["walproxy_spool_blocked"], m["walproxy_spool_fill_ratio"])
	}
	log := node.Log()
	if near, full := strings.Index(log, "the spool is nearly full"), strings.Index(log, "the spool is full"); near < 0 || near > full {
		t.Errorf("the alarm does not come before the end:\n%s", log)
	}
	if n := strings.Count(log, "the spool is full"); n != 1 || !strings.Contains(log, `"held_by":"slot laggard: `) {
		t.Errorf("the log says %d times that the spool is full, and by whom", n)
	}
	if out, err := tool(t, node, "status"); err != nil || !strings.Contains(out, "FULL") || !strings.Contains(out, "held back most by slot laggard") {
		t.Errorf("%v, %s", err, out)
	}
	connected, err := primary.Value(ctx, "SELECT count(*) FROM pg_stat_replication")
	must(t, err)
	if connected != "1" {
		t.Fatalf("%s connections to the primary while the spool is full, want 1", connected)
	}
	drop := receive(t, node.Conninfo(), "--slot=laggard", "--drop-slot")
	must(t, drop.Wait(ctx))
	follows(ctx, t, primary, node)
	must(t, pgcluster.Until(ctx, func() (bool, error) {
		m, err := node.Metrics()
		return m["walproxy_spool_alarm"] == 0 && m["walproxy_spool_blocked"] == 0, err
	}))
	for _, want := range []string{"there is room in the spool again", "the spool is no longer nearly full"} {
		if err := pgcluster.Until(ctx, func() (bool, error) { return strings.Contains(node.Log(), want), nil }); err != nil {
			t.Errorf("nothing in the log of %q", want)
		}
	}
}

// TestFullSpoolSheds lets the spool fill up behind a slot that may be given up. The node invalidates it and goes on.
func TestFullSpoolSheds(t *testing.T) {
	t.Parallel()
	ctx := setting(t, patience)
	primary, node := fullNode(ctx, t, "shed")
	follows(ctx, t, primary, node)
	if !strings.Contains(node.Log(), "a slot is invalidated") {
		t.Error("nothing in the log about the slot that was given up")
	}
	m, err := node.Metrics()
	must(t, err)
	if bytes := m["walproxy_spool_bytes"]; bytes == 0 || bytes > 40<<20 {
		t.Fatalf("the spool holds %v bytes, the cap is %d", bytes, 40<<20)
	}
}

// follows checks that new WAL comes through the node.
func follows(ctx context.Context, t *testing.T, primary *pgcluster.Cluster, node *nodeproc.Node) {
	t.Helper()
	lsn := write(ctx, t, primary, 100)
	must(t, pgcluster.Until(ctx, func() (bool, error) { // nothing holds WAL for a receiver without a slot that begins before
		return node.Process().Running() && received(node) >= float64(lsn-1<<24), nil
	}))
	receiver := receive(t, node.Conninfo()) // from the segment of the node's position on
	r := &relay{ctx: ctx, t: t, primary: primary}
	lsn = write(ctx, t, primary, 100)
	r.waitReceived(receiver, lsn)
}
