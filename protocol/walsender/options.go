package walsender

import (
	"errors"
	"fmt"
	"net"
	"time"
)

// Defaults of Options, as PostgreSQL has them.
const (
	DefaultMaxConnections        = 100
	DefaultAuthenticationTimeout = time.Minute
	DefaultWALSenderTimeout      = time.Minute
	DefaultDrainTimeout          = 10 * time.Second
	DefaultProbeTimeout          = 3 * time.Second // not PostgreSQL's: it does not probe
)

// Options configure a Server. The zero value trusts everybody on loopback addresses and unix sockets.
type Options struct {
	// Access says who may connect; SetAccess changes it later.
	Access Access
	// Link offers frames to downstream nodes that ask for them.
	Link bool
	// Relay executes what a node cannot answer itself, BASE_BACKUP above all. Nil refuses that (0A000).
	Relay Relay
	// SQL has Relay open SQL sessions for clients that want one. False refuses them (0A000), as it does SQL commands in
	// replication connections with a database.
	SQL bool
	// MaxConnections bounds sessions of all listeners together; more are refused (53300). 0 means the default.
	MaxConnections int
	// MaxConnectionsPerUser bounds the sessions of a user; more are refused (53300). 0 means no bound.
	MaxConnectionsPerUser int
	// AuthenticationTimeout bounds the time from the connection to the end of authentication. 0 means the default.
	AuthenticationTimeout time.Duration
	// WALSenderTimeout ends a stream whose client is silent for so long; clients can set their own by wal_sender_timeout.
	// 0 means the default, a negative value none.
	WALSenderTimeout time.Duration
	// DrainTimeout bounds how long a shutdown waits for consumers to confirm what they were sent. 0 means the default.
	DrainTimeout time.Duration
	// ProbeTimeout is how long a consumer that holds a slot may take to answer when another session wants the slot; one that
	// does not answer is taken for half-open and ended. 0 means the default, a negative value never probes, as PostgreSQL.
	ProbeTimeout time.Duration
}

// Validate reports every problem of the options together, for a server that is to listen on these addresses.
func (o Options) Validate(addresses ...net.Addr) error {
	var problems []error
	problems = append(problems, o.Access.Check(addresses...))
	if o.MaxConnections < 0 || o.MaxConnectionsPerUser < 0 {
		problems = append(problems, fmt.Errorf("maximum of %d connections, of %d for each user", o.MaxConnections, o.MaxConnectionsPerUser))
	}
	if o.AuthenticationTimeout < 0 || o.DrainTimeout < 0 {
		problems = append(problems, fmt.Errorf("negative timeout: authentication %s, drain %s", o.AuthenticationTimeout, o.DrainTimeout))
	}
	return errors.Join(problems...)
}

// isLocal reports whether only this machine can reach a listener at address. What is not known is not local.
func isLocal(address net.Addr) bool {
	switch a := address.(type) {
	case *net.UnixAddr:
		return true
	case *net.TCPAddr:
		return a.IP.IsLoopback()
	}
	return false
}

func (o Options) withDefaults() Options {
	if o.MaxConnections == 0 {
		o.MaxConnections = DefaultMaxConnections
	}
	if o.AuthenticationTimeout == 0 {
		o.AuthenticationTimeout = DefaultAuthenticationTimeout
	}
	if o.DrainTimeout == 0 {
		o.DrainTimeout = DefaultDrainTimeout
	}
	if o.ProbeTimeout == 0 {
		o.ProbeTimeout = DefaultProbeTimeout
	}
	if o.WALSenderTimeout == 0 {
		o.WALSenderTimeout = DefaultWALSenderTimeout
	}
	o.WALSenderTimeout = max(0, o.WALSenderTimeout)
	return o
}
