package walreceiver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgpassfile"
	"github.com/jackc/pgx/v5/pgconn"

	"walproxy/protocol"
	"walproxy/protocol/socket"
)

// hosts returns what to try, one after the other: a configuration for each host, with its own password and its own addresses, which
// pgconn does not tell apart. A host that is tried with TLS and without is one configuration.
func (s *session) hosts() (hosts []*pgconn.Config) {
	for begin, end := 0, 0; begin <= len(s.config.Fallbacks); begin = end {
		host := s.config.Copy() // whose TLS settings are the keys to its client certificates
		all := append([]*pgconn.FallbackConfig{{Host: host.Host, Port: host.Port, TLSConfig: host.TLSConfig}}, host.Fallbacks...)
		first := all[begin]
		for end = begin + 1; end < len(all) && all[end].Host == first.Host && all[end].Port == first.Port && (all[end].TLSConfig == nil) != (first.TLSConfig == nil); {
			end++
		}
		host.Host, host.Port, host.TLSConfig, host.Fallbacks = first.Host, first.Port, first.TLSConfig, all[begin+1:end]
		if host.Password == "" && s.passwords != nil {
			host.Password = s.passwordOf(host)
		}
		if at := len(hosts); at < len(s.addresses) {
			host.LookupFunc = func(context.Context, string) ([]string, error) { return s.addresses[at : at+1], nil }
		}
		hosts = append(hosts, host)
	}
	if s.shuffle {
		rand.Shuffle(len(hosts), func(i, j int) { hosts[i], hosts[j] = hosts[j], hosts[i] })
	}
	return hosts
}

// passwordOf looks a host up in the password file: a unix socket by its directory, or as "localhost".
//
// Source: PostgreSQL src/interfaces/libpq/fe-connect.c, passwordFromFile (13-18).
func (s *session) passwordOf(host *pgconn.Config) string {
	find := func(name string) string {
		return s.passwords.FindPassword(name, strconv.Itoa(int(host.Port)), host.Database, host.User)
	}
	password := find(host.Host)
	if network, _ := pgconn.NetworkAddress(host.Host, host.Port); password == "" && network == "unix" {
		return find("localhost")
	}
	return password
}

// readPassfile takes the file for hosts without a password. One that others can read is not used, as libpq does not use it.
func (s *session) readPassfile(path string) {
	if s.config.Password != "" {
		return
	}
	passwords, err := pgpassfile.ReadPassfile(path)
	if err != nil {
		return // libpq says nothing either
	}
	s.passwords = passwords
	if loose := loosePassfile(path); loose != nil {
		if slices.ContainsFunc(s.hosts(), func(c *pgconn.Config) bool { return c.Password != "" }) {
			s.loose = loose
		}
		s.passwords = nil
	}
}

// setAddresses has the hosts reached at the addresses of hostaddr, one for each, instead of those that their names have.
//
// Source: PostgreSQL src/interfaces/libpq/fe-connect.c, pqConnectOptions2 (13-18).
func (s *session) setAddresses(text string) error {
	if text == "" {
		return nil
	}
	addresses, hosts := strings.Split(text, ","), s.hosts()
	if len(hosts) != len(addresses) {
		return fmt.Errorf("hostaddr has %d addresses for %d hosts", len(addresses), len(hosts))
	}
	for i, address := range addresses {
		if _, err := netip.ParseAddr(address); err != nil {
			return fmt.Errorf("hostaddr %q is not an address", address)
		}
		if strings.HasPrefix(hosts[i].Host, "/") {
			return errors.New("hostaddr needs host, the name, too")
		}
	}
	s.addresses = addresses
	return nil
}

// setBalance reads load_balance_hosts: with random, each attempt has the hosts in another order, and the addresses of each.
func (s *session) setBalance(text string) error {
	switch text {
	case "", "disable":
	case "random":
		s.shuffle = true
		lookup := s.config.LookupFunc
		s.config.LookupFunc = func(ctx context.Context, host string) ([]string, error) {
			found, err := lookup(ctx, host)
			found = slices.Clone(found)
			rand.Shuffle(len(found), func(i, j int) { found[i], found[j] = found[j], found[i] })
			return found, err
		}
	default:
		return fmt.Errorf("load_balance_hosts=%q: want disable or random", text)
	}
	return nil
}

// isFinal reports whether a refusal stands for all hosts, as for libpq one of the password does.
func isFinal(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && slices.Contains([]string{protocol.CodeInvalidPassword, protocol.CodeUndefinedDatabase, protocol.CodeInsufficientPrivilege}, refused.Code)
}

// checkPeer refuses a unix socket whose server is of another user than requirepeer.
//
// Source: PostgreSQL src/interfaces/libpq/fe-connect.c, PQconnectPoll (13-18).
func (s *session) checkPeer(conn net.Conn) error {
	if _, unix := conn.(*net.UnixConn); s.requirePeer == "" || !unix {
		return nil
	}
	peer, err := socket.Peer(conn)
	if err != nil {
		return err
	}
	if peer != s.requirePeer {
		return fmt.Errorf("requirepeer is %q, but the server's user is %q", s.requirePeer, peer)
	}
	return nil
}
