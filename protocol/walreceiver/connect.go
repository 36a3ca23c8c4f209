package walreceiver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"go.uber.org/zap"

	"walproxy/protocol"
)

// conn is an authenticated replication connection, with no command under way.
type conn struct {
	*wire
	parameters map[string]string // as reported at startup
	cancel     func(context.Context) error
}

// unwantedError says that a host was left aside because it refused the last attempt; the others come first.
type unwantedError struct{ peer string }

func (e *unwantedError) Error() string { return fmt.Sprintf("%s refused the last attempt", e.peer) }

// connect tries the hosts of the conninfo in order and returns the first one that answers, is of the kind asked for and is
// not on a timeline behind ours. The host avoid comes last. The conninfo's files are read anew: passwords and services change.
// Errors: *ConnectError, which holds all attempts of the last walk over the hosts.
func (r *Receiver) connect(ctx context.Context, sink Sink, avoid string) (*conn, error) {
	session, err := r.readConninfo()
	if err != nil {
		return nil, err
	}
	return r.connectSession(ctx, sink, session, avoid)
}

func (r *Receiver) connectSession(ctx context.Context, sink Sink, session *session, avoid string) (c *conn, err error) {
	for _, p := range session.passes(avoid) {
		vet := func(ctx context.Context, c *pgconn.PgConn, peer string) error {
			return r.vet(ctx, c, peer, sink, p, session.systemID)
		}
		if c, err = session.attempt(ctx, r.options.ReceiverTimeout, vet); err == nil {
			return c, nil
		}
		var unwanted *unwantedError
		var kind *targetError
		if !errors.As(err, &unwanted) && !(errors.As(err, &kind) && session.target == targetPreferStandby) {
			break
		}
	}
	return nil, explain(connectError(err))
}

// readConninfo is parseConninfo for an attempt to connect. Its error shows nothing of the conninfo.
func (r *Receiver) readConninfo() (*session, error) {
	s, err := parseConninfo(&r.options)
	var bad *pgconn.ParseConfigError
	if errors.As(err, &bad) {
		if err = bad.Unwrap(); err == nil {
			err = errors.New("a file that it names, or the environment, has changed to something that cannot be used")
		}
		return nil, fmt.Errorf("read upstream conninfo again: %w", err)
	}
	if err != nil {
		return nil, err
	}
	if s.loose != nil && r.failures.due(s.loose.Error()) {
		r.log.Warn("the password file is not used", zap.Error(s.loose))
	}
	return s, nil
}

// pass is one walk over the hosts.
type pass struct {
	target target
	avoid  string
}

func (s *session) passes(avoid string) []pass {
	passes := []pass{{s.target, avoid}}
	if s.target == targetPreferStandby {
		passes = []pass{{targetStandby, avoid}, {targetAny, avoid}}
	}
	if avoid != "" {
		for _, p := range passes {
			passes = append(passes, pass{p.target, ""})
		}
	}
	return passes
}

// vetFunc decides whether a host that has let us in will do.
type vetFunc func(ctx context.Context, c *pgconn.PgConn, peer string) error

// attempt walks over the hosts once. timeout bounds each connection if the conninfo does not; vet decides on a host. Errors join
// those of pgconn, one for each host.
func (s *session) attempt(ctx context.Context, timeout time.Duration, vet vetFunc) (*conn, error) {
	return walk(s.hosts(), func(host *pgconn.Config) (*conn, error) { return s.attemptHost(ctx, host, timeout, vet) })
}

// walk tries the hosts until one succeeds or one's refusal stands for all.
func walk[T any](hosts []*pgconn.Config, try func(host *pgconn.Config) (T, error)) (found T, err error) {
	var failures []error
	for _, host := range hosts {
		if found, err = try(host); err == nil {
			return found, nil
		}
		if failures = append(failures, err); isFinal(err) {
			break
		}
	}
	return found, errors.Join(failures...)
}

func (s *session) attemptHost(ctx context.Context, config *pgconn.Config, timeout time.Duration, vet vetFunc) (*conn, error) {
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = timeout
	}
	var w *wire // of the host that is being tried
	config.AfterNetConnect = func(_ context.Context, _ *pgconn.Config, c net.Conn) (net.Conn, error) {
		w = newWire(c)
		return c, s.prepare(c) // pgconn, which looks for TLS to bind SCRAM to, keeps c, and closes it on an error
	}
	config.BuildFrontend = func(in io.Reader, out io.Writer) *pgproto3.Frontend {
		w.source = in
		return pgproto3.NewFrontend(w, out)
	}
	config.ValidateConnect = func(ctx context.Context, c *pgconn.PgConn) error { return vet(ctx, c, w.peer) }
	established, err := pgconn.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	hijacked, err := established.Hijack()
	if err != nil {
		return nil, errors.Join(err, established.Close(ctx))
	}
	if err := w.takeOver(); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return &conn{wire: w, parameters: hijacked.ParameterStatuses, cancel: established.CancelRequest}, nil
}

// vet looks at a server before the other hosts of the conninfo are given up for it. id is 0 if any cluster will do.
func (r *Receiver) vet(ctx context.Context, c *pgconn.PgConn, peer string, sink Sink, p pass, id protocol.SystemID) error {
	if peer == p.avoid {
		return &unwantedError{peer: peer}
	}
	if err := p.target.check(ctx, c); err != nil {
		return err
	}
	row, err := queryRow(ctx, c, identifySystem, 3)
	if err != nil {
		return err
	}
	theirs, err := parseIdentify(row)
	if err != nil {
		return err
	}
	if id != 0 && theirs.systemID != id {
		return fmt.Errorf("%s has system identifier %s, want %s", peer, theirs.systemID, id)
	}
	var history []byte
	if theirs.timeline > 1 {
		if row, err = queryRow(ctx, c, historyCommand(theirs.timeline), 2); err != nil {
			return err
		}
		history = row[1]
	}
	return checkLineage(sink, theirs, history, peer)
}

func queryRow(ctx context.Context, c *pgconn.PgConn, command string, columns int) ([][]byte, error) {
	results, err := c.Exec(ctx, command).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("execute %q: %w", command, err)
	}
	if len(results) != 1 || len(results[0].Rows) != 1 || len(results[0].Rows[0]) < columns {
		return nil, fmt.Errorf("execute %q: want one row of %d columns or more", command, columns)
	}
	return results[0].Rows[0], nil
}

// explain adds what to do about a refused login, and about a certificate that we refuse.
func explain(err error) error {
	var untrusted *tls.CertificateVerificationError
	if errors.As(err, &untrusted) {
		return fmt.Errorf("the upstream's certificate is not trusted: check sslrootcert and the host names of the conninfo: %w", err)
	}
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return err
	}
	switch e.Code {
	case protocol.CodeInvalidPassword:
		return fmt.Errorf("the upstream refused the password: check user and password of the conninfo or the password file: %w", err)
	case protocol.CodeInvalidAuthorization:
		return fmt.Errorf("the upstream refused the user: check its pg_hba.conf (of a node, listen.auth) for a line with database \"replication\", and the certificate that this line wants: %w", err)
	case protocol.CodeInsufficientPrivilege:
		return fmt.Errorf("the upstream refused the user: the role needs the REPLICATION attribute: %w", err)
	}
	return err
}
