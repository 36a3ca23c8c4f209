package walsender

import (
	"context"
	"io"
	"time"

	"walproxy/protocol"
)

// Relay reaches upstream servers for what a node cannot answer itself. Safe for concurrent use.
//
// Errors of type *protocol.Error are what the client sees; of others it learns that the upstream could not be reached, and the
// SQLSTATE and message of a server that refused.
type Relay interface {
	// Backup opens a replication connection to the upstream, for BASE_BACKUP and UPLOAD_MANIFEST of one session.
	Backup(ctx context.Context) (Upstream, error)
	// Reserve keeps WAL from start on for the session pid until the session ends or has an error, as a temporary slot does, and
	// waits until the node holds WAL up to start. An error is logged and does not end the backup, which may bring its WAL along.
	Reserve(ctx context.Context, pid int32, tli protocol.Timeline, start protocol.LSN) error
	// SQL opens a session on the server that the user's SQL goes to.
	SQL(ctx context.Context, session SQLSession) (Upstream, error)
}

// SQLSession is a session that a client wants of the server behind the node.
type SQLSession struct {
	User       string // as authenticated by the node
	Database   string
	Parameters map[string]string // of the client's startup packet
}

// Upstream is an authenticated, idle connection to an upstream, positioned behind its ReadyForQuery.
type Upstream interface {
	io.ReadWriteCloser
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
	// Gather asks for a Read that waits until so many bytes have arrived, the stream is over or the deadline is. 1 undoes it, also for
	// a Read that waits. Safe for concurrent use.
	Gather(bytes int)
	Peer() string
	// Parameters are those that the upstream reported at startup.
	Parameters() map[string]string
	// IsNode reports whether the upstream is a node that granted a link: its answer to BASE_BACKUP is wrapped.
	IsNode() bool
	// Cancel asks the upstream, on a connection of its own, to end the command that runs. Safe for concurrent use.
	Cancel(ctx context.Context) error
}
