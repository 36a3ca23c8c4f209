package config

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"walproxy/protocol/walreceiver"
)

const redacted = "xxxxx"

// Secret is text that is never printed. string(s) is the text.
type Secret string

func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return redacted
}

// GoString keeps %#v from printing the text.
func (s Secret) GoString() string { return s.String() }

// MarshalText keeps encoders from printing the text.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Conninfo is a libpq connection string or URI. It prints as user@host:port,... only. string(c) is the text.
type Conninfo string

func (c Conninfo) String() string {
	if c == "" {
		return ""
	}
	config, err := pgconn.ParseConfig(string(c))
	if err != nil {
		return redacted
	}
	place := func(host string, port uint16) string {
		if strings.HasPrefix(host, "/") {
			return host + ":" + strconv.Itoa(int(port))
		}
		return net.JoinHostPort(host, strconv.Itoa(int(port)))
	}
	hosts := []string{place(config.Host, config.Port)}
	for _, f := range config.Fallbacks {
		// The same host occurs once with TLS and once without.
		if next := place(f.Host, f.Port); next != hosts[len(hosts)-1] {
			hosts = append(hosts, next)
		}
	}
	return config.User + "@" + strings.Join(hosts, ",")
}

// GoString keeps %#v from printing the text.
func (c Conninfo) GoString() string { return c.String() }

// MarshalText keeps encoders from printing the text.
func (c Conninfo) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// check reads the files that the text names. Its error shows no part of the text: where a string does not parse, nobody can
// tell which part of it is the password.
func (c Conninfo) check() error {
	if c == "" {
		return errors.New("is missing: want a libpq connection string or URI, as in host=primary.example user=replicator")
	}
	err := walreceiver.CheckConninfo(string(c))
	var file *fs.PathError
	var unreadable *pgconn.ParseConfigError
	switch {
	case errors.As(err, &file):
		return fmt.Errorf("names a file that cannot be read: %w", file)
	case errors.As(err, &unreadable):
		return errors.New("is not a libpq connection string or URI (not shown here, it may hold a password): want something like host=primary.example port=5432 user=replicator")
	}
	return err
}
