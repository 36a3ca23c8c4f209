// Package s3server runs a real S3 server on this machine, for tests and benchmarks: versitygw, which keeps objects in a
// directory. integration/fetch-s3server.sh builds it.
package s3server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"walproxy/integration/pgcluster"
)

// Region is the region that the server says it is in.
const Region = "us-east-1"

// Bucket is the bucket that every server has.
const Bucket = "wal"

// ErrMissing means that the server was not built yet.
var ErrMissing = errors.New("no S3 server: build it with integration/fetch-s3server.sh")

// Server is one running S3 server with an empty bucket. Methods are safe for concurrent use, but one at a time of Start, Stop.
type Server struct {
	AccessKey, SecretKey string
	dir                  string
	program              string
	port                 int
	process              *pgcluster.Process
	closing              sync.Once
}

// New starts a server. The caller ends it with Close.
func New(ctx context.Context) (*Server, error) {
	program, err := find(ctx)
	if err != nil {
		return nil, err
	}
	port, err := pgcluster.FreePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "walproxy-s3-")
	if err != nil {
		return nil, err
	}
	s := &Server{AccessKey: "walproxytest", SecretKey: rand.Text(), dir: dir, program: program, port: port}
	for _, name := range []string{filepath.Join("data", Bucket), "sidecar"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	if err := s.Start(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// find returns the program.
func find(ctx context.Context) (string, error) {
	script, err := script()
	if err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, script, "--path").Output()
	if err != nil {
		return "", fmt.Errorf("%s --path: %w", script, err)
	}
	program := string(out[:max(len(out)-1, 0)])
	if _, err := os.Stat(program); err != nil {
		return "", ErrMissing
	}
	return program, nil
}

// Start starts a server that was stopped and waits until it answers.
func (s *Server) Start(ctx context.Context) error {
	cmd := exec.Command(s.program, "--port", s.Address(), "--access", s.AccessKey, "--secret", s.SecretKey, "--region", Region,
		"--quiet", "posix", "--sidecar", filepath.Join(s.dir, "sidecar"), filepath.Join(s.dir, "data"))
	cmd.Dir = s.dir
	process, err := pgcluster.StartProcess(cmd, filepath.Join(s.dir, "log"), syscall.SIGKILL)
	if err != nil {
		return err
	}
	s.process = process
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.Address())
		if err == nil {
			return conn.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("start the S3 server: %w: %s", ctx.Err(), s.Log())
		case <-process.Exited():
			return fmt.Errorf("the S3 server ended: %s", s.Log())
		case <-ticker.C:
		}
	}
}

// Stop kills the server; what it has stored stays.
func (s *Server) Stop() { s.process.Kill() }

// Close kills the server and removes what it has stored. It is idempotent.
func (s *Server) Close() (err error) {
	s.closing.Do(func() {
		if s.process != nil {
			s.process.Kill()
		}
		err = os.RemoveAll(s.dir)
	})
	return err
}

// Address returns host:port.
func (s *Server) Address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Endpoint returns the URL of the server.
func (s *Server) Endpoint() string { return "http://" + s.Address() }

// Path returns where an object's content lies on disk, for tests that damage it.
func (s *Server) Path(key string) string {
	return filepath.Join(s.dir, "data", Bucket, filepath.FromSlash(key))
}

// URL returns what --store takes for a prefix of the bucket.
func (s *Server) URL(prefix string) string {
	return fmt.Sprintf("s3://%s/%s?endpoint=%s&region=%s", Bucket, prefix, s.Endpoint(), Region)
}

// Env returns the variables that let a process use the server.
func (s *Server) Env() []string {
	return []string{"AWS_ACCESS_KEY_ID=" + s.AccessKey, "AWS_SECRET_ACCESS_KEY=" + s.SecretKey}
}

// Log returns the end of what the server wrote.
func (s *Server) Log() string { return s.process.Log(4 << 10) }
