// Package node joins the packages into one running walproxy: an upstream, a spool, any number of consumers.
package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"walproxy/cmd/walproxy/internal/config"
	"walproxy/protocol"
	"walproxy/protocol/ship"
	"walproxy/protocol/walreceiver"
	"walproxy/protocol/walsender"
	"walproxy/slots"
	"walproxy/slots/feed"
	"walproxy/slots/spool"
)

// Node is one walproxy. Make it with Open, let it work with Run, Close it.
type Node struct {
	config   *config.Config
	logger   *zap.Logger
	log      *spool.Log
	store    *slots.Store
	registry *slots.Registry
	reporter *slots.Reporter
	feed     *feed.Feed
	receiver *walreceiver.Receiver
	server   *walsender.Server
	lookup   lookup
	metrics  *metrics
	archiver *archiver // nil: nothing is archived
	redo     redoTracker
	pulse    pulse
	alarm    alarm
	status   broadcast // what is to be reported upstream may have changed
	room     broadcast // something was removed from the spool, or may be now

	reserving sync.Mutex   // held while a slot that reserves WAL is made, and while it is found out which WAL may go
	going     protocol.LSN // WAL below may be going; guarded by reserving
}

// Open opens the data directory and prepares everything else; nothing runs yet. Metrics are registered with reg.
func Open(cfg *config.Config, logger *zap.Logger, reg prometheus.Registerer) (n *Node, err error) {
	n = &Node{config: cfg, logger: logger, registry: slots.NewRegistry(), metrics: newMetrics(reg)}
	if err := os.MkdirAll(cfg.Data.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("open data directory: %w", err)
	}
	log, err := spool.Open(cfg.Data.Dir, spool.Options{
		Logger: logger, Metrics: spool.NewMetrics(reg), ResetDistance: uint32(cfg.Recompress.ResetDistance),
		CapBytes: int64(cfg.Spool.Cap), NoSync: !cfg.Spool.Fsync,
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, log.Close())
		}
	}()
	n.log = log
	if id, known := log.Identity(); known {
		if err := n.checkCap(id.SegmentSize, log.ResetDistance()); err != nil {
			return nil, err
		}
	}
	if n.store, err = slots.OpenStore(cfg.Data.Dir, slots.StoreOptions{Logger: logger, Metrics: slots.NewMetrics(reg)}); err != nil {
		return nil, err
	}
	if err := n.openFeed(); err != nil {
		return nil, err
	}
	if err := n.openArchiver(reg); err != nil {
		return nil, err
	}
	if err := n.openReceiver(reg); err != nil {
		return nil, err
	}
	if err := n.openServer(); err != nil {
		return nil, err
	}
	if reg != nil {
		reg.MustRegister(newCollector(n))
	}
	return n, nil
}

func (n *Node) openFeed() (err error) {
	n.reporter = slots.NewReporter(n.config.Acknowledge.Policy(), n.registry)
	for _, span := range n.log.Timelines() {
		if span.Next != 0 {
			n.registry.EndTimeline(span.Timeline, span.End)
		}
	}
	n.redo.identity = n.log.Identity
	n.feed, err = feed.New(n.log, feed.Options{
		Recompress: n.config.Recompress.Options(), BacklogBytes: uint64(n.config.Recompress.Backlog), Hold: n.config.Recompress.Hold, MakeRoom: n.makeRoom, Observe: n.observe,
		Logger: n.logger, Metrics: n.metrics.feed,
	})
	return err
}

// observe sees all WAL that comes in, in the receiver's goroutine.
func (n *Node) observe(tli protocol.Timeline, start protocol.LSN, wal []byte) {
	n.flows()
	n.redo.observe(tli, start, wal)
}

func (n *Node) openReceiver(reg prometheus.Registerer) (err error) {
	u := n.config.Upstream
	options := walreceiver.Options{
		Conninfo: string(u.Conninfo), Slot: u.Slot, CreateSlot: u.CreateSlot, ApplicationName: u.ApplicationName,
		StatusInterval: u.StatusInterval, ReceiverTimeout: u.ReceiverTimeout, BackoffMin: u.BackoffMin, BackoffMax: u.BackoffMax,
		ResetDistance: uint32(n.config.Recompress.ResetDistance), Logger: n.logger, Metrics: walreceiver.NewMetrics(reg),
	}
	if n.archiver != nil {
		options.First = n.archiver.end
	}
	if u.Link == config.LinkAuto {
		options.Link = func(request walreceiver.LinkRequest) walreceiver.LinkStream {
			return ship.NewClient(frames{n.feed, n}, ship.Stream(request))
		}
	}
	n.receiver, err = walreceiver.New(options)
	return err
}

func (n *Node) openServer() (err error) {
	l := n.config.Listen
	access, err := n.access(l)
	if err != nil {
		return err
	}
	timeout := l.WALSenderTimeout
	if timeout == 0 {
		timeout = -1 // none
	}
	n.server, err = walsender.New(&backend{n}, &slotStore{n}, &consumers{n}, walsender.Options{
		Access: access, Link: l.Link, MaxConnections: l.MaxConnections, MaxConnectionsPerUser: l.MaxConnectionsPerUser,
		Relay: &relayer{n}, SQL: l.SQL == config.SQLRelay,
		AuthenticationTimeout: l.AuthenticationTimeout, WALSenderTimeout: timeout, DrainTimeout: l.DrainTimeout,
	}, n.logger)
	return err
}

// Run works until ctx ends, and then drains: the upstream first, consumers when they have confirmed what there is or the
// drain timeout is over. An error other than nil is one that a restart alone does not mend.
func (n *Node) Run(ctx context.Context) error {
	listeners, err := n.listen()
	if err != nil {
		return err
	}
	syncing, stopSync := context.WithCancel(context.Background())
	synced := make(chan error, 1)
	go func() { synced <- n.feed.Sync(syncing) }() // ends after everything that writes and everything that reports

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return n.receive(ctx) })
	group.Go(func() error { return n.feed.Hold(ctx) })
	for _, l := range listeners {
		group.Go(func() error { return n.server.Serve(ctx, l) })
	}
	group.Go(func() error { return n.store.Run(ctx) })
	group.Go(func() error { return n.retain(ctx) })
	group.Go(func() error { return n.watch(ctx) })
	group.Go(func() error { return n.beat(ctx) })
	if n.config.Spool.Seal {
		group.Go(func() error { return n.feed.Seal(ctx) })
	}
	if n.archiver != nil {
		group.Go(func() error { return n.archiver.run(ctx) })
	}
	group.Go(func() error {
		select {
		case err := <-synced: // only a failure ends it while ctx goes on
			synced <- err
			return err
		case <-ctx.Done():
			return nil
		}
	})
	err = group.Wait()
	stopSync()
	return errors.Join(err, <-synced)
}

// Ready returns nil if consumers can be served, and otherwise what is missing.
func (n *Node) Ready() error {
	if _, known := (&backend{n}).Identity(); !known {
		return errors.New("no WAL has been received from the upstream yet")
	}
	return nil
}

// Close makes everything durable and lets go of the data directory.
func (n *Node) Close() error {
	return errors.Join(n.archiver.close(), n.store.Flush(), n.log.Close())
}

func (n *Node) receive(ctx context.Context) error {
	err := n.receiver.Run(ctx, &sink{Feed: n.feed, node: n})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// While more than bulkBytes of WAL are written from one report to the next, the upstream hears of what is merely written every
// bulkReport: a report for each piece would cost as much as the piece.
const (
	bulkBytes  = 64 << 10
	bulkReport = 5 * time.Millisecond
)

// report returns what to report upstream.
func (n *Node) report() protocol.Status {
	state := n.log.State()
	return n.reporter.Status(slots.Own{Written: state.End, Flushed: state.Flushed})
}

// watch wakes the status of the upstream connection whenever there is something else to report: the spool or a consumer moved.
func (n *Node) watch(ctx context.Context) error {
	pause := time.NewTimer(bulkReport)
	defer pause.Stop()
	last := protocol.Status{}
	for reported := protocol.LSN(0); ; {
		spool, flushed, consumers := n.log.Changed(), n.log.Flushed(), n.registry.Changed()
		if now := n.report(); now != last {
			last = now
			n.status.send()
		}
		n.checkAlarm()
		pause.Reset(bulkReport)
		over, end := pause.C, n.log.State().End
		if end > reported+bulkBytes {
			spool = nil
		} else {
			over = nil
		}
		reported = end
		select {
		case <-spool:
		case <-over:
		case <-flushed:
		case <-consumers:
		case <-ctx.Done():
			return nil
		}
	}
}

func (n *Node) listen() (all []net.Listener, err error) {
	defer func() {
		if err != nil {
			for _, l := range all {
				_ = l.Close()
			}
		}
	}()
	for _, a := range n.config.Listen.Addresses {
		network, address := a.Network()
		l, err := net.Listen(network, address)
		if err != nil {
			return all, fmt.Errorf("listen on %s: %w", a, err)
		}
		all = append(all, l)
		n.logger.Info("listening", zap.Stringer("address", l.Addr()))
	}
	return all, nil
}
