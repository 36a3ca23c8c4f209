package walsender

import (
	"fmt"
	"net"
	"sync"
	"time"

	"go.uber.org/zap"
)

// access says who may connect. Immutable; a session looks at it once, when it authenticates.
type access struct {
	users      *Users
	trustLocal bool
}

// SetAccess replaces Options.Users and Options.TrustLocal for the sessions that begin from now on. Those that are logged in stay.
// It is refused, and nothing changes, where an address is listened on that needs authentication and users is nil: the error is
// of class ErrNoAuthentication.
func (s *Server) SetAccess(users *Users, trustLocal bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.listeners {
		if err := checkAddress(users, l.Addr()); err != nil {
			return err
		}
	}
	s.access.Store(&access{users, trustLocal})
	return nil
}

// listen enters a listener if its address may be listened on.
func (s *Server) listen(l net.Listener) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := checkAddress(s.access.Load().users, l.Addr()); err != nil {
		return err
	}
	s.listeners[l] = struct{}{}
	return nil
}

func (s *Server) unlisten(l net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.listeners, l)
}

func checkAddress(users *Users, address net.Addr) error {
	if users != nil || isLocal(address) {
		return nil
	}
	return fmt.Errorf("listen on %s: %w: without authentication only loopback addresses and unix sockets are possible",
		address, ErrNoAuthentication)
}

// maxRefusalsLogged bounds the refused logins that are logged in a second: strangers can make as many as they like.
const maxRefusalsLogged = 5

// refusals logs refused logins. Safe for concurrent use.
type refusals struct {
	mu       sync.Mutex
	second   time.Time // when the second began that logged counts in
	logged   int
	unlogged int // since the last one that was logged
}

// log names the user, and whoever log names, of a login that was refused. err must show no secret.
func (r *refusals) log(log *zap.Logger, user string, err error, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.second) >= time.Second {
		r.second, r.logged = now, 0
	}
	if r.logged >= maxRefusalsLogged {
		r.unlogged++
		return
	}
	r.logged++
	log.Warn("login refused", zap.String("user", user), zap.Int("not_logged_before", r.unlogged), zap.Error(err))
	r.unlogged = 0
}
