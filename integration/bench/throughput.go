package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"walproxy/integration/nodeproc"
	"walproxy/integration/pgcluster"
	"walproxy/protocol"
)

// direct is the path without a node.
const direct = "direct"

// withoutFsync ends the name of a codec whose nodes leave fsync out, which tells the disk's share from theirs.
const withoutFsync = ", nodes without fsync"

// throughputPaths returns all paths, direct first.
func (b *bench) throughputPaths() []string {
	paths := []string{direct}
	for _, codec := range strings.Split(b.codecs, ",") {
		paths = append(paths, codec)
		if codec == "none" {
			paths = append(paths, codec+withoutFsync)
		}
	}
	return paths
}

// throughput measures how fast WAL that is already written reaches pg_receivewal: straight from the primary, and through two
// nodes, one chain of them for each codec and round. All paths begin together and are stopped; the WAL is written once; then one
// path after the other goes on.
func (b *bench) throughput(ctx context.Context) (err error) {
	// Nobody waits for commits here, and the WAL is the same.
	primary, err := b.primary(ctx, 10, "synchronous_commit = off", "max_wal_senders = 60")
	if primary != nil {
		defer func() { _ = primary.Close() }()
	}
	if err != nil {
		return err
	}
	// The flushed position of what was committed asynchronously may be a segment's end, and pg_receivewal would begin behind it.
	if err := mark(ctx, primary); err != nil {
		return err
	}
	var chains []*chain
	defer func() {
		for _, c := range chains {
			c.close()
		}
	}()
	for range b.rounds {
		for _, codec := range b.throughputPaths() {
			c, err := b.chain(ctx, primary, codec)
			chains = append(chains, c)
			if err != nil {
				return fmt.Errorf("%s: %w", codec, err)
			}
		}
	}
	from, to, err := b.holdAndWrite(ctx, primary, chains)
	if err != nil {
		return err
	}
	for _, c := range chains {
		if err := c.measure(ctx, primary, from, to); err != nil {
			return fmt.Errorf("%s: %w", c.codec, err)
		}
		c.close()
	}
	b.reportThroughput(chains, to-from)
	return nil
}

func (b *bench) reportThroughput(chains []*chain, wal protocol.LSN) {
	b.report.Line("### Relay throughput\n")
	b.report.Line("%d MiB of pgbench WAL, written while the receiver (or node A) was stopped by SIGSTOP; time from SIGCONT until\n"+
		"pg_receivewal's files hold the last byte, and the CPU time that each took for a GiB of WAL. Median of %d rounds. All processes\n"+
		"share the CPUs and one disk, which holds the WAL once more for each node.\n", wal>>20, b.rounds)
	b.report.Line("| path | MB/s | ratio to direct | CPU s/GiB: primary | A | B | pg_receivewal |\n|---|---:|---:|---:|---:|---:|---:|")
	base := 0.0
	for _, codec := range b.throughputPaths() {
		var rounds []*chain
		for _, c := range chains {
			if c.codec == codec {
				rounds = append(rounds, c)
			}
		}
		slices.SortFunc(rounds, func(a, b *chain) int { return int(b.seconds*1e6) - int(a.seconds*1e6) })
		c := rounds[len(rounds)/2]
		speed := float64(wal) / 1e6 / c.seconds
		cpu := func(name string) string {
			if c.cpu[name] == 0 {
				return "-"
			}
			return fmt.Sprintf("%.2f", c.cpu[name]/float64(wal)*(1<<30))
		}
		path := "primary → A ═ B → pg_receivewal, codec " + codec
		if codec == direct {
			base, path = speed, "primary → pg_receivewal"
		}
		b.report.Line("| %s | %.0f | %.2f | %s | %s | %s | %s |", path, speed, speed/base, cpu("primary"), cpu("A"), cpu("B"), cpu("receiver"))
	}
	b.report.Line("")
}

// chain is one path from the primary to a pg_receivewal.
type chain struct {
	codec    string
	nodes    []*nodeproc.Node
	receiver *pgcluster.Receivewal
	dir      string // of receiver
	seconds  float64
	cpu      map[string]float64 // seconds by process: primary, A, B, receiver
}

// chain starts a path and waits until it is idle.
func (b *bench) chain(ctx context.Context, primary *pgcluster.Cluster, codec string) (c *chain, err error) {
	c = &chain{codec: codec}
	upstream := primary.Conninfo()
	name, unsynced := strings.CutSuffix(codec, withoutFsync)
	settings := fmt.Sprintf("recompress:\n  codec: %s\n", name)
	if unsynced {
		settings += "spool:\n  fsync: off\n"
	}
	if codec != direct {
		for range 2 {
			n, err := b.node(ctx, upstream, settings)
			c.nodes = append(c.nodes, n)
			if err != nil {
				return c, err
			}
			upstream = n.Conninfo()
		}
	}
	b.nodes++
	c.dir = filepath.Join(b.dir, fmt.Sprintf("receivewal-%d", b.nodes))
	if c.receiver, err = pgcluster.PgReceivewal(c.dir, upstream); err != nil {
		return c, err
	}
	lsn, err := primary.FlushLSN(ctx)
	if err != nil {
		return c, err
	}
	return c, waitWAL(ctx, primary, c.receiver, lsn)
}

// first returns the process that takes WAL from the primary.
func (c *chain) first() *pgcluster.Process {
	if len(c.nodes) > 0 {
		return c.nodes[0].Process()
	}
	return c.receiver.Process
}

// processes returns the path's processes by name.
func (c *chain) processes(primary *pgcluster.Cluster) map[string]int {
	all := map[string]int{"primary": primary.PID(), "receiver": c.receiver.PID()}
	for i, n := range c.nodes {
		all[string(rune('A'+i))] = n.Process().PID()
	}
	return all
}

func (c *chain) measure(ctx context.Context, primary *pgcluster.Cluster, from, to protocol.LSN) error {
	syscall.Sync() // what the path before left for the disk is none of this one's
	before := map[string]float64{}
	for name, pid := range c.processes(primary) {
		var err error
		if before[name], err = cpuSeconds(pid); err != nil {
			return err
		}
	}
	started := time.Now()
	if err := c.first().Signal(syscall.SIGCONT); err != nil {
		return err
	}
	if err := waitWAL(ctx, primary, c.receiver, to); err != nil {
		return err
	}
	c.seconds, c.cpu = time.Since(started).Seconds(), map[string]float64{}
	for name, pid := range c.processes(primary) {
		used, err := cpuSeconds(pid)
		if err != nil {
			return err
		}
		c.cpu[name] = used - before[name]
	}
	fmt.Fprintf(os.Stderr, "%s: %.2f s, CPU %v\n", c.codec, c.seconds, c.cpu)
	source := pgcluster.Source{Dir: c.dir, SegmentBytes: primary.Options.SegmentBytes()}
	return pgcluster.CompareWAL(primary.WAL(), source, 1, from, to)
}

// close ends the path and removes what it stored. It is idempotent, and nil has nothing to close.
func (c *chain) close() {
	if c == nil {
		return
	}
	if c.receiver != nil {
		c.receiver.Kill()
	}
	for _, n := range c.nodes {
		closeNode(n)
	}
	_ = os.RemoveAll(c.dir)
}

// holdAndWrite stops all paths and writes WAL for them.
func (b *bench) holdAndWrite(ctx context.Context, primary *pgcluster.Cluster, chains []*chain) (from, to protocol.LSN, err error) {
	if from, err = primary.FlushLSN(ctx); err != nil {
		return 0, 0, err
	}
	for _, c := range chains {
		if err := errors.Join(waitWAL(ctx, primary, c.receiver, from), c.first().Signal(syscall.SIGSTOP)); err != nil {
			return 0, 0, err
		}
	}
	to, err = writeWAL(ctx, primary, from+protocol.LSN(b.walMiB<<20))
	return from, to, err
}

// writeWAL runs pgbench until the WAL reaches target and returns where it ends. Checkpoints in between make it write page images,
// as it does for as long as most pages were not touched since the last one.
func writeWAL(ctx context.Context, primary *pgcluster.Cluster, target protocol.LSN) (protocol.LSN, error) {
	for {
		if err := primary.Exec(ctx, "CHECKPOINT"); err != nil {
			return 0, err
		}
		if _, err := primary.Pgbench(ctx, "-n", "-c", "8", "-j", "2", "-T", "5"); err != nil {
			return 0, err
		}
		if err := mark(ctx, primary); err != nil {
			return 0, err
		}
		if lsn, err := primary.FlushLSN(ctx); err != nil || lsn >= target {
			return lsn, err
		}
	}
}

// mark has everything that was committed on disk: asynchronous commits are when a synchronous one behind them is.
func mark(ctx context.Context, primary *pgcluster.Cluster) error {
	return primary.Exec(ctx, "SET synchronous_commit = on; CREATE TABLE IF NOT EXISTS mark (n int); INSERT INTO mark VALUES (1)")
}

// waitWAL waits until pg_receivewal's files hold the byte before to as the primary wrote it.
func waitWAL(ctx context.Context, primary *pgcluster.Cluster, r *pgcluster.Receivewal, to protocol.LSN) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	source := pgcluster.Source{Dir: r.Dir, SegmentBytes: primary.Options.SegmentBytes()}
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for {
		if !r.Running() {
			return fmt.Errorf("pg_receivewal ended:\n%s", r.Log(2048))
		}
		if pgcluster.CompareWAL(primary.WAL(), source, 1, to-8, to) == nil {
			return nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for WAL up to %s: %w", to, context.Cause(ctx))
		}
	}
}
