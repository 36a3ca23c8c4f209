// Package authquery looks users up on a PostgreSQL server by a query, and remembers what it found.
package authquery

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"walproxy/protocol/walsender"
)

// DefaultSQL is what a superuser may ask. Others need a function that does it for them (SECURITY DEFINER).
const DefaultSQL = "SELECT rolpassword, rolreplication FROM pg_catalog.pg_authid" +
	" WHERE rolname = $1 AND rolcanlogin AND (rolvaliduntil IS NULL OR rolvaliduntil > now())"

const (
	// queryTimeout bounds one look-up, the connection included.
	queryTimeout = 10 * time.Second
	// maxRemembered bounds the users, known and unknown, that are remembered.
	maxRemembered = 10000
	// retryInterval is how long the server is left alone after it could not be asked: who logs in meanwhile gets what is
	// remembered at once.
	retryInterval = time.Second
)

// Options say whom to ask and what.
type Options struct {
	Conninfo string // libpq connection string or URI of an ordinary SQL connection
	// SQL has one parameter, the user's name, and returns no row for who may not log in, else rolpassword and, optionally, a
	// boolean: whether the user has REPLICATION.
	SQL string
	// Cache is how long an answer counts; Stale is how long one counts while the server cannot be asked.
	Cache, Stale time.Duration
}

// Connect opens a connection by a conninfo. Its errors show nothing of that.
type Connect func(ctx context.Context, conninfo string) (*pgconn.PgConn, error)

// Lookup asks, one user at a time. Safe for concurrent use.
type Lookup struct {
	options Options
	connect Connect
	ask     func(ctx context.Context, user string) (rows [][][]byte, err error)
	now     func() time.Time

	mu      sync.Mutex // held while asking: a flood of logins is one connection to the server
	answers map[string]answer
	failed  time.Time // when the server last could not be asked
	reason  error
}

// answer is what the server said about a user.
type answer struct {
	role  walsender.Role
	known bool
	at    time.Time
}

// New does not connect yet. The conninfo is one that connect understands.
func New(o Options, connect Connect) *Lookup {
	l := &Lookup{options: o, connect: connect, now: time.Now, answers: map[string]answer{}}
	l.ask = l.query
	return l
}

// Lookup implements walsender.Passwords.
func (l *Lookup) Lookup(ctx context.Context, user string) (walsender.Role, bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	old, remembered := l.answers[user]
	age := now.Sub(old.at)
	if remembered && age < l.options.Cache {
		return old.role, old.known, nil
	}
	var rows [][][]byte
	err := l.reason
	if err == nil || now.Sub(l.failed) >= retryInterval {
		rows, err = l.ask(ctx, user)
		l.reason, l.failed = err, l.now()
	}
	var fresh answer
	if err == nil {
		fresh, err = parse(rows)
	}
	if err != nil {
		if remembered && age < l.options.Stale {
			return old.role, old.known, nil
		}
		return walsender.Role{}, false, err
	}
	if len(l.answers) >= maxRemembered {
		l.forget(now)
	}
	fresh.at = l.now()
	l.answers[user] = fresh
	return fresh.role, fresh.known, nil
}

// forget makes room: names that nobody has, which strangers can make up, go first.
func (l *Lookup) forget(now time.Time) {
	for name, a := range l.answers {
		if !a.known || now.Sub(a.at) >= l.options.Stale {
			delete(l.answers, name)
		}
	}
	if len(l.answers) >= maxRemembered {
		clear(l.answers)
	}
}

// query asks the server over a connection of its own.
func (l *Lookup) query(ctx context.Context, user string) ([][][]byte, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), queryTimeout)
	defer cancel()
	c, err := l.connect(ctx, l.options.Conninfo)
	if err != nil {
		return nil, fmt.Errorf("authentication query: %w", err)
	}
	defer func() { _ = c.Close(ctx) }()
	result := c.ExecParams(ctx, l.options.SQL, [][]byte{[]byte(user)}, nil, nil, nil).Read()
	if result.Err != nil {
		return nil, fmt.Errorf("authentication query: %w", result.Err)
	}
	return result.Rows, nil
}

// parse reads rows of rolpassword and, optionally, rolreplication, in text.
func parse(rows [][][]byte) (answer, error) {
	if len(rows) == 0 {
		return answer{}, nil
	}
	if len(rows) > 1 || len(rows[0]) < 1 || len(rows[0]) > 2 {
		return answer{}, fmt.Errorf("authentication query: want one row of one or two columns, got %d rows", len(rows))
	}
	row := rows[0]
	a := answer{known: row[0] != nil}
	if len(row) == 2 {
		a.role.NoReplication = string(row[1]) != "t"
	}
	if !a.known {
		return a, nil // no password
	}
	var err error
	a.role.Verifier, err = walsender.ParseVerifier(string(row[0]))
	if err != nil {
		return answer{}, fmt.Errorf("authentication query: %w", err)
	}
	return a, nil
}
