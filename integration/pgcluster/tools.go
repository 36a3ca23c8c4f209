package pgcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
)

// toolFor returns the path of a client tool that speaks with this cluster's server: its own, or else that of the newest
// version, which must not be older than the server.
func (c *Cluster) toolFor(name string) (string, error) {
	if path, err := c.Install.Tool(name); err == nil {
		return path, nil
	}
	path, major, err := FindTool(name)
	if err != nil {
		return "", err
	}
	if major < c.Major {
		return "", fmt.Errorf("%s %d refuses a server of version %d, and of that version it is %w", name, major, c.Major, ErrMissing)
	}
	return path, nil
}

// Pgbench runs pgbench against the server, over its unix socket, and returns what it prints. For example: "-i", "-s", "1"
// or "-c", "4", "-T", "5". pgbench of any version works with any server.
func (c *Cluster) Pgbench(ctx context.Context, args ...string) ([]byte, error) {
	path, _, err := FindTool("pgbench")
	if err != nil {
		return nil, err
	}
	base := []string{"-h", c.SocketDir, "-p", strconv.Itoa(c.Port), "-U", User}
	cmd := exec.CommandContext(ctx, path, append(append(base, args...), Database)...)
	cmd.Env = cleanEnv()
	return output(cmd)
}

// Receivewal is a running pg_receivewal.
type Receivewal struct {
	*Process
	Dir string // where it writes; one segment more, ending in .partial, is being written
}

// PgReceivewal starts pg_receivewal, which writes what it streams over conninfo into dir (made if missing). args are
// more arguments, for example "--slot=NAME" or "--synchronous". pg_receivewal refuses a server that is newer than itself;
// that and every other failure shows as its early end.
//
// The caller ends it by Stop or Kill. It reports progress (--verbose) to the file dir + ".log".
func PgReceivewal(dir, conninfo string, args ...string) (*Receivewal, error) {
	path, _, err := FindTool("pg_receivewal")
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	base := []string{"--directory", dir, "--dbname", conninfo, "--verbose", "--no-password"}
	cmd := exec.Command(path, append(base, args...)...)
	cmd.Env = cleanEnv()
	process, err := StartProcess(cmd, filepath.Clean(dir)+".log", syscall.SIGINT)
	if err != nil {
		return nil, err
	}
	return &Receivewal{Process: process, Dir: dir}, nil
}

// Stop ends it cleanly (SIGINT) and waits; what it has received by then is on disk. The error holds its messages.
func (r *Receivewal) Stop(ctx context.Context) error {
	err := r.Process.Stop(ctx, syscall.SIGINT)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return fmt.Errorf("pg_receivewal: %w: %s", err, r.Log(4<<10))
	}
	return err
}
