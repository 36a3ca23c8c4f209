package pgcluster

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5/pgconn"

	"walproxy/protocol"
)

// Conninfo returns a libpq connection string for the superuser over TCP, without a dbname, so that it also serves as
// primary_conninfo or as a walproxy upstream.
func (c *Cluster) Conninfo() string {
	return fmt.Sprintf("host=127.0.0.1 port=%d user=%s", c.Port, User)
}

// SocketConninfo is Conninfo over the unix socket.
func (c *Cluster) SocketConninfo() string {
	return fmt.Sprintf("host=%s port=%d user=%s", c.SocketDir, c.Port, User)
}

// Connect opens an SQL session over the unix socket. The caller closes it.
func (c *Cluster) Connect(ctx context.Context) (*pgconn.PgConn, error) {
	return pgconn.Connect(ctx, c.SocketConninfo()+" dbname="+Database+" sslmode=disable application_name=pgcluster")
}

// Query runs one or several statements in one new session and returns the rows of the last one, every value in its text
// form and NULL as "". Several statements without BEGIN are one transaction.
func (c *Cluster) Query(ctx context.Context, sql string) ([][]string, error) {
	conn, err := c.Connect(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	results, err := conn.Exec(ctx, sql).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("query %q: %w", sql, err)
	}
	if len(results) == 0 {
		return nil, nil
	}
	var rows [][]string
	for _, values := range results[len(results)-1].Rows {
		row := make([]string, len(values))
		for i, value := range values {
			row[i] = string(value)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// Exec is Query for statements whose result does not matter.
func (c *Cluster) Exec(ctx context.Context, sql string) error {
	_, err := c.Query(ctx, sql)
	return err
}

// Value returns the first column of the first row of a query, "" for NULL. No row is an error.
func (c *Cluster) Value(ctx context.Context, sql string) (string, error) {
	rows, err := c.Query(ctx, sql)
	if err != nil {
		return "", err
	}
	if len(rows) == 0 || len(rows[0]) == 0 {
		return "", fmt.Errorf("query %q: no row", sql)
	}
	return rows[0][0], nil
}

// queryLSN returns the single LSN that a query yields, 0 for NULL.
func (c *Cluster) queryLSN(ctx context.Context, sql string) (protocol.LSN, error) {
	text, err := c.Value(ctx, sql)
	if err != nil || text == "" {
		return 0, err
	}
	return protocol.ParseLSN(text)
}

// CurrentLSN returns the end of the WAL that a primary has written, or that a standby has replayed.
func (c *Cluster) CurrentLSN(ctx context.Context) (protocol.LSN, error) {
	return c.queryLSN(ctx, "SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END")
}

// FlushLSN returns the end of the WAL that is durable on the server. For a standby that is what it has received and
// flushed, or replayed from its own disk if that is more.
func (c *Cluster) FlushLSN(ctx context.Context) (protocol.LSN, error) {
	return c.queryLSN(ctx, "SELECT CASE WHEN pg_is_in_recovery()"+
		" THEN greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()) ELSE pg_current_wal_flush_lsn() END")
}

// SwitchWAL makes a primary go over to a new segment and returns the end of what it wrote in the old one.
func (c *Cluster) SwitchWAL(ctx context.Context) (protocol.LSN, error) {
	return c.queryLSN(ctx, "SELECT pg_switch_wal()")
}

// WaitReplayed returns when a standby has replayed everything before lsn. The error holds how far it came.
func (c *Cluster) WaitReplayed(ctx context.Context, lsn protocol.LSN) error {
	var replayed protocol.LSN
	err := Until(ctx, func() (bool, error) {
		if !c.Running() {
			return false, ErrStopped
		}
		var err error
		replayed, err = c.CurrentLSN(ctx)
		return err == nil && replayed >= lsn, nil
	})
	if err != nil {
		return fmt.Errorf("wait for replay of %s, at %s now: %w\n%s", lsn, replayed, err, c.Log())
	}
	return nil
}

// Timeline returns the timeline that a primary writes, or that a standby streams (an error if it does not stream).
func (c *Cluster) Timeline(ctx context.Context) (protocol.Timeline, error) {
	text, err := c.Value(ctx, "SELECT CASE WHEN pg_is_in_recovery()"+
		" THEN (SELECT received_tli::text FROM pg_stat_wal_receiver)"+
		" ELSE ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int::text END")
	if err != nil {
		return 0, err
	}
	return protocol.ParseTimeline(text)
}

// SystemIdentifier returns the number that initdb gave to the cluster.
func (c *Cluster) SystemIdentifier(ctx context.Context) (uint64, error) {
	text, err := c.Value(ctx, "SELECT system_identifier FROM pg_control_system()")
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(text, 10, 64)
}
