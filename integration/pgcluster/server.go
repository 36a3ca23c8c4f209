package pgcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// StopMode is how a server is asked to stop.
//
// Source: PostgreSQL src/backend/postmaster/postmaster.c, the signal handlers of the postmaster (13-18).
type StopMode syscall.Signal

const (
	Smart     = StopMode(syscall.SIGTERM) // waits until the clients have gone
	Fast      = StopMode(syscall.SIGINT)  // ends the sessions, writes a checkpoint, waits for walsenders to catch up
	Immediate = StopMode(syscall.SIGQUIT) // ends without a checkpoint; the next start recovers
)

// Start starts the server and returns when it answers queries, a standby when it is consistent.
// If it cannot start, or ctx ends first, it is killed, and the error holds the end of its log.
func (c *Cluster) Start(ctx context.Context) error {
	if c.Running() {
		return fmt.Errorf("start server: %w", ErrRunning)
	}
	path, err := c.Install.Tool("postgres")
	if err != nil {
		return err
	}
	cmd, err := Command(context.WithoutCancel(ctx), path, "-D", c.DataDir)
	if err != nil {
		return err
	}
	// An immediate shutdown, because a postmaster that is killed may leave sessions and shared memory behind.
	if c.server, err = StartProcess(cmd, c.logPath(), syscall.SIGQUIT); err != nil {
		return err
	}
	if err := c.WaitReady(ctx); err != nil {
		return errors.Join(fmt.Errorf("start server: %w", err), c.Kill9())
	}
	return nil
}

// Running tells whether the postmaster runs.
func (c *Cluster) Running() bool { return c.server != nil && c.server.Running() }

// PID returns the postmaster's process id, 0 before the first start.
func (c *Cluster) PID() int {
	if c.server == nil {
		return 0
	}
	return c.server.PID()
}

// WaitReady returns when the server answers a query. The error holds the end of the server's log.
func (c *Cluster) WaitReady(ctx context.Context) error {
	var last error
	err := Until(ctx, func() (bool, error) {
		if !c.Running() {
			return false, ErrStopped
		}
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		last = c.Exec(attempt, "SELECT 1")
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait for PostgreSQL %d: %w (last answer: %v)\n%s", c.Major, err, last, c.Log())
	}
	return nil
}

// Stop asks the server to stop and returns when all its processes are gone.
func (c *Cluster) Stop(ctx context.Context, mode StopMode) error {
	if !c.Running() {
		return fmt.Errorf("stop server: %w", ErrStopped)
	}
	if err := c.server.Stop(ctx, syscall.Signal(mode)); err != nil && c.Running() {
		return fmt.Errorf("stop server: %w\n%s", err, c.Log())
	}
	err := Until(ctx, func() (bool, error) {
		left, err := c.processes()
		return len(left) == 0, err
	})
	if err != nil {
		return fmt.Errorf("stop server: %w", err)
	}
	return nil
}

// Restart stops the server and starts it again.
func (c *Cluster) Restart(ctx context.Context, mode StopMode) error {
	if err := c.Stop(ctx, mode); err != nil {
		return err
	}
	return c.Start(ctx)
}

// Reload makes the server read its configuration again. It returns at once.
func (c *Cluster) Reload() error {
	if !c.Running() {
		return fmt.Errorf("reload server: %w", ErrStopped)
	}
	return c.server.Signal(syscall.SIGHUP)
}

// SignalAll sends a signal to every process of a running server, the postmaster first: SIGSTOP freezes the server, SIGCONT lets
// it go on. A frozen postmaster starts no further processes, so none is missed.
func (c *Cluster) SignalAll(sig syscall.Signal) error {
	if !c.Running() {
		return fmt.Errorf("signal server: %w", ErrStopped)
	}
	if err := c.server.Signal(sig); err != nil {
		return err
	}
	pids, err := c.processes()
	if err != nil {
		return fmt.Errorf("signal server: %w", err)
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("signal server: %w", err)
		}
	}
	return nil
}

// Kill9 kills every process of the server with SIGKILL, the postmaster first, and returns when all of them are gone, so
// that the server can be started again. A server that does not run is no error.
func (c *Cluster) Kill9() error {
	if c.server == nil {
		return nil
	}
	c.server.Kill()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := Until(ctx, func() (bool, error) {
		left, err := c.processes()
		for _, pid := range left {
			if errKill := syscall.Kill(pid, syscall.SIGKILL); errKill != nil && !errors.Is(errKill, syscall.ESRCH) {
				return false, errKill
			}
		}
		return len(left) == 0, err
	})
	if err != nil {
		return fmt.Errorf("kill server: %w", err)
	}
	return nil
}

// processes returns the ids of all processes whose working directory is the data directory. These are the postmaster
// and its children, wherever init has moved the latter after the postmaster's end.
func (c *Cluster) processes() ([]int, error) {
	dataDir, err := filepath.EvalSymlinks(c.DataDir)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil, nil
		}
		return nil, err
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if cwd, err := os.Readlink(filepath.Join("/proc", entry.Name(), "cwd")); err == nil && cwd == dataDir {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}
