package integration

import (
	"context"
	"os"
	"testing"

	"walproxy/integration/pgcluster"
	"walproxy/protocol"
)

// TestRebuildFromTheUpstreamSlot takes away a node's data directory. The upstream's slot has kept what the node needs to begin
// again without a gap behind what it had reported, also where segments are smaller than the reset distance, and a primary
// that removes all WAL it may remove.
func TestRebuildFromTheUpstreamSlot(t *testing.T) {
	t.Parallel()
	for _, mib := range []int{1, 16} {
		t.Run(map[int]string{1: "1MiB", 16: "16MiB"}[mib], func(t *testing.T) {
			t.Parallel()
			rebuild(setting(t, patience), t, mib)
		})
	}
}

func rebuild(ctx context.Context, t *testing.T, mib int) {
	primary, node := primaryWithSlot(ctx, t, mib)
	segment := primary.Options.SegmentBytes()
	var end protocol.LSN
	for range 3 {
		end = write(ctx, t, primary, 40000)
	}
	must(t, pgcluster.Until(ctx, func() (bool, error) { return slotOnPrimary(ctx, t, primary) >= end, nil }))
	must(t, node.Stop(ctx))
	reported := slotOnPrimary(ctx, t, primary)
	later := write(ctx, t, primary, 40000) // while the node is away
	for range 2 {
		must(t, primary.Exec(ctx, "CHECKPOINT")) // which removes WAL
	}
	oldest, err := primary.Value(ctx, "SELECT min(name) FROM pg_ls_waldir() WHERE name ~ '^[0-9A-F]{24}$'")
	must(t, err)
	if want := protocol.SegmentName(1, reported, segment); oldest > want {
		t.Fatalf("the primary has removed WAL of its slot: oldest is %s, the slot is in %s", oldest, want)
	}

	must(t, os.RemoveAll(node.DataDir()))
	must(t, node.StartReady(ctx))
	receiver := receive(t, node.Conninfo())
	final := write(ctx, t, primary, 1000)
	r := &relay{ctx: ctx, t: t, primary: primary}
	r.waitReceived(receiver, final)
	s := jsonOf[statusJSON](t, node, "status")
	begin := parseLSN(t, s.Position.Oldest)
	if begin > reported.Floor(segment) {
		t.Fatalf("the node begins at %s and had reported %s: WAL in between is missing", begin, reported)
	}
	if s.Upstream.Retained == 0 || s.Upstream.Retained > uint64(final-begin)+segment {
		t.Errorf("%d bytes retained upstream", s.Upstream.Retained)
	}
	// A consumer that was as far as the node had reported goes on there.
	late := startAt(ctx, t, node.Conninfo(), reported.Floor(segment), later)
	theirs, err := pgcluster.ReadWAL(primary.WAL(), 1, reported.Floor(segment), later)
	must(t, err)
	if string(late) != string(theirs) {
		t.Fatal("WAL from the rebuilt node differs from the primary's")
	}
}

func slotOnPrimary(ctx context.Context, t *testing.T, c *pgcluster.Cluster) protocol.LSN {
	t.Helper()
	text, err := c.Value(ctx, "SELECT coalesce(restart_lsn, '0/0') FROM pg_replication_slots WHERE slot_name = 'node'")
	must(t, err)
	return parseLSN(t, text)
}
