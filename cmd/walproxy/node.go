package main

import (
	"context"
	"errors"
	"os"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"walproxy/cmd/walproxy/internal/config"
	"walproxy/cmd/walproxy/internal/monitor"
	"walproxy/cmd/walproxy/internal/node"
)

// runNode runs the node that c describes, and its HTTP side, until ctx ends. With each hangup r reloads.
func runNode(ctx context.Context, c *config.Config, logger *zap.Logger, r *reloader, hangups <-chan os.Signal) (err error) {
	build := thisBuild()
	registry := monitor.NewRegistry(build.Version, build.Revision)
	n, err := node.Open(c, logger, registry)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	group, ctx := errgroup.WithContext(ctx)
	if c.HTTP.Address != config.Off {
		web, err := monitor.Listen(ctx, string(c.HTTP.Address), monitor.Options{
			Gatherer: registry, Checks: []monitor.Check{{Name: "wal", Ready: n.Ready}}, Logger: logger,
			Status: func() any { return n.Status(build.Version) }, Slots: func() any { return n.Slots() },
		})
		if err != nil {
			return err
		}
		group.Go(func() error { return web.Run(ctx) })
	}
	group.Go(func() error { return n.Run(ctx) })
	group.Go(func() error { return r.run(ctx, n, hangups) })
	return group.Wait()
}
