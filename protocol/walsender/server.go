package walsender

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"walproxy/protocol"
)

// Server serves any number of listeners. Make one with New.
type Server struct {
	backend   Backend
	slots     Slots
	consumers Consumers
	options   Options
	log       *zap.Logger
	connected atomic.Int64 // connections of all listeners
	access    atomic.Pointer[Access]
	refusals  refusals
	throttle  throttle
	mockKey   []byte // of the salts that unknown users are shown

	mu        sync.Mutex
	sessions  map[int32]*session // those that have a pid
	listeners map[net.Listener]struct{}
}

// New returns a server of the WAL behind backend. A nil logger logs nothing.
func New(backend Backend, slots Slots, consumers Consumers, options Options, logger *zap.Logger) (*Server, error) {
	if err := options.Validate(); err != nil {
		return nil, fmt.Errorf("walsender: %w", err)
	}
	if logger == nil {
		logger = zap.NewNop()
	}
	s := &Server{
		backend: backend, slots: slots, consumers: consumers, options: options.withDefaults(), log: logger.Named("walsender"),
		sessions: map[int32]*session{}, listeners: map[net.Listener]struct{}{}, mockKey: make([]byte, sha256.Size),
	}
	rand.Read(s.mockKey)
	s.access.Store(&s.options.Access)
	return s, nil
}

// Serve accepts clients of l, which it closes, until ctx ends. Then it shuts down like a PostgreSQL server: idle sessions
// are ended (57P01), streams are sent what there is, and end when the client has confirmed it or DrainTimeout is over.
// It returns nil when the last session of l has ended, an error if l fails or may not be listened on.
//
// Serve may run for several listeners at once.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	if err := s.listen(l); err != nil {
		return errors.Join(err, l.Close())
	}
	defer s.unlisten(l)
	var sessions sync.WaitGroup
	defer sessions.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // a listener that fails takes its sessions along
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	_, unix := l.Addr().(*net.UnixAddr)
	for {
		conn, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = conn.Close()
			}
			return nil
		case err != nil && isPassing(err):
			s.log.Warn("cannot accept a connection", zap.Stringer("address", l.Addr()), zap.Error(err))
			wait(ctx, acceptPause)
			continue
		case err != nil:
			return fmt.Errorf("accept on %s: %w", l.Addr(), err)
		}
		if s.connected.Add(1) > 2*int64(s.options.MaxConnections) {
			s.connected.Add(-1)
			_ = conn.Close() // not even time to say why
			continue
		}
		sessions.Go(func() {
			defer s.connected.Add(-1)
			newSession(s, conn, unix).run(ctx)
		})
	}
}

// acceptPause is how long a listener rests when the process is out of descriptors.
const acceptPause = 100 * time.Millisecond

// isPassing reports whether Accept may succeed later. (net.Error.Temporary is deprecated, and still what tells it.)
func isPassing(err error) bool {
	var temporary interface{ Temporary() bool }
	return errors.As(err, &temporary) && temporary.Temporary()
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// Terminate ends the session with this pid as pg_terminate_backend does (57P01). It reports whether there is one, and
// does not wait for the end.
func (s *Server) Terminate(pid int32) bool {
	if session := s.session(pid); session != nil {
		session.kill(errTerminated())
		return true
	}
	return false
}

func errTerminated() *protocol.Error {
	return protocol.Fatalf(protocol.CodeAdminShutdown, "terminating connection due to administrator command")
}

// cancel does what a cancel request asks for if the key is right.
func (s *Server) cancel(request *cancelRequest) {
	session := s.session(request.pid)
	if session != nil && subtle.ConstantTimeCompare(session.key, request.key) == 1 {
		session.cancelCommand(protocol.Errorf(protocol.CodeQueryCanceled, "canceling statement due to user request"))
	}
}

func (s *Server) session(pid int32) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions[pid]
}

// lastPID is the pid given out last by any server of this process: clients name temporary slots by it.
var lastPID atomic.Int32

// register gives the session a pid that no other session has. It refuses a user who has too many sessions.
//
// Source: PostgreSQL src/backend/utils/init/miscinit.c, InitializeSessionUserId (13-18).
func (s *Server) register(session *session) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if limit := s.options.MaxConnectionsPerUser; limit > 0 {
		count := 0
		for _, other := range s.sessions {
			if other.user == session.user {
				count++
			}
		}
		if count >= limit {
			return protocol.Fatalf(protocol.CodeTooManyConnections, "too many connections for role \"%s\"", session.user)
		}
	}
	for {
		pid := lastPID.Add(1) & 0x7fffffff
		if _, taken := s.sessions[pid]; pid != 0 && !taken {
			session.pid = pid
			s.sessions[pid] = session
			return nil
		}
	}
}

func (s *Server) unregister(pid int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, pid)
}
