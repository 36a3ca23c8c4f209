package walsender

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
	"go.uber.org/zap"

	"walproxy/protocol"
	"walproxy/protocol/relay"
)

const (
	// cancelGrace is how long an upstream may take to end a command that was canceled.
	cancelGrace = 10 * time.Second
	// flushAfter is how long what is compressed may wait for more before it is sent.
	flushAfter = 10 * time.Millisecond
	// gatherBytes of a backup are read at a time, so that the node does not wake for each message of the server: in bulk they take less
	// than gatherAfter to arrive.
	gatherBytes = 128 << 10
	gatherAfter = 2 * time.Millisecond
)

// relaying is one command that the upstream executes for a session. The session's goroutine does the work; two others end it
// early: one that waits for the client to go, one that waits for the context.
type relaying struct {
	session *session
	up      Upstream
	keyword string
	begun   bool // BASE_BACKUP has said where the backup begins, or another command runs
	cut     bool // the client got a part of a message: nothing may follow
	wrapper *relay.Wrapper

	bulk       bool // the upstream sends much, as fast as it can
	mu         sync.Mutex
	gathering  bool      // reading waits for gatherBytes
	deadline   time.Time // of reading the upstream, once the command is to end
	terminated bool      // the session ends, and says why itself
}

// relay has an upstream execute a command and sends the client its answer as it is. The connection is made by open if there is
// none yet. A *protocol.Error is still to be sent; nil means that the answer is complete but for ReadyForQuery.
func (s *session) relay(ctx, shutdown context.Context, text, keyword string, to *relayed) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer after(shutdown, func() { cancel(errTerminated()) })()
	stopWatching, err := s.watch(cancel)
	if err != nil {
		return err
	}
	if to.up == nil {
		to.up, err = to.open(ctx)
	}
	if err != nil {
		return errors.Join(s.unreachable(ctx, keyword, err), stopWatching())
	}
	r := &relaying{session: s, up: to.up, keyword: keyword, begun: keyword != keywordBackup}
	stopAborting := after(ctx, func() { r.abort(context.Cause(ctx)) })
	err = r.run(ctx, text, stopWatching)
	stopAborting()
	if errStop := stopWatching(); err == nil {
		err = errStop
	}
	if err == nil {
		err = s.wire.conn.SetWriteDeadline(time.Time{})
	} else {
		err = r.explain(ctx, err)
	}
	if err != nil || !to.keep {
		to.close()
	}
	return err
}

const (
	keywordBackup   = "BASE_BACKUP"
	keywordManifest = "UPLOAD_MANIFEST"
	keywordSQL      = "SQL"
)

// relayed is a session's own connection to an upstream, made when a command needs it.
type relayed struct {
	open func(context.Context) (Upstream, error)
	up   Upstream // nil without
	keep bool     // the upstream remembers something of the session: a manifest, settings, a transaction
}

func (to *relayed) close() {
	if to.up != nil {
		_ = to.up.Close() // it is of no more use
		to.up, to.keep = nil, false
	}
}

// relayCommand relays BASE_BACKUP or UPLOAD_MANIFEST.
func (s *session) relayCommand(ctx, shutdown context.Context, text, keyword string) error {
	s.backup.open = s.server.options.Relay.Backup
	s.backup.keep = s.backup.keep || keyword == keywordManifest
	return s.relay(ctx, shutdown, text, keyword, &s.backup)
}

// explain says why a command ended with err, before the upstream's ReadyForQuery.
func (r *relaying) explain(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	var refusal *protocol.Error
	upstream := cause == nil && !errors.As(err, &refusal) && !errors.Is(err, errClosed)
	if upstream {
		r.session.log.Warn("relayed command failed", zap.String("command", r.keyword), zap.String("upstream", r.up.Peer()), zap.Error(err))
	}
	switch {
	case r.cut:
		return closed(errors.Join(cause, err, errCut))
	case errors.Is(err, errClosed): // by writing to the client, which may have got a part of a message
		return err
	case cause != nil:
		return cause
	case !upstream:
		return err
	}
	return protocol.Errorf(protocol.CodeConnectionFailure, "the node lost its connection to the upstream during %s", r.keyword)
}

// unreachable is the error of a client whose command needs an upstream that cannot be reached.
func (s *session) unreachable(ctx context.Context, what string, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	var refusal *protocol.Error
	if errors.As(err, &refusal) {
		return refusal
	}
	s.log.Warn("cannot reach the upstream for a client", zap.String("command", what), zap.Error(err))
	refusal = protocol.Errorf(protocol.CodeUnableToConnect, "the node cannot reach its upstream for %s", what)
	refusal.Hint = "The node's log says why."
	var server interface{ SQLState() string }
	if errors.As(err, &server) {
		refusal.Code = server.SQLState()
	}
	return refusal
}

// watch has cancel called when the client goes away. stop ends that; it may be called more than once, and must be before the
// client's messages are read again. What the client sends meanwhile is kept for later.
func (s *session) watch(cancel context.CancelCauseFunc) (stop func() error, err error) {
	if err := s.wire.skip(); err != nil {
		return nil, err
	}
	var stopped atomic.Bool
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if _, err := s.wire.in.Peek(1); err != nil && !stopped.Load() {
			cancel(closed(err))
		}
	}()
	return sync.OnceValue(func() error {
		stopped.Store(true)
		s.wire.interrupt()
		<-ended
		if err := s.wire.resume(); err != nil {
			return closed(err)
		}
		return nil
	}), nil
}

// abort ends the command because of cause. A client that is still there and canceled it gets the upstream's own answer; one whose
// session ends gets the message that is under way, so that it can be told.
func (r *relaying) abort(cause error) {
	var grace time.Duration
	var refusal *protocol.Error
	terminated := false
	switch {
	case errors.As(cause, &refusal) && refusal.Code == protocol.CodeQueryCanceled:
		grace = cancelGrace
	case refusal != nil:
		grace, terminated = lastWordTimeout, true
	}
	deadline := time.Now().Add(grace)
	r.mu.Lock()
	r.deadline, r.terminated = deadline, terminated
	r.gather(false)
	_ = r.up.SetReadDeadline(deadline) // a connection that is closed needs none
	r.mu.Unlock()
	_ = r.up.SetWriteDeadline(deadline)
	_ = r.session.wire.conn.SetWriteDeadline(deadline)
	ctx, cancel := context.WithTimeout(context.Background(), cancelGrace)
	defer cancel()
	if err := r.up.Cancel(ctx); err != nil {
		r.session.log.Warn("cannot cancel a command upstream", zap.String("upstream", r.up.Peer()), zap.Error(err))
	}
}

// Read reads what the upstream says, in large pieces while it comes in bulk. Whenever the upstream pauses, what was compressed so far is
// sent.
func (r *relaying) Read(p []byte) (int, error) {
	for {
		flushing := r.wrapper != nil && r.wrapper.Dirty()
		wait, err := r.arm(flushing)
		if err != nil {
			return 0, err
		}
		n, err := r.up.Read(p)
		if n > 0 {
			if r.bulk && wait != gatherAfter {
				r.resumeGathering()
			}
			return n, nil
		}
		var timeout net.Error
		if wait == 0 || !r.pausing() || !errors.As(err, &timeout) || !timeout.Timeout() {
			return 0, err
		}
		if wait == gatherAfter {
			r.stopGathering()
			continue
		}
		if err := r.wrapper.Flush(); err != nil {
			return 0, closed(err)
		}
	}
}

func (r *relaying) resumeGathering() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.deadline.IsZero() {
		r.gather(true)
	}
}

func (r *relaying) stopGathering() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gather(false)
}

// gather is called with mu held.
func (r *relaying) gather(on bool) {
	if r.gathering == on {
		return
	}
	r.gathering = on
	if on {
		r.up.Gather(gatherBytes)
	} else {
		r.up.Gather(1)
	}
}

// arm sets the deadline of the next read and returns how long it may wait; 0 if that ends with the command only.
func (r *relaying) arm(flushing bool) (wait time.Duration, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !r.deadline.IsZero():
		return 0, r.up.SetReadDeadline(r.deadline)
	case r.gathering:
		wait = gatherAfter
	case flushing:
		wait = flushAfter
	default:
		return 0, r.up.SetReadDeadline(time.Time{})
	}
	return wait, r.up.SetReadDeadline(time.Now().Add(wait))
}

// pausing reports whether the command still runs.
func (r *relaying) pausing() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.deadline.IsZero() || time.Now().Before(r.deadline)
}

// run sends the command and forwards the answer.
func (r *relaying) run(ctx context.Context, text string, stopWatching func() error) error {
	wire := r.session.wire
	if err := wire.flush(); err != nil { // notices
		return closed(err)
	}
	if err := wire.conn.SetWriteDeadline(time.Time{}); err != nil {
		return closed(err)
	}
	if err := r.up.SetWriteDeadline(time.Time{}); err != nil {
		return err
	}
	query := append(make([]byte, copyHeaderBytes), text...)
	query = append(query, 0)
	query[0] = 'Q'
	be.PutUint32(query[1:], uint32(len(query)-1))
	if _, err := r.up.Write(query); err != nil {
		return err
	}
	backup := r.keyword == keywordBackup
	if r.bulk = backup && !r.up.IsNode(); r.bulk {
		defer r.stopGathering() // the session's next command has this connection too
	}
	switch wrapped := backup && r.up.IsNode(); {
	case wrapped && r.session.link:
		return r.forward(ctx, r, stopWatching) // as it is, for the node at the end to unwrap
	case wrapped:
		return r.unwrap(ctx, stopWatching)
	case backup && r.session.link:
		return r.wrap(ctx, stopWatching)
	}
	return r.forward(ctx, r, stopWatching)
}

// wrap compresses the upstream's answer for a downstream node, ReadyForQuery included.
func (r *relaying) wrap(ctx context.Context, stopWatching func() error) (err error) {
	conn := r.session.wire.conn
	if _, err := conn.Write([]byte{'H', 0, 0, 0, 7, 0, 0, 0}); err != nil {
		return closed(err)
	}
	r.begun = true // that is for the node with the client to look at
	if r.wrapper, err = relay.NewWrapper(conn); err != nil {
		return err
	}
	err = r.forward(ctx, r, stopWatching)
	if err != nil {
		if errFlush := r.wrapper.Flush(); errFlush != nil { // what the client can have; the error that follows says what is missing
			return closed(errors.Join(err, errFlush))
		}
		return err
	}
	if err := r.wrapper.Close(); err != nil {
		return closed(err)
	}
	r.session.wire.out = append(r.session.wire.out, 'c', 0, 0, 0, 4)
	r.session.wire.out = protocol.AppendCommandComplete(r.session.wire.out, r.keyword)
	return nil
}

// unwrap gives a stock client what the server behind the upstream node said.
func (r *relaying) unwrap(ctx context.Context, stopWatching func() error) error {
	u, err := relay.NewUnwrapper(r)
	if err != nil {
		return err
	}
	defer u.Close()
	err = r.forward(ctx, u, stopWatching)
	var refused *relay.RefusedError
	if errors.As(err, &refused) && !r.cut {
		if err := r.send(relay.Piece{Kind: 'E', Bytes: refused.Message}); err != nil {
			return err
		}
		err = nil
	}
	if err == nil {
		err = u.Drain()
	}
	return err
}

// forward sends the client, or the wrapper, everything up to the upstream's ReadyForQuery.
func (r *relaying) forward(ctx context.Context, src io.Reader, stopWatching func() error) error {
	messages := relay.NewScanner(src, func(kind byte) bool {
		switch kind {
		case 'E', 'G', 'Z':
			return true
		case 'S': // the session reports its own settings; those that SQL changes are the server's
			return r.wrapper == nil && r.keyword != keywordSQL
		}
		return !r.begun && kind == 'D'
	})
	for {
		piece, err := messages.Next()
		if err != nil {
			return err
		}
		if r.over(piece) {
			return errOver
		}
		switch piece.Kind {
		case 'S':
			continue
		case 'D':
			r.begun = true
			r.reserve(ctx, piece)
		case 'G':
			if err := r.send(piece); err != nil {
				return err
			}
			if err := stopWatching(); err != nil {
				return err
			}
			if err := r.copyIn(ctx); err != nil {
				return err
			}
			continue
		case 'Z':
			if r.wrapper != nil {
				return r.send(piece)
			}
			r.session.wire.status = piece.Body()[0]
			return nil
		}
		r.cut = r.wrapper == nil
		if err := r.send(piece); err != nil {
			return err
		}
		r.cut = r.cut && !messages.Between()
	}
}

// over reports whether the piece is the answer to the cancel request of a session that ends.
func (r *relaying) over(piece relay.Piece) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.terminated && (piece.Kind == 'E' || piece.Kind == 'Z')
}

// reserve keeps the WAL that the backup needs before the client learns where that begins.
func (r *relaying) reserve(ctx context.Context, piece relay.Piece) {
	s := r.session
	start, err := relay.ParseBackupStart(piece.Body())
	if err == nil {
		s.log.Info("base backup started", zap.Int32("pid", s.pid), zap.String("upstream", r.up.Peer()),
			zap.Stringer("lsn", start.LSN), zap.Uint32("tli", uint32(start.Timeline)))
		err = s.server.options.Relay.Reserve(ctx, s.pid, start.Timeline, start.LSN)
	}
	if err != nil && ctx.Err() == nil {
		s.log.Warn("the node may lack WAL that a base backup needs", zap.Int32("pid", s.pid), zap.Error(err))
	}
}

// send forwards a piece of the answer. An error drops the session's temporary slots, as everywhere.
func (r *relaying) send(piece relay.Piece) error {
	var over error
	if piece.Kind == 'E' {
		r.session.server.slots.DropTemporary(r.session.pid)
		var e pgproto3.ErrorResponse
		if e.Decode(piece.Body()) == nil && e.SeverityUnlocalized == "FATAL" {
			over = closed(errOver) // as the session would be with that server
		}
	}
	var dst io.Writer = r.session.wire.conn
	if r.wrapper != nil {
		dst = r.wrapper
	}
	if _, err := dst.Write(piece.Bytes); err != nil {
		return closed(err)
	}
	return over
}

// copyIn sends the upstream what the client copies to it, to the end of the copy.
func (r *relaying) copyIn(ctx context.Context) error {
	wire := r.session.wire
	stop := after(ctx, wire.interrupt)
	err := wire.copyIn(r.up)
	stop()
	if errResume := wire.resume(); errResume != nil {
		return closed(errResume)
	}
	if err != nil && ctx.Err() != nil {
		return nil // the upstream was told, and its answer says the rest
	}
	return err
}
