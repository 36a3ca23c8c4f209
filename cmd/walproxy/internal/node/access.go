package node

import (
	"context"
	"sync"

	"walproxy/cmd/walproxy/internal/config"
	"walproxy/protocol/walreceiver"
	"walproxy/protocol/walsender"
	"walproxy/protocol/walsender/authquery"
)

// lookup keeps what asks for users as long as the configuration of that does not change: what it remembers lets consumers
// connect while the server cannot be asked. Safe for concurrent use.
type lookup struct {
	mu      sync.Mutex
	options authquery.Options
	asking  *authquery.Lookup // nil without
}

// with returns what asks by these options.
func (l *lookup) with(o authquery.Options) *authquery.Lookup {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asking == nil || l.options != o {
		l.options, l.asking = o, authquery.New(o, walreceiver.Connect)
	}
	return l.asking
}

// passwords are users that the configuration knows, and others that are asked for.
type passwords struct {
	known  walsender.Passwords // may be nil
	asking *authquery.Lookup
}

// Lookup implements walsender.Passwords.
func (p *passwords) Lookup(ctx context.Context, user string) (walsender.Role, bool, error) {
	if p.known != nil {
		if role, known, err := p.known.Lookup(ctx, user); known || err != nil {
			return role, known, err
		}
	}
	return p.asking.Lookup(ctx, user)
}

// access reads what l names.
func (n *Node) access(l config.Listen) (walsender.Access, error) {
	access, err := l.Access()
	if err != nil || l.Auth.Query.Conninfo == "" {
		return access, err
	}
	access.Passwords = &passwords{access.Passwords, n.lookup.with(l.Auth.Query.Options())}
	return access, nil
}

// SetAccess lets those log in from now on whom l names, and encrypts as it says; who is logged in stays. On an error nothing
// changes. Safe for concurrent use.
func (n *Node) SetAccess(l config.Listen) error {
	access, err := n.access(l)
	if err != nil {
		return err
	}
	return n.server.SetAccess(access)
}
