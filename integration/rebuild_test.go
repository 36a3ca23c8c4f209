package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"walproxy/integration/nodeproc"
	"walproxy/integration/pgcluster"
	"walproxy/protocol"
)

// TestRebuildFromTheUpstreamSlot takes away what a node has on disk. The upstream's slot has kept what the node needs to begin
// again without a gap behind what it had reported, also where segments are smaller than the reset distance, and a primary
// that removes all WAL it may remove.
func TestRebuildFromTheUpstreamSlot(t *testing.T) {
	t.Parallel()
	const advice = "the upstream's slot may not keep all of the newest window"
	t.Run("data directory, 1 MiB", func(t *testing.T) {
		t.Parallel()
		node := rebuild(setting(t, patience), t, 1, "", func(dir string) error { return os.RemoveAll(dir) })
		if !strings.Contains(node.Log(), advice) {
			t.Error("no advice in the log")
		}
	})
	t.Run("data directory, 16 MiB", func(t *testing.T) {
		t.Parallel()
		node := rebuild(setting(t, patience), t, 16, "", func(dir string) error { return os.RemoveAll(dir) })
		if strings.Contains(node.Log(), advice) {
			t.Error("advice in the log where none is needed")
		}
	})
	// The node's slots are still there, and one of them wants WAL that is gone. It says so.
	t.Run("spool, 1 MiB", func(t *testing.T) {
		t.Parallel()
		node := rebuild(setting(t, patience), t, 1, "", func(dir string) error {
			return errors.Join(os.RemoveAll(filepath.Join(dir, "spool")), os.Remove(filepath.Join(dir, "flushed")))
		})
		slot := jsonOf[[]slotJSON](t, node, "slots", "list")[0]
		if slot.Status != "lost" || !strings.Contains(slot.Reason, "is gone") {
			t.Errorf("slot behind the beginning of the spool: %+v", slot)
		}
		m, err := node.Metrics()
		must(t, err)
		if m["walproxy_slot_lost"] != 1 {
			t.Errorf("walproxy_slot_lost is %v", m["walproxy_slot_lost"])
		}
	})
	// With windows no longer than segments the slot keeps the newest window too: losing it costs nothing but its transfer.
	t.Run("newest window, 1 MiB", func(t *testing.T) {
		t.Parallel()
		node := rebuild(setting(t, patience), t, 1, "recompress:\n  reset_distance: 1MiB\n", func(dir string) error {
			windows, err := filepath.Glob(filepath.Join(dir, "spool", "*", "*.win"))
			if err != nil || len(windows) < 5 {
				return fmt.Errorf("%d windows, %w", len(windows), err)
			}
			slices.Sort(windows)
			return errors.Join(os.Remove(windows[len(windows)-1]), os.Remove(filepath.Join(dir, "flushed")))
		})
		if slot := jsonOf[[]slotJSON](t, node, "slots", "list")[0]; slot.Status != "reserved" {
			t.Errorf("slot at the beginning of the spool: %+v", slot)
		}
	})
}

// rebuild fills a node, calls lose, which removes some of its stopped data directory, and compares what the node has afterwards.
func rebuild(ctx context.Context, t *testing.T, mib int, config string, lose func(dir string) error) *nodeproc.Node {
	t.Helper()
	primary, node := primaryWithSlot(ctx, t, mib, config)
	if out, err := tool(t, node, "slots", "create", "laggard"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
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
	if want := protocol.SegmentName(1, reported, segment); oldest != want {
		t.Fatalf("oldest WAL on the primary is %s, its slot is in %s", oldest, want)
	}

	must(t, lose(node.DataDir()))
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
	t.Logf("reported %s, begins at %s", reported, begin)
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
	return node
}

func slotOnPrimary(ctx context.Context, t *testing.T, c *pgcluster.Cluster) protocol.LSN {
	t.Helper()
	text, err := c.Value(ctx, "SELECT coalesce(restart_lsn, '0/0') FROM pg_replication_slots WHERE slot_name = 'node'")
	must(t, err)
	return parseLSN(t, text)
}
