package walsender

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
)

// Access says who may connect and how connections are encrypted. Immutable once used; a session looks at it once, when it
// begins. The zero value trusts everybody on this machine.
type Access struct {
	// Rules are looked at in order; the first one that fits a client counts, and who fits none is refused. Empty: everybody on
	// loopback addresses and unix sockets is trusted, and no other addresses can be listened on.
	Rules []Rule
	// Passwords knows the users. Nil: nobody has a password.
	Passwords Passwords
	// Mappings are all maps that rules name.
	Mappings []Mapping
	// Replicators are the users who may read WAL; nil means everybody who may log in.
	Replicators []string
	// MaxFailures is how often an address may fail to prove who it is before its answers are delayed; 0 means no delay.
	MaxFailures int
	// TLS encrypts connections that ask for it. Nil: there is none.
	TLS *TLS
	// Plaintext allows connections from other machines without TLS.
	Plaintext bool
}

var (
	// ErrNoAuthentication is returned for an address that others than this machine can reach while there are no rules.
	ErrNoAuthentication = errors.New("no authentication configured")
	// ErrPlaintext is returned for an address that others can reach while there is no TLS and plaintext is not allowed.
	ErrPlaintext = errors.New("no TLS configured")
)

// Check reports every problem of listening on these addresses, and of rules that nothing can fit.
func (a *Access) Check(addresses ...net.Addr) error {
	var problems []error
	for _, address := range addresses {
		problems = append(problems, a.checkAddress(address))
	}
	for i, r := range a.Rules {
		switch {
		case a.TLS == nil && r.Type == ConnHostSSL:
			problems = append(problems, fmt.Errorf("rule %d: hostssl without TLS", i+1))
		case r.ClientCert != "" && !a.TLS.clients:
			problems = append(problems, fmt.Errorf("rule %d: certificates of clients cannot be verified without one of those who sign", i+1))
		}
	}
	return errors.Join(problems...)
}

func (a *Access) checkAddress(address net.Addr) error {
	switch {
	case isLocal(address):
		return nil
	case len(a.Rules) == 0:
		return fmt.Errorf("listen on %s: %w: without authentication only loopback addresses and unix sockets are possible",
			address, ErrNoAuthentication)
	case a.TLS == nil && !a.Plaintext:
		return fmt.Errorf("listen on %s: %w, and plaintext is not allowed: only loopback addresses and unix sockets are possible",
			address, ErrPlaintext)
	}
	return nil
}

// match returns the rule for a caller and its number; nil if there is none.
func (a *Access) match(c caller) (*Rule, int) {
	rules := a.Rules
	if len(rules) == 0 {
		rules = trustedHere
	}
	for i := range rules {
		if rules[i].match(c) {
			return &rules[i], i + 1
		}
	}
	return nil, 0
}

// mayReplicate reports whether the user may read WAL, as the REPLICATION attribute of a role says.
func (a *Access) mayReplicate(user string, role Role) bool {
	return !role.NoReplication && (a.Replicators == nil || slices.Contains(a.Replicators, user))
}

// SetAccess replaces Options.Access for the sessions that begin from now on. Those that are there stay. It is refused, and
// nothing changes, where Access.Check has an error.
func (s *Server) SetAccess(access Access) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var addresses []net.Addr
	for l := range s.listeners {
		addresses = append(addresses, l.Addr())
	}
	if err := access.Check(addresses...); err != nil {
		return err
	}
	s.access.Store(&access)
	return nil
}

// listen enters a listener if its address may be listened on.
func (s *Server) listen(l net.Listener) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.access.Load().checkAddress(l.Addr()); err != nil {
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

// maxRefusalsLogged bounds the refused logins that are logged in a second: strangers can make as many as they like.
const maxRefusalsLogged = 5

// refusals logs refused logins. Safe for concurrent use.
type refusals struct {
	mu       sync.Mutex
	second   time.Time // when the second began that logged counts in
	logged   int
	unlogged int // since the last one that was logged
}

// log names the user, the number of the rule (0: none fits), and whoever log names, of a login that was refused. err must show
// no secret.
func (r *refusals) log(log *zap.Logger, user string, rule int, err error, now time.Time) {
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
	log.Warn("login refused", zap.String("user", user), zap.Int("rule", rule), zap.Int("not_logged_before", r.unlogged), zap.Error(err))
	r.unlogged = 0
}

// addressOf returns the address of the other end; invalid for what is no IP.
func addressOf(address net.Addr) netip.Addr {
	if tcp, ok := address.(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}
