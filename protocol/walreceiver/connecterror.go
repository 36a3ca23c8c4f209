package walreceiver

import (
	"errors"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// ConnectError says of every host of the conninfo why there is no connection to it: once for each cause, whatever the number
// of attempts with and without TLS.
type ConnectError struct {
	Hosts []HostError
	Err   error // of pgconn, with all attempts
}

// HostError is what attempts at one address ended in.
type HostError struct {
	Address string // host:port, also behind the name that has it; the path of a unix socket; or a name that has no address
	Causes  []string
}

func (e *ConnectError) Error() string {
	hosts := make([]string, len(e.Hosts))
	for i, h := range e.Hosts {
		hosts[i] = h.Address + ": " + strings.Join(h.Causes, ", ")
	}
	return "connect to upstream " + strings.Join(hosts, "; ")
}

func (e *ConnectError) Unwrap() error { return e.Err }

// refusedTLS is pgconn's text for a server without TLS, after which sslmode=prefer goes on without.
const refusedTLS = "server refused TLS connection"

// connectError makes a *ConnectError of those of pgconn, of which there is one for each host; another error is returned as it is.
func connectError(err error) error {
	c := &ConnectError{Err: err}
	for _, host := range leaves(err) {
		var failed *pgconn.ConnectError
		if !errors.As(host, &failed) {
			return err
		}
		for _, attempt := range leaves(failed.Unwrap()) {
			c.add(attempt)
		}
	}
	if len(c.Hosts) == 0 {
		return err
	}
	for i := range c.Hosts {
		if h := &c.Hosts[i]; len(h.Causes) > 1 {
			h.Causes = slices.DeleteFunc(h.Causes, func(cause string) bool { return cause == refusedTLS })
		}
	}
	return c
}

// leaves returns what errors.Join joined.
func leaves(err error) []error {
	for e := err; e != nil; e = errors.Unwrap(e) {
		if joined, ok := e.(interface{ Unwrap() []error }); ok {
			return joined.Unwrap()
		}
	}
	return []error{err}
}

func (e *ConnectError) add(attempt error) {
	address, cause := describe(attempt)
	at := slices.IndexFunc(e.Hosts, func(h HostError) bool { return h.Address == address })
	if at < 0 {
		at, e.Hosts = len(e.Hosts), append(e.Hosts, HostError{Address: address})
	}
	if h := &e.Hosts[at]; !slices.Contains(h.Causes, cause) {
		h.Causes = append(h.Causes, cause)
	}
}

// describe takes the address and the cause out of an attempt's error. pgconn writes "address (host): step: cause".
func describe(attempt error) (address, cause string) {
	var unknown *net.DNSError
	if errors.As(attempt, &unknown) {
		return unknown.Name, unknown.Err
	}
	address, rest, _ := strings.Cut(attempt.Error(), " (")
	if name, _, named := strings.Cut(rest, "):"); named && !strings.HasPrefix(address, name) {
		address = name + " (" + address + ")"
	}
	step := errors.Unwrap(attempt)
	if step == nil || errors.Unwrap(step) == nil {
		return "server", attempt.Error()
	}
	if pgconn.Timeout(attempt) {
		return address, "timeout"
	}
	return address, plainCause(errors.Unwrap(step)).Error()
}

// plainCause takes the addresses off an error of a socket: those of our own end differ from connection to connection.
func plainCause(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	var call *os.SyscallError
	if errors.As(err, &call) {
		err = call.Err
	}
	return err
}
