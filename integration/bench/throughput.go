package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"walproxy/integration/nodeproc"
	"walproxy/integration/pgcluster"
	"walproxy/protocol"
)

// throughput measures how fast WAL that is already written reaches pg_receivewal: straight from the primary, and through
// two nodes. The receiving side is stopped while the WAL is written and goes on when it is complete.
func (b *bench) throughput(ctx context.Context) error {
	b.report.Line("### Relay throughput\n")
	b.report.Line("%d MiB of pgbench WAL, written while the receiver (or node A) was stopped by SIGSTOP; time from SIGCONT until\n"+
		"pg_receivewal's files hold the last byte. Best of %d rounds.\n", b.walMiB, b.rounds)
	b.report.Line("| path | MB/s | ratio to direct |\n|---|---:|---:|")
	for _, codec := range strings.Split(b.codecs, ",") {
		var direct, relay float64
		for range b.rounds {
			d, r, err := b.throughputRound(ctx, codec)
			if err != nil {
				return err
			}
			direct, relay = max(direct, d), max(relay, r)
		}
		b.report.Line("| primary → pg_receivewal | %.0f | 1.00 |", direct)
		b.report.Line("| primary → A ═ B → pg_receivewal, codec %s | %.0f | %.2f |", codec, relay, relay/direct)
	}
	b.report.Line("")
	return nil
}

func (b *bench) throughputRound(ctx context.Context, codec string) (direct, relay float64, err error) {
	primary, err := b.primary(ctx, 5)
	if primary != nil {
		defer func() { _ = primary.Close() }()
	}
	if err != nil {
		return 0, 0, err
	}
	settings := fmt.Sprintf("recompress:\n  codec: %s\n", codec)
	a, err := b.node(ctx, primary.Conninfo(), settings)
	defer closeNode(a)
	if err != nil {
		return 0, 0, err
	}
	second, err := b.node(ctx, a.Conninfo(), settings)
	defer closeNode(second)
	if err != nil {
		return 0, 0, err
	}
	receivers, err := b.receivers(primary.Conninfo(), second.Conninfo())
	defer func() {
		for _, r := range receivers {
			r.Kill()
			_ = os.RemoveAll(r.Dir)
		}
	}()
	if err != nil {
		return 0, 0, err
	}
	return b.race(ctx, primary, a, receivers)
}

// receivers starts a pg_receivewal on each conninfo.
func (b *bench) receivers(conninfos ...string) (all []*pgcluster.Receivewal, err error) {
	for i, conninfo := range conninfos {
		r, err := pgcluster.PgReceivewal(filepath.Join(b.dir, fmt.Sprintf("receivewal-%d", i)), conninfo)
		if err != nil {
			return all, err
		}
		all = append(all, r)
	}
	return all, nil
}

// race lets both paths begin, stops them, writes the WAL, and times one after the other. receivers[0] is the direct one.
func (b *bench) race(ctx context.Context, primary *pgcluster.Cluster, a *nodeproc.Node, receivers []*pgcluster.Receivewal) (direct, relay float64, err error) {
	from, err := primary.FlushLSN(ctx)
	if err != nil {
		return 0, 0, err
	}
	for _, r := range receivers {
		if err := waitWAL(ctx, primary, r, from); err != nil {
			return 0, 0, err
		}
	}
	held := []*pgcluster.Process{receivers[0].Process, a.Process()}
	for _, p := range held {
		if err := p.Signal(syscall.SIGSTOP); err != nil {
			return 0, 0, err
		}
	}
	to, err := writeWAL(ctx, primary, from+protocol.LSN(b.walMiB<<20))
	if err != nil {
		return 0, 0, err
	}
	var speed [2]float64
	for i, p := range held {
		started := time.Now()
		if err := p.Signal(syscall.SIGCONT); err != nil {
			return 0, 0, err
		}
		if err := waitWAL(ctx, primary, receivers[i], to); err != nil {
			return 0, 0, err
		}
		speed[i] = float64(to-from) / 1e6 / time.Since(started).Seconds()
	}
	source := pgcluster.Source{Dir: receivers[1].Dir, SegmentBytes: primary.Options.SegmentBytes()}
	return speed[0], speed[1], pgcluster.CompareWAL(primary.WAL(), source, 1, from, to)
}

// writeWAL runs pgbench until the WAL reaches target and returns where it ends.
func writeWAL(ctx context.Context, primary *pgcluster.Cluster, target protocol.LSN) (protocol.LSN, error) {
	for {
		if _, err := primary.Pgbench(ctx, "-n", "-c", "8", "-j", "2", "-T", "5"); err != nil {
			return 0, err
		}
		if lsn, err := primary.FlushLSN(ctx); err != nil || lsn >= target {
			return lsn, err
		}
	}
}

// waitWAL waits until pg_receivewal's files hold the byte before to as the primary wrote it.
func waitWAL(ctx context.Context, primary *pgcluster.Cluster, r *pgcluster.Receivewal, to protocol.LSN) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	source := pgcluster.Source{Dir: r.Dir, SegmentBytes: primary.Options.SegmentBytes()}
	return pgcluster.Until(ctx, func() (bool, error) {
		if !r.Running() {
			return false, fmt.Errorf("pg_receivewal ended:\n%s", r.Log(2048))
		}
		return pgcluster.CompareWAL(primary.WAL(), source, 1, to-8, to) == nil, nil
	})
}
