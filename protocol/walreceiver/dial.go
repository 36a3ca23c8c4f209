package walreceiver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/protocol/socket"
)

// Connection is an authenticated, idle connection to an upstream, made for something else than the stream of WAL. One
// goroutine may read while another one writes; the other methods are safe for concurrent use.
type Connection struct {
	*conn
}

// Read returns what the upstream says, from the first message behind its ReadyForQuery on.
func (c *Connection) Read(p []byte) (int, error) {
	if c.r < c.w {
		n := copy(p, c.buf[c.r:c.w])
		c.r += n
		return n, nil
	}
	return c.Conn.Read(p)
}

// Gather makes Read wait until that many bytes have arrived, the stream is over or its deadline is, if the system can do that. 1 undoes
// it, also for a Read that waits.
func (c *Connection) Gather(bytes int) { socket.Gather(c.Conn, bytes) }

// Peer returns the upstream's address.
func (c *Connection) Peer() string { return c.peer }

// Parameters returns what the upstream reported at startup. The map is not changed later.
func (c *Connection) Parameters() map[string]string { return c.parameters }

// IsNode reports whether the upstream is a node that granted a link.
func (c *Connection) IsNode() bool { return c.parameters[link.LinkParameter] == link.LinkVersion }

// Cancel asks the upstream, on a connection of its own, to end the command that runs here.
func (c *Connection) Cancel(ctx context.Context) error {
	if err := c.cancel(ctx); err != nil {
		return fmt.Errorf("cancel command on upstream %s: %w", c.peer, err)
	}
	return nil
}

// Dial opens a replication connection beside the one that Run keeps: to one of the same hosts, by the same rules, under
// another name, and to the cluster id only. It is the caller's to close. Safe for concurrent use.
// Errors: *ConnectError with the reason for each host.
func (r *Receiver) Dial(ctx context.Context, sink Sink, id protocol.SystemID, applicationName string) (*Connection, error) {
	session, err := r.readConninfo()
	if err != nil {
		return nil, err
	}
	session.systemID = id
	session.config.RuntimeParams["application_name"] = applicationName
	c, err := r.connectSession(ctx, sink, session, "")
	if err != nil {
		return nil, err
	}
	return &Connection{c}, nil
}

// Session is an SQL session, or a walsender with a database, to be opened on an upstream.
type Session struct {
	Conninfo   string            // says hosts, user and how the user proves who it is; its database is not used
	Database   string            // to connect to
	Parameters map[string]string // of the startup packet, beside user and database; they come before Conninfo's own
	Timeout    time.Duration     // of each attempt, unless Conninfo has a connect_timeout
}

// Dial opens the session. Errors: *ConnectError with the reason for each host; errors.As finds a server's *pgconn.PgError.
func (s Session) Dial(ctx context.Context) (*Connection, error) {
	session, err := parseSession(withDatabase(s.Conninfo, s.Database))
	if err != nil {
		return nil, hideConninfo(err)
	}
	maps.Copy(session.config.RuntimeParams, s.Parameters)
	for _, p := range session.passes("") {
		var c *conn
		vet := func(ctx context.Context, c *pgconn.PgConn, _ string) error { return p.target.check(ctx, c) }
		if c, err = session.attempt(ctx, s.Timeout, vet); err == nil {
			return &Connection{c}, nil
		}
		if session.target != targetPreferStandby {
			break
		}
	}
	return nil, connectError(err)
}

// Connect opens a connection for queries by the rules of Dial, to the conninfo's own database. Errors: those of Dial.
func Connect(ctx context.Context, conninfo string) (*pgconn.PgConn, error) {
	session, err := parseSession(conninfo)
	if err != nil {
		return nil, hideConninfo(err)
	}
	for _, p := range session.passes("") {
		var c *pgconn.PgConn
		c, err = walk(session.hosts(), func(host *pgconn.Config) (*pgconn.PgConn, error) {
			host.AfterNetConnect = func(_ context.Context, _ *pgconn.Config, c net.Conn) (net.Conn, error) { return c, session.prepare(c) }
			host.ValidateConnect = p.target.check
			return pgconn.ConnectConfig(ctx, host)
		})
		if err == nil {
			return c, nil
		}
	}
	return nil, connectError(err)
}

// hideConninfo takes the connection string out of an error about it.
func hideConninfo(err error) error {
	var bad *pgconn.ParseConfigError
	if !errors.As(err, &bad) {
		return err
	}
	if cause := bad.Unwrap(); cause != nil {
		return fmt.Errorf("read conninfo: %w", cause)
	}
	return errors.New("read conninfo: it cannot be used")
}
