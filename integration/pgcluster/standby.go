package pgcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Clone copies a stopped cluster into a new one, stopped as well, with another port and directory ("" means a temporary
// one): the start of a standby for versions that come without pg_basebackup.
func (c *Cluster) Clone(ctx context.Context, dir string) (*Cluster, error) {
	if c.Running() {
		return nil, fmt.Errorf("clone cluster: %w", ErrRunning)
	}
	return c.derive(dir, func(clone *Cluster) error {
		if err := c.Options.Templates.copyDir(ctx, c.DataDir, clone.DataDir); err != nil {
			return err
		}
		for _, name := range []string{"postmaster.pid", "postmaster.opts", "standby.signal", "postgresql.auto.conf"} {
			if err := os.RemoveAll(filepath.Join(clone.DataDir, name)); err != nil {
				return err
			}
		}
		if _, err := RunAs(ctx, "touch", filepath.Join(clone.DataDir, "postgresql.auto.conf")); err != nil {
			return err
		}
		// Slots are the original's; a stock base backup leaves them out too.
		return removeContents(filepath.Join(clone.DataDir, "pg_replslot"))
	})
}

// BaseBackup copies a running server into a new, stopped cluster by pg_basebackup over conninfo, which leads to this
// server directly or by way of a proxy. WAL is streamed beside it. args are more arguments for pg_basebackup.
// Errors are of class ErrMissing if there is no pg_basebackup as new as the server.
func (c *Cluster) BaseBackup(ctx context.Context, dir, conninfo string, args ...string) (*Cluster, error) {
	path, err := c.toolFor("pg_basebackup")
	if err != nil {
		return nil, err
	}
	return c.derive(dir, func(clone *Cluster) error {
		base := []string{"-d", conninfo, "-D", clone.DataDir, "-X", "stream", "-c", "fast", "--no-sync"}
		_, err := RunAs(ctx, path, append(base, args...)...)
		return err
	})
}

// derive makes a cluster like c with another directory and port, and has fill make its data directory.
func (c *Cluster) derive(dir string, fill func(*Cluster) error) (*Cluster, error) {
	options := c.Options
	options.Dir, options.Port = dir, 0
	clone, err := prepare(options)
	if err != nil {
		return nil, fmt.Errorf("copy cluster: %w", err)
	}
	if err = fill(clone); err == nil {
		err = clone.Configure(options.conf(clone.Port, clone.SocketDir))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("copy cluster: %w", err), clone.Close())
	}
	return clone, nil
}

// MakeStandby turns a stopped cluster into a standby that streams from primaryConninfo, by the named slot unless slot is
// "". It can be called again to follow another primary.
func (c *Cluster) MakeStandby(primaryConninfo, slot string) error {
	if c.Running() {
		return fmt.Errorf("make standby: %w", ErrRunning)
	}
	signal := filepath.Join(c.DataDir, "standby.signal")
	if err := os.WriteFile(signal, nil, 0o600); err != nil {
		return fmt.Errorf("make standby: %w", err)
	}
	if err := own(signal); err != nil {
		return fmt.Errorf("make standby: %w", err)
	}
	return c.FollowPrimary(primaryConninfo, slot)
}

// FollowPrimary sets primary_conninfo and primary_slot_name. A running standby takes them over by Reload.
func (c *Cluster) FollowPrimary(primaryConninfo, slot string) error {
	return c.Configure(
		"primary_conninfo = "+quote(primaryConninfo),
		"primary_slot_name = "+quote(slot),
	)
}

// Promote makes a standby a primary and returns when it takes writes.
func (c *Cluster) Promote(ctx context.Context) error {
	if err := c.Exec(ctx, "SELECT pg_promote(false)"); err != nil {
		return fmt.Errorf("promote standby: %w", err)
	}
	err := Until(ctx, func() (bool, error) {
		if !c.Running() {
			return false, ErrStopped
		}
		recovering, err := c.Value(ctx, "SELECT pg_is_in_recovery()")
		return err == nil && recovering == "f", nil
	})
	if err != nil {
		return fmt.Errorf("promote standby: %w\n%s", err, c.Log())
	}
	return nil
}

// quote makes text a string of postgresql.conf.
func quote(text string) string {
	return "'" + strings.NewReplacer(`'`, `''`, `\`, `\\`).Replace(text) + "'"
}

func removeContents(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if err := os.RemoveAll(filepath.Join(dir, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}
