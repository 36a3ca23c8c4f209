package node

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"walproxy/cmd/walproxy/internal/config"
	"walproxy/protocol"
	"walproxy/protocol/walreceiver"
	"walproxy/slots"
)

// BenchmarkCommit measures what nodes add to a commit that waits for a standby's flush, apart from servers and disks: one node
// stands for the primary, and a receiver that confirms at once for the standby. It reports the way down and the way back. Nothing is
// recompressed: nodes pass on the frames of the first one, and what codecs take `walproxy bench --flush commit --latency` shows.
//
//	go test -run '^$' -bench Commit ./cmd/walproxy/internal/node
func BenchmarkCommit(b *testing.B) {
	for _, c := range []struct {
		nodes int
		fsync bool
	}{{0, false}, {1, false}, {2, false}, {2, true}} {
		b.Run(fmt.Sprintf("nodes=%d/fsync=%t", c.nodes, c.fsync), func(b *testing.B) {
			benchCommit(b, c.nodes, c.fsync)
		})
	}
}

const commitBytes = 600

func benchCommit(b *testing.B, count int, fsync bool) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	start := func(upstream string, fsync bool) (*Node, string) {
		n, address := benchNode(b, upstream, fsync)
		running.Go(func() {
			if err := n.Run(ctx); err != nil {
				b.Error(err)
			}
			_ = n.Close()
		})
		return n, address
	}
	primary, address := start("127.0.0.1:1", false)
	if err := primary.log.SetIdentity(protocol.Identity{SystemID: 7, SegmentSize: 16 << 20, WALBlockSize: 8192, ServerVersion: "15.1",
		Settings: map[string]string{"server_version": "15.1", "wal_segment_size": "16MB", "wal_block_size": "8192"}}); err != nil {
		b.Fatal(err)
	}
	at := protocol.LSN(0x2000000)
	wal := make([]byte, commitBytes)
	commit := func() {
		if err := primary.feed.WAL(ctx, 1, at, wal); err != nil {
			b.Fatal(err)
		}
		at += commitBytes
	}
	commit()
	for range count {
		_, address = start(address, fsync)
	}
	standby := &standbySink{moved: make(chan struct{}, 1)}
	host, port, _ := net.SplitHostPort(address)
	receiver, err := walreceiver.New(walreceiver.Options{Conninfo: "host=" + host + " port=" + port + " user=u sslmode=disable", BackoffMax: 100 * time.Millisecond, BackoffMin: 10 * time.Millisecond})
	if err != nil {
		b.Fatal(err)
	}
	running.Go(func() { _ = receiver.Run(ctx, standby) })
	confirmed := func() bool {
		return slices.ContainsFunc(primary.registry.Consumers(), func(c slots.ConsumerState) bool { return c.Flush >= at })
	}
	wait := func() {
		for changed := primary.registry.Changed(); !confirmed(); changed = primary.registry.Changed() {
			<-changed
		}
	}
	wait()
	rng := rand.New(rand.NewPCG(1, 1))
	down, back := make([]float64, 0, b.N), make([]float64, 0, b.N)
	pace := time.NewTicker(2 * time.Millisecond)
	defer pace.Stop()
	for b.Loop() {
		<-pace.C // as a client that commits now and then: everybody has gone to sleep
		for i := range wal {
			wal[i] = byte(rng.Uint32())
		}
		began := time.Now()
		commit()
		wait()
		arrived := time.Unix(0, standby.arrived.Load())
		down, back = append(down, float64(arrived.Sub(began).Microseconds())), append(back, float64(time.Since(arrived).Microseconds()))
	}
	slices.Sort(down)
	slices.Sort(back)
	b.ReportMetric(down[len(down)/2], "down-p50-µs")
	b.ReportMetric(back[len(back)/2], "back-p50-µs")
}

func benchNode(b *testing.B, upstream string, fsync bool) (*Node, string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
	host, port, _ := strings.Cut(upstream, ":")
	cfg := config.Default()
	cfg.Data.Dir, cfg.Upstream.Conninfo = b.TempDir(), config.Conninfo("host="+host+" port="+port+" user=u sslmode=disable")
	cfg.Upstream.BackoffMax = 100 * time.Millisecond
	cfg.Listen.Addresses = []config.Address{config.Address(address)}
	cfg.Listen.Auth.Method, cfg.Listen.DrainTimeout = config.AuthTrust, time.Millisecond
	cfg.Spool.Fsync = fsync
	minRule := config.Rule{Rule: slots.Rule{Kind: slots.RuleMin}}
	cfg.Acknowledge.Flush, cfg.Acknowledge.Write = minRule, minRule
	cfg.Recompress.Codec = "none"
	n, err := Open(cfg, zap.NewNop(), prometheus.NewRegistry())
	if err != nil {
		b.Fatal(err)
	}
	return n, address
}

// standbySink takes WAL and confirms it at once.
type standbySink struct {
	at      atomic.Uint64
	arrived atomic.Int64 // when the last WAL came
	status  broadcast
	moved   chan struct{}
}

func (s *standbySink) Resume() (protocol.Timeline, protocol.LSN) {
	if at := s.at.Load(); at != 0 {
		return 1, protocol.LSN(at)
	}
	return 0, 0
}
func (s *standbySink) Begin() protocol.LSN {
	_, at := s.Resume()
	return at
}
func (s *standbySink) Identify(protocol.Identity) error           { return nil }
func (s *standbySink) History(protocol.Timeline) ([]byte, bool)   { return nil, false }
func (s *standbySink) AddHistory(protocol.Timeline, []byte) error { return nil }
func (s *standbySink) Ahead(protocol.LSN)                         {}
func (s *standbySink) Release(context.Context) error              { return nil }
func (s *standbySink) Feedback() (protocol.HSFeedback, bool)      { return protocol.HSFeedback{}, false }
func (s *standbySink) Changed() <-chan struct{}                   { return s.status.wait() }
func (s *standbySink) Compare(context.Context, protocol.Timeline, protocol.LSN, []byte) error {
	return nil
}
func (s *standbySink) EndTimeline(context.Context, protocol.Timeline, protocol.LSN, protocol.Timeline, []byte) error {
	return nil
}
func (s *standbySink) WAL(_ context.Context, _ protocol.Timeline, start protocol.LSN, wal []byte) error {
	s.arrived.Store(time.Now().UnixNano())
	s.at.Store(uint64(start) + uint64(len(wal)))
	s.status.send()
	return nil
}
func (s *standbySink) Status() protocol.Status {
	at := protocol.LSN(s.at.Load())
	return protocol.Status{Write: at, Flush: at, Apply: at}
}
