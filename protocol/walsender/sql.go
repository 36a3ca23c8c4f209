package walsender

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
	"go.uber.org/zap"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/protocol/relay"
)

// relaysSQL reports whether the session's SQL commands are relayed: those of a replication connection with a database.
func (s *session) relaysSQL() bool {
	if !s.server.options.SQL || s.database == "" {
		return false
	}
	s.sql.keep = true
	s.sql.open = func(ctx context.Context) (Upstream, error) { return s.openSQL(ctx) }
	return true
}

// openSQL opens the session on the server that the client's SQL goes to, with what the client said at startup.
func (s *session) openSQL(ctx context.Context) (Upstream, error) {
	want := SQLSession{User: s.user, Database: s.database, Parameters: map[string]string{}}
	for _, p := range s.startup.settings {
		want.Parameters[p.name] = p.value
	}
	if n := len(s.startup.options); n > 0 {
		want.Parameters["options"] = s.startup.options[n-1] // the last one counts
	}
	return s.server.options.Relay.SQL(ctx, want)
}

// greetSQL opens the session upstream and tells the client what that server reports.
func (s *session) greetSQL(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.server.options.AuthenticationTimeout)
	defer cancel()
	up, err := s.openSQL(ctx)
	if err != nil {
		var refusal *protocol.Error
		errors.As(s.unreachable(ctx, "SQL", err), &refusal)
		if refusal == nil {
			return protocol.Fatalf(protocol.CodeUnableToConnect, "the node could not reach the server for SQL in time")
		}
		fatal := *refusal
		fatal.Severity = "FATAL"
		return errors.Join(s.wire.add(&pgproto3.AuthenticationOk{}), &fatal)
	}
	s.sql.up = up
	if err := s.wire.add(&pgproto3.AuthenticationOk{}); err != nil {
		return err
	}
	if err := s.enter(); err != nil {
		return err
	}
	reported := up.Parameters()
	for _, name := range slices.Sorted(maps.Keys(reported)) {
		if name == link.LinkParameter {
			continue
		}
		if err := s.wire.add(&pgproto3.ParameterStatus{Name: name, Value: reported[name]}); err != nil {
			return err
		}
	}
	if err := s.addKey(); err != nil {
		return err
	}
	return s.wire.ready() // what the upstream reports from now on comes from it
}

// relaySession carries the client's messages to the server and the server's to the client until one of them goes, the node
// shuts down (ctx), or the session is killed. It returns why; a *protocol.Error is still to be sent.
func (s *session) relaySession(ctx, killed context.Context) error {
	up, conn := s.sql.up, s.wire.conn
	s.log.Info("SQL session started", zap.Int32("pid", s.pid), zap.String("user", s.user), zap.String("upstream", up.Peer()))
	over, end := context.WithCancelCause(killed)
	defer end(nil)
	defer after(ctx, func() { end(errTerminated()) })()
	stop := after(over, func() {
		soon := time.Now().Add(lastWordTimeout)
		s.wire.interrupt()
		_ = up.SetReadDeadline(time.Unix(1, 0)) // connections that are closed need no deadlines
		_ = up.SetWriteDeadline(soon)
		_ = conn.SetWriteDeadline(soon)
	})
	if err := errors.Join(s.wire.skip(), conn.SetWriteDeadline(time.Time{}), up.SetReadDeadline(time.Time{})); err != nil {
		end(closed(err))
	}
	canceled := make(chan struct{}, 1) // sent to by cancel requests, never closed; one that waits stands for all
	s.setCommand(func(error) {
		select {
		case canceled <- struct{}{}:
		default:
		}
	})
	var g sync.WaitGroup
	g.Go(func() { s.forwardCancels(over, canceled) })
	g.Go(func() {
		_, err := io.Copy(up, s.wire.in)
		end(closed(errors.Join(err, io.EOF)))
	})
	messages := relay.NewScanner(up, func(byte) bool { return false })
	whole := true
	for {
		piece, err := messages.Next()
		if err == nil {
			whole = false
			_, err = conn.Write(piece.Bytes)
		}
		if err != nil {
			end(closed(err))
			break
		}
		whole = messages.Between()
	}
	g.Wait()
	stop()
	s.setCommand(nil)
	s.log.Info("SQL session ended", zap.Int32("pid", s.pid), zap.NamedError("reason", context.Cause(over)))
	if !whole {
		return closed(context.Cause(over))
	}
	return context.Cause(over)
}

// forwardCancels has the server end what it does for the session, each time that a client asks for it.
func (s *session) forwardCancels(ctx context.Context, canceled <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-canceled:
		}
		limited, cancel := context.WithTimeout(ctx, cancelGrace)
		if err := s.sql.up.Cancel(limited); err != nil {
			s.log.Warn("cannot cancel a command upstream", zap.String("upstream", s.sql.up.Peer()), zap.Error(err))
		}
		cancel()
	}
}
