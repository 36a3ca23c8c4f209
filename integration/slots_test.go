package integration

import (
	"context"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"walproxy/integration/nodeproc"
	"walproxy/integration/pgcluster"
	"walproxy/protocol"
)

// slotJSON is what the tests look at of a line of `walproxy slots list --json`.
type slotJSON struct {
	Name          string `json:"name"`
	Active        bool   `json:"active"`
	Consumer      string `json:"consumer"`
	RestartLSN    string `json:"restart_lsn"`
	RetainedFrom  string `json:"retained_from"`
	Status        string `json:"wal_status"`
	LagBytes      uint64 `json:"lag_bytes"`
	RetainedBytes uint64 `json:"retained_bytes"`
	Upstream      uint64 `json:"retained_upstream_bytes"`
	Reason        string `json:"reason"`
}

// statusJSON is what they look at of `walproxy status --json`.
type statusJSON struct {
	Position struct {
		Oldest  string `json:"oldest"`
		Written string `json:"written"`
		Flushed string `json:"flushed"`
		Redo    string `json:"redo"`
	} `json:"position"`
	Upstream struct {
		State    string `json:"state"`
		Link     bool   `json:"link"`
		Flush    string `json:"reported_flush"`
		Retained uint64 `json:"retained_bytes"`
		Error    string `json:"last_error"`
	} `json:"upstream"`
	Spool struct {
		Bytes, CapBytes int64
		Alarm           bool `json:"alarm"`
		Blocked         bool `json:"blocked"`
	} `json:"spool"`
	Consumers []struct {
		Name       string  `json:"name"`
		State      string  `json:"state"`
		Link       bool    `json:"link"`
		Flush      string  `json:"flush"`
		LagBytes   uint64  `json:"lag_bytes"`
		LagSeconds float64 `json:"lag_seconds"`
	} `json:"consumers"`
	Slots []slotJSON `json:"slots"`
}

// tool runs the program against a running node and returns what it prints, standard error included.
func tool(t *testing.T, n *nodeproc.Node, args ...string) (string, error) {
	t.Helper()
	args = append(args, "--http", strings.TrimPrefix(n.HTTP, "http://"))
	if args[0] == "slots" {
		args = append(args, "--node", n.Conninfo())
	}
	out, err := exec.Command(binary(t), args...).CombinedOutput()
	return string(out), err
}

func jsonOf[T any](t *testing.T, n *nodeproc.Node, args ...string) T {
	t.Helper()
	out, err := tool(t, n, append(args, "--json")...)
	if err != nil {
		t.Fatalf("walproxy %v: %v\n%s", args, err, out)
	}
	var value T
	if err := json.Unmarshal([]byte(out), &value); err != nil {
		t.Fatalf("walproxy %v: %v\n%s", args, err, out)
	}
	return value
}

func parseLSN(t *testing.T, text string) protocol.LSN {
	t.Helper()
	lsn, err := protocol.ParseLSN(text)
	must(t, err)
	return lsn
}

// TestSlotsCommand creates a slot on a node by the command line, lets a standby use it, and follows what slots and status
// say while it streams, while it is gone, and until the slot is dropped.
func TestSlotsCommand(t *testing.T) {
	t.Parallel()
	ctx := setting(t, patience)
	r := startRelay(ctx, t, pgcluster.Options{Major: 15})
	run := func(want string, args ...string) {
		t.Helper()
		out, err := tool(t, r.b, args...)
		if (err == nil) != (want == "") || !strings.Contains(out, want) {
			t.Fatalf("walproxy %v: %v, %q, want %q", args, err, out, want)
		}
	}
	run("", "slots", "create", "far")
	run("SQLSTATE 42710", "slots", "create", "far")
	must(t, r.standby.FollowPrimary(r.b.Conninfo(), "far"))
	must(t, r.standby.Restart(ctx, pgcluster.Fast))
	lsn := write(ctx, t, r.primary, 5000)
	r.caughtUp(lsn)
	var slot slotJSON
	must(t, pgcluster.Until(ctx, func() (bool, error) {
		slots := jsonOf[[]slotJSON](t, r.b, "slots", "list")
		slot = slots[0]
		return len(slots) == 1 && slot.RestartLSN != "" && parseLSN(t, slot.RestartLSN) >= lsn, nil
	}))
	if !slot.Active || slot.Consumer != "walreceiver" || slot.Status != "reserved" || !strings.Contains(slot.Reason, "kept from") ||
		parseLSN(t, slot.RetainedFrom) != lsn.Floor(4<<20).Floor(16<<20) {
		t.Errorf("slot in use: %+v", slot)
	}
	run("SQLSTATE 55006", "slots", "drop", "far")
	s := jsonOf[statusJSON](t, r.b, "status")
	if s.Upstream.State != "streaming" || !s.Upstream.Link || len(s.Slots) != 1 || len(s.Consumers) == 0 || parseLSN(t, s.Position.Written) < lsn {
		t.Errorf("status of node B: %+v", s)
	}
	if s := jsonOf[statusJSON](t, r.a, "status"); s.Upstream.State != "streaming" || s.Upstream.Link || !s.Consumers[0].Link {
		t.Errorf("status of node A: %+v", s)
	}

	must(t, r.standby.Stop(ctx, pgcluster.Fast))
	end := write(ctx, t, r.primary, 50000)
	must(t, pgcluster.Until(ctx, func() (bool, error) {
		slot = jsonOf[[]slotJSON](t, r.b, "slots", "list")[0]
		return !slot.Active && slot.LagBytes >= uint64(end-lsn-1<<16), nil
	}))
	if slot.RetainedBytes < slot.LagBytes || slot.Consumer != "" {
		t.Errorf("slot while its consumer is gone: %+v", slot)
	}
	must(t, pgcluster.Until(ctx, func() (bool, error) { // the lag ages
		m, err := r.b.Metrics()
		return m["walproxy_slot_lag_seconds"] >= 2 && m["walproxy_slot_active"] == 0 && m["walproxy_slot_retained_bytes"] >= float64(slot.LagBytes), err
	}))
	must(t, r.standby.Start(ctx))
	r.caughtUp(end)
	must(t, r.standby.Configure("primary_slot_name = ''"))
	must(t, r.standby.Restart(ctx, pgcluster.Fast))
	run("", "slots", "drop", "far", "--wait")
	run("SQLSTATE 42704", "slots", "drop", "far")
	if slots := jsonOf[[]slotJSON](t, r.b, "slots", "list"); len(slots) != 0 {
		t.Errorf("slots at the end: %+v", slots)
	}
	if out, err := tool(t, r.b, "status"); err != nil || !strings.Contains(out, "consumers: ") {
		t.Errorf("%v, %s", err, out)
	}
	r.same()
}

// TestHalfOpenStandbyComesBack loses the network between a node and a standby without a word. The standby comes back while the
// node still believes in the old connection, and gets its slot within seconds, not after wal_sender_timeout.
func TestHalfOpenStandbyComesBack(t *testing.T) {
	t.Parallel()
	t.Run("56_comes_back", halfOpenStandby)
}

func halfOpenStandby(t *testing.T) {
	t.Parallel()
	ctx := setting(t, patience)
	primary := startPrimary(ctx, t, pgcluster.Options{Major: 15, Conf: fastRetry})
	standby := cloneOf(ctx, t, primary)
	node := startNode(ctx, t, nodeproc.Options{Config: "upstream:\n  conninfo: '" + primary.Conninfo() + "'\nlisten:\n  wal_sender_timeout: 1h\n"})
	proxy, conninfo := through(t, node.Options.Port)
	if out, err := tool(t, node, "slots", "create", "s"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	must(t, standby.MakeStandby(conninfo, "s"))
	must(t, standby.Start(ctx))
	must(t, standby.WaitReplayed(ctx, write(ctx, t, primary, 100)))
	for range 2 {
		proxy.HalfOpenDown()
		must(t, standby.WaitReplayed(ctx, write(ctx, t, primary, 1000)))
	}
	if n := strings.Count(node.Log(), "a consumer does not answer and is ended"); n != 2 {
		t.Errorf("%d evictions, want 2", n)
	}
	sameRows(ctx, t, primary, standby)
}

// TestReserveWALBeginsAtTheCheckpoint: a slot that reserves WAL begins where the server's own would, as far as the node has
// seen a checkpoint pass.
func TestReserveWALBeginsAtTheCheckpoint(t *testing.T) {
	t.Parallel()
	ctx := setting(t, patience)
	primary := startPrimary(ctx, t, pgcluster.Options{Major: 15, SegmentMiB: 1})
	node := startNode(ctx, t, nodeproc.Options{Config: fastNode(primary.Conninfo(), "")})
	write(ctx, t, primary, 100)
	must(t, primary.Exec(ctx, "CHECKPOINT"))
	redo, err := primary.Value(ctx, "SELECT redo_lsn FROM pg_control_checkpoint()")
	must(t, err)
	must(t, pgcluster.Until(ctx, func() (bool, error) { return jsonOf[statusJSON](t, node, "status").Position.Redo == redo, nil }))
	end := write(ctx, t, primary, 30000) // some segments on
	must(t, pgcluster.Until(ctx, func() (bool, error) {
		return parseLSN(t, jsonOf[statusJSON](t, node, "status").Position.Written) >= end, nil
	}))
	must(t, primary.Exec(ctx, "SELECT pg_create_physical_replication_slot('theirs', true)"))
	want, err := primary.Value(ctx, "SELECT restart_lsn FROM pg_replication_slots")
	must(t, err)
	if out, err := tool(t, node, "slots", "create", "ours"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if slot := jsonOf[[]slotJSON](t, node, "slots", "list")[0]; slot.RestartLSN != want || want != redo {
		t.Errorf("restart_lsn %s, on the primary %s, the checkpoint's redo is %s", slot.RestartLSN, want, redo)
	}
}

// primaryWithSlot is a primary that keeps no more WAL than it has to, and a node with a slot on it.
func primaryWithSlot(ctx context.Context, t *testing.T, segmentMiB int, more string) (*pgcluster.Cluster, *nodeproc.Node) {
	t.Helper()
	primary := startPrimary(ctx, t, pgcluster.Options{Major: 15, SegmentMiB: segmentMiB, Conf: append([]string{
		"wal_keep_size = 0", "wal_recycle = off", "min_wal_size = 32MB", "max_wal_size = 64MB"}, fastRetry...)})
	config := fastNode(primary.Conninfo(), more)
	config = strings.Replace(config, "upstream:\n", "upstream:\n  slot: node\n  create_slot: on\n", 1)
	return primary, startNode(ctx, t, nodeproc.Options{Config: config})
}
