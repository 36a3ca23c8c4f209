package main

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"walproxy/cmd/walproxy/internal/config"
)

// runNode runs the node that c describes until ctx ends.
func runNode(_ context.Context, _ *config.Config, _ *zap.Logger) error {
	return errors.New("run node: not wired")
}
