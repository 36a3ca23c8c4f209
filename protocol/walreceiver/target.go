package walreceiver

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// target is libpq's target_session_attrs.
type target uint8

const (
	targetAny target = iota
	targetReadWrite
	targetReadOnly
	targetPrimary
	targetStandby
	targetPreferStandby // first targetStandby, then targetAny: connect does both
)

func (t target) String() string {
	return [...]string{"any", "read-write", "read-only", "primary", "standby", "prefer-standby"}[t]
}

// targetError says that a server is not of the kind asked for.
type targetError struct{ want target }

func (e *targetError) Error() string { return fmt.Sprintf("server is not %s", e.want) }

// check decides from what the server reported at startup (14 and newer do) and asks only if that does not settle it.
//
// Source: PostgreSQL src/interfaces/libpq/fe-connect.c, PQconnectPoll, CONNECTION_CHECK_TARGET (14-18). libpq asks with
// pg_is_in_recovery() where in_hot_standby was not reported, which a physical walsender refuses; transaction_read_only, which
// it does show, tells the same about a 13 server.
func (t target) check(ctx context.Context, conn *pgconn.PgConn) error {
	if t == targetAny || t == targetPreferStandby {
		return nil
	}
	standby, readOnly := conn.ParameterStatus("in_hot_standby"), conn.ParameterStatus("default_transaction_read_only")
	if standby == "" || readOnly == "" {
		shown, err := conn.Exec(ctx, "SHOW transaction_read_only").ReadAll()
		if err != nil {
			return fmt.Errorf("ask for transaction_read_only: %w", err)
		}
		if len(shown) != 1 || len(shown[0].Rows) != 1 || len(shown[0].Rows[0]) != 1 {
			return fmt.Errorf("ask for transaction_read_only: want one value")
		}
		readOnly = string(shown[0].Rows[0][0])
		if standby == "" {
			standby = readOnly
		}
	}
	if !t.accepts(standby == "on", standby == "on" || readOnly == "on") {
		return &targetError{want: t}
	}
	return nil
}

func (t target) accepts(standby, readOnly bool) bool {
	switch t {
	case targetReadWrite:
		return !readOnly
	case targetReadOnly:
		return readOnly
	case targetPrimary:
		return !standby
	case targetStandby:
		return standby
	}
	return true
}
