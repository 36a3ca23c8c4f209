package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"walproxy/integration/nodeproc"
	"walproxy/integration/pgcluster"
	"walproxy/protocol"
)

// TestHeldSlotAsOnTheServer does the same with a slot on a server and one on a node while a session streams by it: who else wants
// it is refused with the holder's pid, DROP WAIT waits for the holder's end, and restart_lsn follows reports also backwards.
func TestHeldSlotAsOnTheServer(t *testing.T) {
	t.Parallel()
	for _, major := range where(15, 18) {
		if major < 15 {
			continue // it does not say where a slot is
		}
		t.Run(fmt.Sprintf("26_28_55_held_slot_of_%d", major), func(t *testing.T) {
			t.Parallel()
			ctx := setting(t, patience)
			primary := startPrimary(ctx, t, pgcluster.Options{Major: major, Conf: fastRetry})
			node := startNode(ctx, t, nodeproc.Options{Config: fastNode(primary.Conninfo(), "")})
			low := write(ctx, t, primary, 1)
			high := write(ctx, t, primary, 1000)
			must(t, pgcluster.Until(ctx, func() (bool, error) {
				return parseLSN(t, jsonOf[statusJSON](t, node, "status").Position.Flushed) >= high, nil
			}))
			var seen [2][]string
			for i, conninfo := range []string{primary.Conninfo(), node.Conninfo()} {
				seen[i] = heldSlot(ctx, t, conninfo, low, high)
			}
			for i, want := range seen[0] {
				t.Log(want)
				if got := seen[1][i]; got != want {
					t.Errorf("got %s, on the server %s", got, want)
				}
			}
		})
	}
}

// heldSlot does everything once and returns what was seen.
func heldSlot(ctx context.Context, t *testing.T, conninfo string, low, high protocol.LSN) (seen []string) {
	t.Helper()
	holder, other := replicate(ctx, t, conninfo), replicate(ctx, t, conninfo)
	note := func(format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		seen = append(seen, strings.ReplaceAll(text, fmt.Sprintf("PID %d", holder.PID()), "PID of the holder"))
	}
	step := func(conn *pgconn.PgConn, sql string) { note("%s: %s", sql, onSlot(ctx, conn, sql, high)) }
	step(holder, "CREATE_REPLICATION_SLOT temp TEMPORARY PHYSICAL RESERVE_WAL")
	step(other, "START_REPLICATION SLOT temp PHYSICAL 0/0")
	step(other, "CREATE_REPLICATION_SLOT s PHYSICAL")
	streamBySlot(ctx, t, holder, high)
	// A node asks the holder for a sign of life.
	refused := reportUntil(ctx, t, holder, high, func() string { return onSlot(ctx, other, "START_REPLICATION SLOT s PHYSICAL 0/0", high) })
	note("START_REPLICATION SLOT s: %s", refused)
	step(other, "DROP_REPLICATION_SLOT s")
	for _, flush := range []protocol.LSN{high, low, 0, low + 8, low} { // 0 is: not known
		reportFlush(ctx, t, holder, flush)
		step(other, "READ_REPLICATION_SLOT s")
	}
	dropped := make(chan string, 1)
	go func() { dropped <- onSlot(ctx, other, "DROP_REPLICATION_SLOT s WAIT", high) }()
	reportFlush(ctx, t, holder, high) // the holder goes on meanwhile
	select {
	case what := <-dropped:
		t.Errorf("a slot in use was dropped: %s", what)
	default:
	}
	must(t, holder.Close(ctx))
	note("DROP_REPLICATION_SLOT s WAIT: %s", <-dropped)
	must(t, pgcluster.Until(ctx, func() (bool, error) { // the holder's end may take a moment
		results, err := other.Exec(ctx, "READ_REPLICATION_SLOT temp").ReadAll()
		return err == nil && results[0].Rows[0][0] == nil, err
	}))
	step(other, "READ_REPLICATION_SLOT s")
	return seen
}

// streamBySlot starts a stream by slot s that has everything up to end, where it begins.
func streamBySlot(ctx context.Context, t *testing.T, conn *pgconn.PgConn, end protocol.LSN) {
	t.Helper()
	conn.Frontend().SendQuery(&pgproto3.Query{String: "START_REPLICATION SLOT s PHYSICAL " + end.String()})
	must(t, conn.Frontend().Flush())
	for {
		message, err := conn.ReceiveMessage(ctx)
		must(t, err)
		if _, started := message.(*pgproto3.CopyBothResponse); started {
			return
		}
		if refused, ok := message.(*pgproto3.ErrorResponse); ok {
			t.Fatal(refused.Message)
		}
	}
}

// reportUntil reports again and again while f runs.
func reportUntil(ctx context.Context, t *testing.T, conn *pgconn.PgConn, flush protocol.LSN, f func() string) string {
	t.Helper()
	result := make(chan string, 1)
	go func() { result <- f() }()
	for {
		select {
		case what := <-result:
			return what
		default:
			reportFlush(ctx, t, conn, flush)
		}
	}
}

// reportFlush reports a position and returns when the other side has answered, how soon.
func reportFlush(ctx context.Context, t *testing.T, conn *pgconn.PgConn, flush protocol.LSN) time.Duration {
	t.Helper()
	status := protocol.Status{Write: flush, Flush: flush, SendTime: time.Now(), ReplyRequested: true}
	conn.Frontend().Send(&pgproto3.CopyData{Data: status.Append(nil)})
	began := time.Now()
	must(t, conn.Frontend().Flush())
	for {
		message, err := conn.ReceiveMessage(ctx)
		must(t, err)
		if data, ok := message.(*pgproto3.CopyData); ok && data.Data[0] == protocol.MessageKeepalive {
			if asks := data.Data[len(data.Data)-1] == 1; !asks {
				return time.Since(began)
			}
		}
	}
}

// TestUpstreamDown kills the primary. Its node keeps its consumers, answers them at once, also in the middle of catching up, and
// gives them all that it has.
func TestUpstreamDown(t *testing.T) {
	t.Parallel()
	t.Run("44_upstream_down", upstreamDown)
}

func upstreamDown(t *testing.T) {
	t.Parallel()
	ctx := setting(t, patience)
	primary := startPrimary(ctx, t, pgcluster.Options{Major: 15, Conf: append(fastRetry, "wal_receiver_timeout = 2s")})
	standby := cloneOf(ctx, t, primary)
	node := startNode(ctx, t, nodeproc.Options{Config: fastNode(primary.Conninfo(), "")})
	must(t, standby.MakeStandby(node.Conninfo(), ""))
	must(t, standby.Start(ctx))
	from := write(ctx, t, primary, 1).Floor(primary.Options.SegmentBytes())
	end := write(ctx, t, primary, 100000)
	must(t, pgcluster.Until(ctx, func() (bool, error) {
		return parseLSN(t, jsonOf[statusJSON](t, node, "status").Position.Written) >= end, nil
	}))
	receiver := func() string {
		pid, err := standby.Value(ctx, "SELECT coalesce(max(pid), 0) FROM pg_stat_wal_receiver WHERE status = 'streaming'")
		must(t, err)
		return pid
	}
	must(t, pgcluster.Until(ctx, func() (bool, error) { return receiver() != "0", nil }))
	before := receiver()
	must(t, primary.Kill9())

	must(t, standby.WaitReplayed(ctx, end))
	theirs, err := pgcluster.ReadWAL(primary.WAL(), 1, from, end)
	must(t, err)
	if got := startAt(ctx, t, node.Conninfo(), from, end); string(got) != string(theirs) {
		t.Error("a consumer that came late got other WAL")
	}
	late := replicate(ctx, t, node.Conninfo())
	late.Frontend().SendQuery(&pgproto3.Query{String: "START_REPLICATION " + from.String() + " TIMELINE 1"})
	for range 5 { // the WAL in between is read and dropped
		if took := reportFlush(ctx, t, late, from); took > time.Second {
			t.Errorf("an answer took %s while WAL was sent", took)
		}
	}
	answeredWithinASecond(ctx, t, node)
	began := time.Now()
	must(t, pgcluster.Until(ctx, func() (bool, error) {
		if now := receiver(); now != before {
			return false, fmt.Errorf("the standby's connection was lost: walreceiver %s, before %s", now, before)
		}
		return time.Since(began) > 3*time.Second, nil
	}))
	must(t, primary.Start(ctx))
	must(t, standby.WaitReplayed(ctx, write(ctx, t, primary, 100)))
	sameRows(ctx, t, primary, standby)
}

// TestGiantSegments: with segments of 1 GiB, larger than the largest window by far, WAL is kept for a slot from its segment's
// start, and a standby's request for that place is served.
func TestGiantSegments(t *testing.T) {
	t.Parallel()
	ctx := setting(t, patience)
	primary := startPrimary(ctx, t, pgcluster.Options{Major: 15, SegmentMiB: 1024, Conf: append(fastRetry, "checkpoint_timeout = 1h")})
	node := startNode(ctx, t, nodeproc.Options{Config: fastNode(primary.Conninfo(), "recompress:\n  codec: zstd\nspool:\n  keep: 0\n")})
	if out, err := tool(t, node, "slots", "create", "s"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const start = protocol.LSN(1 << 30)
	for range 3 {
		write(ctx, t, primary, 50000)
	}
	end := write(ctx, t, primary, 1)
	conn := replicate(ctx, t, node.Conninfo())
	streamBySlot(ctx, t, conn, start)
	reportFlush(ctx, t, conn, end)
	var slot slotJSON
	must(t, pgcluster.Until(ctx, func() (bool, error) { // also in the file, after which WAL could go
		slot = jsonOf[[]slotJSON](t, node, "slots", "list")[0]
		return strings.HasPrefix(slot.Reason, "restart_lsn is "+end.String()+"; kept from "+start.String()), nil
	}))
	if s := jsonOf[statusJSON](t, node, "status"); slot.RetainedFrom != start.String() || parseLSN(t, s.Position.Oldest) > start {
		t.Errorf("slot %+v, oldest WAL %s", slot, s.Position.Oldest)
	}
	theirs, err := pgcluster.ReadWAL(primary.WAL(), 1, start, end)
	must(t, err)
	if got := startAt(ctx, t, node.Conninfo(), start, end); string(got) != string(theirs) {
		t.Error("other WAL from the segment's start")
	}
}
