// Package monitor is a node's HTTP side: metrics, health, profiles. It answers while everything else stalls.
package monitor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
)

// Timeouts of the server. A profile may take as long as its client asks for, so writing has none.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	drainTimeout  = 2 * time.Second
)

// Check is one condition of readiness.
type Check struct {
	Name string
	// Ready returns nil if the condition holds, and otherwise what is missing. It must not wait. Safe for concurrent use.
	Ready func() error
}

// Options describe what is served.
type Options struct {
	Gatherer prometheus.Gatherer // metrics
	Checks   []Check             // the node is ready when all of them hold
	Status   func() any          // answers /status as JSON; must not wait; nil: there is no such path
	Slots    func() any          // the same for /slots
	Logger   *zap.Logger         // nil: silent
}

// Server serves one address.
type Server struct {
	listener net.Listener
	http     *http.Server
	logger   *zap.Logger
}

// Listen binds address, host:port, so that a wrong one is known at once. Nothing is served before Run. Whoever does not call
// Run calls Close.
func Listen(ctx context.Context, address string, o Options) (*Server, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for HTTP: %w", err)
	}
	logger := o.Logger
	if logger == nil {
		logger = zap.NewNop()
	}
	logger = logger.Named("http")
	return &Server{
		listener: l,
		logger:   logger,
		http: &http.Server{Handler: Handler(o), ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout,
			ErrorLog: zap.NewStdLog(logger)},
	}, nil
}

// Addr returns the address that is listened on.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Run serves until ctx ends; requests in progress then have a moment to finish.
func (s *Server) Run(ctx context.Context) error {
	s.logger.Info("listening", zap.Stringer("address", s.Addr()))
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve HTTP on %s: %w", s.Addr(), err)
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
		defer cancel()
		if s.http.Shutdown(drain) != nil {
			_ = s.http.Close() // a profile that still runs; its client sees the connection end
		}
		return nil
	})
	return group.Wait()
}

// Close gives up a server that was never run.
func (s *Server) Close() error { return s.listener.Close() }
