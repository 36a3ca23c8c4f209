package integration

import (
	"context"
	"testing"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"walproxy/protocol"
)

// replicate opens a physical replication session.
func replicate(ctx context.Context, t *testing.T, conninfo string) *pgconn.PgConn {
	t.Helper()
	conn, err := pgconn.Connect(ctx, conninfo+" replication=true sslmode=disable")
	must(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(ctx)) })
	return conn
}

// startAt streams from start on and returns the WAL up to end.
func startAt(ctx context.Context, t *testing.T, conninfo string, start, end protocol.LSN) []byte {
	t.Helper()
	conn := replicate(ctx, t, conninfo)
	conn.Frontend().SendQuery(&pgproto3.Query{String: "START_REPLICATION " + start.String() + " TIMELINE 1"})
	must(t, conn.Frontend().Flush())
	var wal []byte
	for protocol.LSN(len(wal)) < end-start {
		message, err := conn.ReceiveMessage(ctx)
		must(t, err)
		switch m := message.(type) {
		case *pgproto3.ErrorResponse:
			t.Fatalf("stream from %s: %s %s", start, m.Code, m.Message)
		case *pgproto3.CopyData:
			if m.Data[0] != pglogrepl.XLogDataByteID {
				continue
			}
			data, err := protocol.ParseXLogData(m.Data)
			must(t, err)
			if data.Start != start+protocol.LSN(len(wal)) {
				t.Fatalf("WAL at %s, want %s", data.Start, start+protocol.LSN(len(wal)))
			}
			wal = append(wal, data.Data...)
		}
	}
	return wal[:end-start]
}
