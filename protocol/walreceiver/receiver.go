// Package walreceiver receives WAL from an upstream: a PostgreSQL server, or another node over a link. It keeps the
// connection, follows timelines, reports positions, and hands what arrives to a Sink.
package walreceiver

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"
)

// Receiver keeps a replication connection to one of the hosts of a conninfo.
type Receiver struct {
	options  Options
	log      *zap.Logger
	failures *failures
	tracker  tracker
}

// New returns a Receiver. It starts nothing and touches no network. The conninfo's files (passwords, services, certificates)
// are read here, to find mistakes, and again for each connection.
func New(o Options) (*Receiver, error) {
	if err := o.applyDefaults(); err != nil {
		return nil, err
	}
	if _, err := parseConninfo(&o); err != nil {
		return nil, err
	}
	log := o.Logger.Named("walreceiver")
	return &Receiver{options: o, log: log, failures: newFailures(log, time.Now)}, nil
}

// Run receives until ctx ends, and returns ctx's error then. It connects again, for ever and with growing pauses, whatever
// the upstream does. Other errors have a method Fatal and come from the sink: another cluster's WAL (*FatalError), a history
// that was rewritten (*DivergedError). Run waits for its goroutines. It may be called again, not at the same time.
func (r *Receiver) Run(ctx context.Context, sink Sink) error {
	defer r.tracker.enter(PhaseStopped, "", false)
	var pause time.Duration
	avoid := ""
	for {
		peer, progress, err := r.once(ctx, sink, avoid)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if isFatal(err) {
			return err
		}
		r.options.Metrics.failures.Inc()
		r.tracker.failed(err)
		r.failures.failed(err)
		avoid = ""
		if refuses(err) {
			avoid = peer
		}
		if progress {
			pause = 0
		}
		pause = min(max(2*pause, r.options.BackoffMin), r.options.BackoffMax)
		if !sleep(ctx, pause/2+rand.N(pause/2+1)) {
			return ctx.Err()
		}
	}
}

// once makes one connection and uses it as long as it lasts.
func (r *Receiver) once(ctx context.Context, sink Sink, avoid string) (peer string, progress bool, err error) {
	r.tracker.enter(PhaseConnecting, "", false)
	c, err := r.connect(ctx, sink, avoid)
	if err != nil {
		return "", false, err
	}
	s := &serving{conn: c, r: r, sink: sink, log: r.log.With(zap.String("peer", c.peer))}
	err = s.run(ctx)
	if closing := c.Close(); closing != nil {
		s.log.Debug("close connection", zap.Error(closing))
	}
	return c.peer, s.progress, err
}

// refuses reports whether another host of the conninfo should be tried first next time.
func refuses(err error) bool {
	var removed *RemovedError
	var behind *BehindError
	var timeline *TimelineError
	return errors.As(err, &removed) || errors.As(err, &behind) || errors.As(err, &timeline)
}

// sleep waits for d; false means that ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
