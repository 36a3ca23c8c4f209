package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"walproxy/integration/nodeproc"
	"walproxy/integration/pgcluster"
	"walproxy/integration/wire"
	"walproxy/protocol"
)

// TestInvalidatedSlotAsOnTheServer invalidates a slot on a server and one on a node, each for want of room, and does the same
// with both: what a client sees is the same, in each version its own way.
func TestInvalidatedSlotAsOnTheServer(t *testing.T) {
	t.Parallel()
	for _, major := range where(13, 15, 17, 18) {
		t.Run(fmt.Sprintf("24_57_invalidated_slot_of_%d", major), func(t *testing.T) {
			t.Parallel()
			ctx := setting(t, patience)
			primary := startPrimary(ctx, t, pgcluster.Options{Major: major, SegmentMiB: 1, Conf: append([]string{"wal_keep_size = 0",
				"max_slot_wal_keep_size = 2MB", "min_wal_size = 2MB", "max_wal_size = 1GB", "checkpoint_timeout = 1h"}, fastRetry...)})
			node := startNode(ctx, t, nodeproc.Options{Config: fastNode(primary.Conninfo(),
				"recompress:\n  codec: none\n  reset_distance: 1MiB\nspool:\n  cap: 8MiB\n  keep: 0\n  when_full: shed\n")})
			create := "CREATE_REPLICATION_SLOT s PHYSICAL RESERVE_WAL"
			for _, conninfo := range []string{primary.Conninfo(), node.Conninfo()} {
				_, err := replicate(ctx, t, conninfo).Exec(ctx, create).ReadAll()
				must(t, err)
			}
			d := &door{server: primary, node: node}
			server, through := staysBehind(t, d.dial(t, false, false)), staysBehind(t, d.dial(t, true, false))
			lsn := invalidate(ctx, t, primary, node, server)
			t.Run("57_holder_is_ended", func(t *testing.T) {
				<-server.over
				<-through.over
				if server.err != nil || through.err != nil {
					t.Fatalf("at the server: %v; at the node: %v", server.err, through.err)
				}
				if diff := wire.Diff(server.conn.Log, through.conn.Log); diff != "" || !strings.HasPrefix(server.conn.Log[0], "E FATAL 57P01") {
					t.Errorf("the server said %v: %s", server.conn.Log, diff)
				}
			})
			theirs, ours := replicate(ctx, t, primary.Conninfo()), replicate(ctx, t, node.Conninfo())
			for _, step := range []string{"READ_REPLICATION_SLOT s", "stream", "READ_REPLICATION_SLOT s", "stream", "DROP_REPLICATION_SLOT s", "READ_REPLICATION_SLOT s"} {
				want, got := onSlot(ctx, theirs, step, lsn), onSlot(ctx, ours, step, lsn)
				t.Logf("%s: %s", step, want)
				if got != want {
					t.Errorf("%s: %s, on the server %s", step, got, want)
				}
			}
		})
	}
}

// holder streams by a slot.
type holder struct {
	conn  *wire.Conn
	taken atomic.Uint64 // LSN behind the WAL that has come
	over  chan struct{} // closed at the end; err is set then
	err   error
}

// staysBehind makes a slot, streams by it, takes everything, and reports again and again that it has flushed what was there first.
func staysBehind(t *testing.T, c *wire.Conn) *holder {
	t.Helper()
	c.Values = true
	must(t, as(c, pgcluster.User))
	must(t, c.Command("CREATE_REPLICATION_SLOT held PHYSICAL"))
	must(t, c.Command("IDENTIFY_SYSTEM"))
	at := parseLSN(t, strings.Split(c.Log[len(c.Log)-3], `"`)[5])
	must(t, c.Send(wire.Query("START_REPLICATION SLOT held "+at.String()+" TIMELINE 1")))
	r := &brought{start: at}
	must(t, r.take(c, ofType("W")))
	must(t, report(c, at, true))
	must(t, r.take(c, answered))
	c.Log = nil
	h := &holder{conn: c, over: make(chan struct{})}
	go func() {
		defer close(h.over)
		h.err = r.take(c, func(m wire.Message) bool {
			h.taken.Store(uint64(r.end()))
			if m.Type == 'd' {
				_ = report(c, at, false) // the end may have come, which is read next
			}
			return m.Type == 0
		})
	}()
	return h
}

// takes waits until the holder has all WAL up to lsn, or is over.
func (h *holder) takes(ctx context.Context, lsn protocol.LSN) error {
	return pgcluster.Until(ctx, func() (bool, error) {
		select {
		case <-h.over:
			return true, nil
		default:
			return h.taken.Load() >= uint64(lsn), nil
		}
	})
}

// invalidate writes until the slots on primary and node are invalidated, and returns a position that both have. A server that ends
// a walsender in the middle of a message says nothing, so whoever holds a slot there has everything before each checkpoint.
func invalidate(ctx context.Context, t *testing.T, primary *pgcluster.Cluster, node *nodeproc.Node, server *holder) (lsn protocol.LSN) {
	t.Helper()
	must(t, pgcluster.Until(ctx, func() (bool, error) {
		write(ctx, t, primary, 20000)
		must(t, primary.Exec(ctx, "SELECT pg_switch_wal()"))
		must(t, server.takes(ctx, write(ctx, t, primary, 1)))
		must(t, primary.Exec(ctx, "CHECKPOINT"))
		left, err := primary.Value(ctx, "SELECT count(*) FROM pg_replication_slots WHERE wal_status <> 'lost'")
		slots := jsonOf[[]slotJSON](t, node, "slots", "list")
		return left == "0" && !slices.ContainsFunc(slots, func(s slotJSON) bool { return s.Status != "invalidated" }), err
	}))
	lsn, err := primary.FlushLSN(ctx)
	must(t, err)
	must(t, pgcluster.Until(ctx, func() (bool, error) {
		return parseLSN(t, jsonOf[statusJSON](t, node, "status").Position.Written) >= lsn, nil
	}))
	return lsn
}

// onSlot does one step with slot s in a session and returns what the client sees. To stream is to start at lsn, report it as
// flushed, and end.
func onSlot(ctx context.Context, conn *pgconn.PgConn, step string, lsn protocol.LSN) string {
	if step != "stream" {
		results, err := conn.Exec(ctx, step).ReadAll()
		if err != nil {
			return inWords(err)
		}
		var text strings.Builder
		for _, r := range results {
			for _, row := range r.Rows {
				fmt.Fprintf(&text, "%q ", row)
			}
			text.WriteString(r.CommandTag.String())
		}
		return text.String()
	}
	f := conn.Frontend()
	f.SendQuery(&pgproto3.Query{String: "START_REPLICATION SLOT s PHYSICAL " + lsn.String()})
	if err := f.Flush(); err != nil {
		return err.Error()
	}
	var seen []string
	for {
		message, err := conn.ReceiveMessage(ctx)
		if err != nil {
			return err.Error()
		}
		switch m := message.(type) {
		case *pgproto3.CopyBothResponse:
			status := protocol.Status{Write: lsn, Flush: lsn, Apply: lsn, SendTime: time.Now()}
			f.Send(&pgproto3.CopyData{Data: status.Append(nil)})
			f.Send(&pgproto3.CopyDone{})
			if err := f.Flush(); err != nil {
				return err.Error()
			}
			seen = append(seen, "streams")
		case *pgproto3.ErrorResponse:
			seen = append(seen, inWords(pgconn.ErrorResponseToPgError(m)))
		case *pgproto3.ReadyForQuery:
			return strings.Join(seen, ", ")
		}
	}
}

func inWords(err error) string {
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		return fmt.Sprintf("%s %s: %s (%s) [%s]", refused.Severity, refused.Code, refused.Message, refused.Detail, refused.Hint)
	}
	return err.Error()
}
