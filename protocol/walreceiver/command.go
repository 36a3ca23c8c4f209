package walreceiver

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"walproxy/protocol"
)

// The messages that a server sends, by their type byte.
//
// Source: PostgreSQL src/include/libpq/protocol.h (17-18); the bytes are those of protocol 3.0.
const (
	msgCommandComplete = 'C'
	msgCopyBoth        = 'W'
	msgCopyData        = 'd'
	msgCopyDone        = 'c'
	msgDataRow         = 'D'
	msgError           = 'E'
	msgNotice          = 'N'
	msgParameter       = 'S'
	msgReady           = 'Z'
	msgRowDescription  = 'T'

	msgQuery     = 'Q'
	msgTerminate = 'X'
)

// result is the answer to one command: rows of text values, nil for NULL, and the error the server ended it with.
type result struct {
	rows [][][]byte
	err  *protocol.Error
}

// exec sends commands at once and returns their results in order. Errors of the server are in the results; exec's own error
// means that the connection is broken.
func (c *wire) exec(within time.Duration, commands ...string) ([]result, error) {
	for _, command := range commands {
		c.add(msgQuery, append([]byte(command), 0))
	}
	if err := c.send(within); err != nil {
		return nil, err
	}
	if err := c.readWithin(within); err != nil {
		return nil, err
	}
	results := make([]result, len(commands))
	for i := range results {
		if err := c.result(&results[i]); err != nil {
			return nil, fmt.Errorf("execute %q: %w", commands[i], err)
		}
	}
	return results, c.readWithin(0)
}

// result reads up to ReadyForQuery.
func (c *wire) result(r *result) error {
	for {
		kind, body, err := c.next(maxCommandBytes)
		if err != nil {
			if r.err != nil { // a FATAL is followed by the end of the connection
				return r.err
			}
			return err
		}
		switch kind {
		case msgDataRow:
			row, err := decodeRow(body)
			if err != nil {
				return err
			}
			r.rows = append(r.rows, row)
		case msgError:
			r.err = decodeError(body)
		case msgReady:
			return nil
		case msgCommandComplete, msgRowDescription, msgNotice, msgParameter, msgCopyDone:
		default:
			return &ProtocolError{Peer: c.peer, What: fmt.Sprintf("message %q in answer to a command", kind)}
		}
	}
}

// decodeRow returns a copy of the values of a DataRow; nil is NULL.
func decodeRow(body []byte) ([][]byte, error) {
	var row pgproto3.DataRow
	if err := row.Decode(body); err != nil {
		return nil, fmt.Errorf("decode row: %w", err)
	}
	values := make([][]byte, len(row.Values))
	for i, value := range row.Values {
		values[i] = slices.Clone(value)
	}
	return values, nil
}

// decodeError returns what an ErrorResponse says; a malformed one is an error as well.
func decodeError(body []byte) *protocol.Error {
	var e pgproto3.ErrorResponse
	if err := e.Decode(body); err != nil {
		return protocol.Fatalf(protocol.CodeProtocolViolation, "malformed error response")
	}
	severity := e.SeverityUnlocalized
	if severity == "" {
		severity = e.Severity
	}
	return &protocol.Error{Severity: severity, Code: e.Code, Message: e.Message, Detail: e.Detail, Hint: e.Hint}
}

// one returns the only row of a result, which must have at least columns values.
func (r result) one(columns int) ([][]byte, error) {
	if r.err != nil {
		return nil, r.err
	}
	if len(r.rows) != 1 || len(r.rows[0]) < columns {
		return nil, fmt.Errorf("want one row of %d columns or more, got %d rows", columns, len(r.rows))
	}
	return r.rows[0], nil
}

// hasCode reports whether err is an error of the server with one of the SQLSTATEs.
func hasCode(err error, codes ...string) bool {
	var e *protocol.Error
	return errors.As(err, &e) && slices.Contains(codes, e.Code)
}

// quoteName quotes a slot name as the replication grammar reads it.
//
// Source: PostgreSQL src/backend/replication/repl_scanner.l, state xd (13-18).
func quoteName(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
