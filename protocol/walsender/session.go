package walsender

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
	"go.uber.org/zap"

	"walproxy/protocol"
	"walproxy/protocol/link"
)

// session is one client connection. The goroutine that runs it owns everything but what the mutex guards.
type session struct {
	*startup
	server  *Server
	access  *Access // as it was at the start
	wire    *wire
	log     *zap.Logger
	unix    bool
	local   bool       // only this machine can reach the listener at the address that the client connected to
	address netip.Addr // of the client; invalid for a unix socket
	peer    string

	encrypted   bool
	endpoint    []byte            // that SCRAM-SHA-256-PLUS binds to; nil: not offered
	certificate *x509.Certificate // of the client, verified; nil without
	role        Role

	identity protocol.Identity // as it was at the start
	major    int               // 0 if the upstream is not known yet
	pid      int32
	key      []byte // that a cancel request must name
	settings *settings
	old      bool                    // speaks a protocol before 3, in which errors look different
	skipping bool                    // until Sync, after an error of the extended protocol
	kill     context.CancelCauseFunc // ends the session with the cause; from any goroutine
	ended    chan struct{}           // closed when the session has let go of everything
	backup   relayed                 // where base backups come from
	sql      relayed                 // where SQL goes; open is nil if it does not

	mu      sync.Mutex
	command context.CancelCauseFunc // of the command that runs; nil between commands
	live    *stream                 // that runs; nil if none does
}

func newSession(server *Server, conn net.Conn, unix bool) *session {
	s := &session{server: server, access: server.access.Load(), wire: newWire(conn), unix: unix, peer: "unix", ended: make(chan struct{})}
	if !unix {
		s.peer, s.address, s.local = conn.RemoteAddr().String(), addressOf(conn.RemoteAddr()), isLocal(conn.LocalAddr())
	}
	s.log = server.log.With(zap.String("peer", s.peer))
	return s
}

// run serves the client until it goes, ctx ends (the node shuts down), or the session is killed.
func (s *session) run(ctx context.Context) {
	said := false // why the session ends
	defer func() {
		if said {
			s.wire.linger(ctx)
		}
		_ = s.wire.conn.Close() // of TLS too, whose conn comes later
	}()
	defer close(s.ended)
	defer s.backup.close()
	defer s.sql.close()
	killed, kill := context.WithCancelCause(context.WithoutCancel(ctx))
	defer kill(nil)
	s.kill = kill
	err := s.begin(ctx)
	if s.pid != 0 {
		defer s.server.unregister(s.pid)
		defer s.server.slots.DropTemporary(s.pid)
	}
	switch {
	case err != nil:
	case s.isSQL:
		err = s.relaySession(ctx, killed)
	default:
		err = s.loop(ctx, killed)
	}
	var refusal *protocol.Error
	switch {
	case errors.Is(err, errClosed): // perhaps in the middle of a message, for whose rest an error would be taken
		said = errors.Is(err, errDrained) || errors.Is(err, errOver)
	case errors.As(err, &refusal):
		failed := errors.Join(s.refuse(refusal), s.wire.flush())
		said = s.pid != 0 && failed == nil
		err = errors.Join(err, failed)
	}
	s.log.Debug("session ended", zap.Int32("pid", s.pid), zap.Error(err))
}

// refuse appends the error that ends the session, in the form that the client's protocol has.
//
// Source: PostgreSQL src/backend/utils/error/elog.c, send_message_to_frontend (14-18).
func (s *session) refuse(e *protocol.Error) error {
	if !s.old {
		return s.wire.fail(e)
	}
	s.wire.out = fmt.Appendf(s.wire.out, "E%s:  %s\n\x00", e.Severity, e.Message)
	return nil
}

// begin does everything before the first command. Errors: *protocol.Error to be sent, or of the connection.
func (s *session) begin(ctx context.Context) error {
	var known bool
	if s.identity, known = s.server.backend.Identity(); known {
		s.major = s.identity.Major()
	}
	if tcp, ok := s.wire.raw.(*net.TCPConn); ok {
		if err := tcp.SetNoDelay(true); err != nil {
			return err
		}
	}
	if err := s.wire.readDeadline(time.Now().Add(s.server.options.AuthenticationTimeout)); err != nil {
		return err
	}
	defer after(ctx, s.wire.interrupt)()
	st, request, err := s.readStartup()
	if request != nil {
		s.server.cancel(request)
		return errClosed
	}
	s.startup = st
	if err == nil {
		err = s.admit(known)
	}
	if err == nil {
		err = s.authenticate(ctx)
	}
	var timeout net.Error
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return protocol.Fatalf(protocol.CodeCannotConnectNow, "the database system is shutting down")
	case errors.As(err, &timeout) && timeout.Timeout() && st != nil:
		return protocol.Fatalf(protocol.CodeQueryCanceled, "canceling authentication due to timeout")
	}
	if err != nil {
		return err
	}
	greet := s.greet
	if s.isSQL {
		greet = func() error { return s.greetSQL(ctx) }
	}
	if err := greet(); err != nil {
		return err
	}
	return s.wire.readDeadline(time.Time{})
}

// admit turns clients away while there is nothing to serve or no room.
func (s *session) admit(known bool) error {
	if !known || s.major == 0 {
		return protocol.Fatalf(protocol.CodeCannotConnectNow, "the database system is starting up")
	}
	if limit := s.server.options.MaxConnections; s.server.connected.Load() > int64(limit) {
		return protocol.Fatalf(protocol.CodeTooManyConnections,
			"number of requested standby connections exceeds %s (currently %d)", s.inMessages("max_wal_senders"), limit)
	}
	return nil
}

// inMessages returns the name of a setting as messages of the version have it, in quotes since 17.
func (s *session) inMessages(setting string) string {
	if s.major < 17 {
		return setting
	}
	return "\"" + setting + "\""
}

// greet sends what follows authentication: settings, key, ReadyForQuery.
func (s *session) greet() error {
	if err := s.wire.add(&pgproto3.AuthenticationOk{}); err != nil {
		return err
	}
	if err := s.enter(); err != nil {
		return err
	}
	if !s.access.mayReplicate(s.user, s.role) {
		return s.errNoReplication()
	}
	s.settings = newSettings(s.identity, s.user, s.server.options.WALSenderTimeout)
	if err := s.settings.apply(s.startup); err != nil {
		return err
	}
	s.refresh()
	for _, p := range s.settings.reported() {
		if err := s.wire.add(&pgproto3.ParameterStatus{Name: p.name, Value: p.value}); err != nil {
			return err
		}
	}
	if s.link {
		if err := s.wire.add(&pgproto3.ParameterStatus{Name: link.LinkParameter, Value: link.LinkVersion}); err != nil {
			return err
		}
	}
	if err := s.addKey(); err != nil {
		return err
	}
	return s.ready()
}

// enter makes the session one that a cancel request can name.
func (s *session) enter() error {
	s.key = make([]byte, 4)
	if s.version >= versionWord+2 { // 3.2
		s.key = make([]byte, 32)
	}
	rand.Read(s.key)
	return s.server.register(s)
}

// addKey appends what the client must name in a cancel request.
func (s *session) addKey() error {
	return s.wire.add(&pgproto3.BackendKeyData{ProcessID: uint32(s.pid), SecretKey: s.key})
}

// errNoReplication is the error of a user without the REPLICATION attribute.
//
// Source: PostgreSQL src/backend/utils/init/postinit.c, InitPostgres (13-18).
func (s *session) errNoReplication() error {
	if s.major < 16 {
		return protocol.Fatalf(protocol.CodeInsufficientPrivilege, "must be superuser or replication role to start walsender")
	}
	err := protocol.Fatalf(protocol.CodeInsufficientPrivilege, "permission denied to start WAL sender")
	err.Detail = "Only roles with the REPLICATION attribute may start a WAL sender process."
	return err
}

// liveSettings are those that change with the upstream's role, while sessions go on.
var liveSettings = []string{"in_hot_standby", "transaction_read_only"}

// refresh takes over what the upstream's role is by now.
func (s *session) refresh() (changed []string) {
	identity, _ := s.server.backend.Identity()
	for _, name := range liveSettings {
		if value, known := identity.Settings[name]; known && s.settings.values[name] != value {
			if _, defined := s.settings.values[name]; defined {
				s.settings.values[name] = value
				changed = append(changed, name)
			}
		}
	}
	return changed
}

// ready says that the next command can come, and before that which reported settings have changed since the last time.
//
// Source: PostgreSQL src/backend/utils/misc/guc.c, ReportChangedGUCOptions (14-18).
func (s *session) ready() error {
	for _, name := range s.refresh() {
		if d, ok := find(name, s.major); ok && d.reported != 0 && d.reported <= s.major {
			if err := s.wire.add(&pgproto3.ParameterStatus{Name: d.name, Value: s.settings.values[name]}); err != nil {
				return err
			}
		}
	}
	return s.wire.ready()
}

// loop executes commands until the session ends. The error says why; one of type *protocol.Error is to be sent.
func (s *session) loop(ctx, killed context.Context) error {
	for {
		stop := after(ctx, s.wire.interrupt)
		stopKill := after(killed, s.wire.interrupt)
		kind, body, err := s.wire.next()
		stop()
		stopKill()
		switch {
		case killed.Err() != nil:
			return context.Cause(killed)
		case ctx.Err() != nil:
			return errTerminated()
		case err != nil:
			return err
		}
		if err := s.dispatch(killed, ctx, kind, body); err != nil {
			return err
		}
	}
}

// dispatch handles one message between commands. shutdown ends when the node begins to shut down.
//
// Source: PostgreSQL src/backend/tcop/postgres.c, PostgresMain and forbidden_in_wal_sender (13-18).
func (s *session) dispatch(killed, shutdown context.Context, kind byte, body []byte) error {
	switch {
	case kind == 'X':
		return errClosed
	case kind == 'S':
		s.skipping = false
		return s.ready()
	case s.skipping:
		return nil
	}
	switch kind {
	case 'Q':
		if len(body) == 0 || body[len(body)-1] != 0 {
			return protocol.Fatalf(protocol.CodeProtocolViolation, "invalid message format")
		}
		return s.query(killed, shutdown, string(body[:len(body)-1]))
	case 'P', 'B', 'E', 'C', 'D':
		s.skipping = true
		return s.answer("", protocol.Errorf(protocol.CodeProtocolViolation, "extended query protocol not supported in a replication connection"))
	case 'F':
		return s.answer("", protocol.Errorf(protocol.CodeProtocolViolation, "fastpath function calls not supported in a replication connection"))
	case 'd', 'c', 'f', 'H': // the rest of a copy that failed; Flush, with nothing held back
		return nil
	}
	return protocol.Fatalf(protocol.CodeProtocolViolation, "invalid frontend message type %d", kind)
}

// query executes one simple Query.
func (s *session) query(killed, shutdown context.Context, text string) error {
	cmd, notices, err := protocol.ParseCommand(text, s.major)
	for _, n := range notices {
		if err := s.wire.notice(n); err != nil {
			return err
		}
	}
	isSQL := err != nil && errors.Is(err, protocol.ErrNotReplication) && s.relaysSQL()
	if err != nil && !isSQL {
		return s.answer("", err)
	}
	ctx, cancel := context.WithCancelCause(killed)
	defer cancel(nil)
	s.setCommand(cancel)
	defer s.setCommand(nil)
	switch {
	case isSQL:
		err = s.relay(ctx, shutdown, text, keywordSQL, &s.sql)
	case s.server.options.Relay != nil && isRelayed(cmd):
		err = s.relayCommand(ctx, shutdown, text, cmd.Keyword())
	default:
		return s.answer(cmd.Keyword(), s.execute(ctx, shutdown, cmd))
	}
	if err != nil {
		return s.answer("", err)
	}
	return s.ready()
}

func isRelayed(cmd protocol.Command) bool {
	switch cmd.(type) {
	case protocol.BaseBackup, protocol.UploadManifest:
		return true
	}
	return false
}

// answer ends a command: with its tag, or with the error, which drops the session's temporary slots. The session ends if
// an error is returned.
func (s *session) answer(tag string, err error) error {
	if err == nil {
		s.wire.out = protocol.AppendCommandComplete(s.wire.out, tag)
		return s.ready()
	}
	if errors.Is(err, errClosed) {
		return err
	}
	var refusal *protocol.Error
	if !errors.As(err, &refusal) {
		s.log.Error("command failed", zap.Int32("pid", s.pid), zap.String("command", tag), zap.Error(err))
		refusal = public(err)
	}
	if refusal.Severity == "FATAL" {
		return refusal
	}
	s.server.slots.DropTemporary(s.pid)
	if err := s.wire.fail(refusal); err != nil {
		return err
	}
	if s.skipping {
		return s.wire.flush()
	}
	return s.ready()
}

// public returns what a client may know of an error of the node's: nothing of its files.
//
// Source of the SQLSTATE of a full disk: PostgreSQL src/backend/utils/error/elog.c, errcode_for_file_access (13-18).
func public(err error) *protocol.Error {
	var known interface{ Public() *protocol.Error }
	var file *fs.PathError
	switch {
	case errors.As(err, &known):
		return known.Public()
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		full := protocol.Errorf(protocol.CodeDiskFull, "could not write to the node's disk: No space left on device")
		full.Hint = "Make room in the node's data directory."
		return full
	case errors.As(err, &file):
		return protocol.Errorf(protocol.CodeInternalError, "the node could not do this; its log says why")
	}
	return protocol.Errorf(protocol.CodeInternalError, "%v", err)
}

func (s *session) setCommand(cancel context.CancelCauseFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.command = cancel
}

func (s *session) setStream(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live = st
}

// cancelCommand ends the command that runs, if any, with err. It may be called from any goroutine.
func (s *session) cancelCommand(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.command != nil {
		s.command(err)
	}
}

// closed makes an error of the connection end the session silently.
func closed(err error) error { return fmt.Errorf("%w: %w", errClosed, err) }

// after has f called in a goroutine of its own once ctx has ended. stop prevents that, or waits until f has returned.
func after(ctx context.Context, f func()) (stop func()) {
	returned := make(chan struct{})
	prevent := context.AfterFunc(ctx, func() {
		defer close(returned)
		f()
	})
	return func() {
		if !prevent() {
			<-returned
		}
	}
}
