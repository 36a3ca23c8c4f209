package walsender_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/protocol/walsender"
)

// frames stands for the node-to-node side of a stream: it sends a message for each that comes in.
type frames struct {
	start protocol.LSN
	in    chan string // from Incoming to Next; room for a few
	end   chan struct{}
}

func (f *frames) Next(ctx context.Context, dst []byte) ([]byte, protocol.LSN, error) {
	select {
	case text := <-f.in:
		f.start += 100
		return append(append(dst, link.MessageFrames), text...), f.start, nil
	case <-f.end:
		return nil, 0, &protocol.TimelineEndError{Timeline: 1, Next: 2, At: f.start}
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
}

func (f *frames) Incoming(msg []byte) (bool, error) {
	switch msg[0] {
	case link.MessageHello:
		f.in <- string(msg)
		return true, nil
	case link.MessageAck:
		return true, protocol.Errorf(protocol.CodeProtocolViolation, "bad acknowledgement")
	}
	return false, nil
}

func (f *frames) Close() error { return nil }

// TestLink talks to a node by pgconn and pglogrepl, as a downstream node does.
func TestLink(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	n := newNode("15.18", begin, wal(begin, 1000))
	end := make(chan struct{})
	n.link = func(_ protocol.Timeline, start protocol.LSN) walsender.Outgoing {
		return &frames{start: start, in: make(chan string, 4), end: end}
	}
	h := serveTCP(t, n, walsender.Options{Link: true})
	connect := func() *pgconn.PgConn {
		config, err := pgconn.ParseConfig(h.conninfo() + " replication=true")
		if err != nil {
			t.Fatal(err)
		}
		config.RuntimeParams[link.StartupParameter] = "1"
		conn, err := pgconn.ConnectConfig(ctx, config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close(context.Background()) })
		if got := conn.ParameterStatus(link.LinkParameter); got != link.LinkVersion {
			t.Fatalf("%s is %q", link.LinkParameter, got)
		}
		return conn
	}
	start := func(conn *pgconn.PgConn) {
		id, err := pglogrepl.IdentifySystem(ctx, conn)
		if err != nil || id.Timeline != 1 || id.XLogPos != pglogrepl.LSN(begin+1000) || id.SystemID != n.identity.SystemID.String() || id.DBName != "" {
			t.Fatalf("%+v, %v", id, err)
		}
		conn.Frontend().SendQuery(&pgproto3.Query{String: "START_REPLICATION " + begin.String() + " TIMELINE 1"})
		if err := conn.Frontend().Flush(); err != nil {
			t.Fatal(err)
		}
		if m, err := conn.ReceiveMessage(ctx); err != nil {
			t.Fatal(err)
		} else if _, ok := m.(*pgproto3.CopyBothResponse); !ok {
			t.Fatalf("%#v", m)
		}
	}
	send := func(conn *pgconn.PgConn, body string) {
		conn.Frontend().Send(&pgproto3.CopyData{Data: []byte(body)})
		if err := conn.Frontend().Flush(); err != nil {
			t.Fatal(err)
		}
	}
	receive := func(conn *pgconn.PgConn) string {
		m, err := conn.ReceiveMessage(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return string(copyBody(t, m))
	}

	conn := connect()
	start(conn)
	send(conn, "Lhello")
	if got := receive(conn); got != "FLhello" {
		t.Errorf("got %q", got)
	}
	send(conn, string(status(begin, begin, true)))
	if k, err := protocol.ParseKeepalive([]byte(receive(conn))); err != nil || k.WALEnd != begin+100 {
		t.Errorf("keepalive %+v, %v", k, err)
	}
	close(end)
	result, err := pglogrepl.SendStandbyCopyDone(ctx, conn)
	if err != nil || result.Timeline != 2 || result.LSN != pglogrepl.LSN(begin+100) {
		t.Errorf("%+v, %v", result, err)
	}

	conn = connect()
	end = make(chan struct{})
	start(conn)
	send(conn, "Abad")
	m, err := conn.ReceiveMessage(ctx)
	if e, ok := m.(*pgproto3.ErrorResponse); err != nil || !ok || e.Code != protocol.CodeProtocolViolation {
		t.Errorf("bad acknowledgement: %#v, %v", m, err)
	}
	if !n.consumers[0].info.Link {
		t.Error("the consumer is not known as a node")
	}
}
