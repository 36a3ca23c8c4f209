package main

import (
	"context"
	"os"

	"go.uber.org/zap"

	"walproxy/cmd/walproxy/internal/config"
)

// reloader takes over what can change while a node runs. Of one goroutine.
type reloader struct {
	load    func() (*config.Config, error)
	current *config.Config // what the node runs with
	level   zap.AtomicLevel
	logger  *zap.Logger
}

// accessible is the part of a node that changes.
type accessible interface {
	SetAccess(config.Listen) error
}

// run reloads at each hangup until ctx ends.
func (r *reloader) run(ctx context.Context, n accessible, hangups <-chan os.Signal) error {
	for {
		select {
		case <-hangups:
			if err := r.reload(n); err != nil {
				r.logger.Error("configuration not reloaded, the node goes on with the old one", zap.Error(err))
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// reload takes over all that can be, or, with an error, nothing.
func (r *reloader) reload(n accessible) error {
	file, err := r.load()
	if err != nil {
		return err
	}
	next, reloaded, waiting := r.current.Reload(file)
	if err := next.Validate(); err != nil { // as trust, with the addresses that are listened on
		return err
	}
	if err := n.SetAccess(next.Listen); err != nil {
		return err
	}
	r.level.SetLevel(logLevel(next.Log))
	r.current = next
	r.logger.Info("configuration reloaded", zap.Strings("reloaded", reloaded), zap.Strings("need_restart", waiting))
	return nil
}
