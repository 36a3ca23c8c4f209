// Package pgcluster runs throwaway PostgreSQL servers of the major versions 13 to 18, and the client tools beside them,
// for integration tests, benchmarks and the demo. Linux only.
//
// A Cluster owns one directory: data directory, unix socket and server log. Servers listen on 127.0.0.1 and on the socket,
// trust everybody, and end with the process that started them. As root, servers run as the user postgres (or nobody).
// Everything is waited for by asking again until the context ends; nothing sleeps for a fixed time.
package pgcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// User is the superuser of every cluster, and Database the database that queries go to.
const (
	User     = "postgres"
	Database = "postgres"
)

// ErrRunning is returned where a cluster has to be stopped, ErrStopped where it has to run.
var (
	ErrRunning = errors.New("server is running")
	ErrStopped = errors.New("server is not running")
)

// Cluster is one PostgreSQL server. Its exported fields do not change after Create.
//
// Methods that query are safe for concurrent use; those that change the state (Start, Stop, Kill9, Restart, Clone,
// MakeStandby, Configure, Close) are not.
type Cluster struct {
	Major     int
	Install   Install // its binaries
	Options   Options // as given to Create, with the defaults filled in
	Dir       string  // everything of the cluster; removed by Close
	DataDir   string  // PGDATA
	SocketDir string  // of the unix socket
	Port      int

	server *Process // nil before the first Start
}

// Create initializes a cluster and leaves it stopped. ctx bounds only the call itself.
// Errors are of class ErrMissing if there are no binaries of that major version.
func Create(ctx context.Context, options Options) (*Cluster, error) {
	c, err := prepare(options)
	if err != nil {
		return nil, fmt.Errorf("create cluster: %w", err)
	}
	if err := c.initdb(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("create cluster: %w", err), c.Close())
	}
	return c, nil
}

// prepare makes the directory of a cluster, without its data directory.
func prepare(options Options) (*Cluster, error) {
	options.applyDefaults()
	if err := options.validate(); err != nil {
		return nil, err
	}
	install, err := Find(options.Major)
	if err != nil {
		return nil, err
	}
	if options.Port == 0 {
		if options.Port, err = FreePort(); err != nil {
			return nil, err
		}
	}
	if options.Dir == "" {
		options.Dir, err = TempDir("pgcluster-")
	} else if err = os.Mkdir(options.Dir, 0o700); err == nil {
		err = own(options.Dir)
	}
	if err != nil {
		return nil, err
	}
	c := &Cluster{Major: install.Major, Install: install, Options: options, Dir: options.Dir, Port: options.Port}
	c.DataDir = filepath.Join(c.Dir, "data")
	c.SocketDir = c.Dir
	if limit := 107; len(c.socketPath()) > limit { // sun_path of sockaddr_un, see unix(7)
		return nil, errors.Join(fmt.Errorf("path of the unix socket %s exceeds %d bytes", c.socketPath(), limit), c.Close())
	}
	return c, nil
}

func (c *Cluster) initdb(ctx context.Context) error {
	path, err := c.Install.Tool("initdb")
	if err != nil {
		return err
	}
	if templates := c.Options.Templates; templates != nil {
		err = templates.copyTo(ctx, c, path)
	} else {
		_, err = RunAs(ctx, path, c.Options.initdbArgs(c.DataDir)...)
	}
	if err != nil {
		return err
	}
	return c.Configure(c.Options.conf(c.Port, c.SocketDir))
}

// Configure appends lines to postgresql.conf, where the last line for a setting wins. It takes effect at the next start,
// or, for settings that allow it, by Reload.
func (c *Cluster) Configure(lines ...string) error {
	return c.appendFile("postgresql.conf", lines)
}

// appendFile appends lines to a file of the data directory that exists already, so that its owner stays.
func (c *Cluster) appendFile(name string, lines []string) error {
	file, err := os.OpenFile(filepath.Join(c.DataDir, name), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	for _, line := range lines {
		if _, err = fmt.Fprintln(file, line); err != nil {
			break
		}
	}
	return errors.Join(err, file.Close())
}

// WALDir returns the directory of the WAL segments.
func (c *Cluster) WALDir() string { return filepath.Join(c.DataDir, "pg_wal") }

// Log returns the end of the server log, at most 16 KiB.
func (c *Cluster) Log() string { return tail(c.logPath(), 16<<10) }

func (c *Cluster) logPath() string { return filepath.Join(c.Dir, "server.log") }

func (c *Cluster) socketPath() string {
	return filepath.Join(c.SocketDir, fmt.Sprintf(".s.PGSQL.%d", c.Port))
}

// Close kills the server if it runs and removes the cluster's directory. Calling it again does nothing.
func (c *Cluster) Close() error {
	if c.server != nil {
		if err := c.Kill9(); err != nil {
			return err
		}
	}
	err := c.removeMemory()
	c.Options.Templates.keep(c.DataDir)
	return errors.Join(err, os.RemoveAll(c.Dir))
}

// WriteFile writes a file of the data directory, mode 0600, for the server to read at its next start or reload.
func (c *Cluster) WriteFile(name string, content []byte) error {
	path := filepath.Join(c.DataDir, name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return err
	}
	return own(path)
}
