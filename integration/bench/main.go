// Command bench measures the relay against its peers on this machine and writes its section of BENCHMARKS.md:
//
//	go run ./integration/bench -binary bin/walproxy -out BENCHMARKS.md
//
// Every figure that says something about speed is a ratio to a peer that is measured in the same run.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"walproxy/integration/bench/report"
	"walproxy/integration/nodeproc"
	"walproxy/integration/pgcluster"
)

// bench is one run.
type bench struct {
	binary    string
	dir       string
	walMiB    int
	behindMiB int
	seconds   int
	rounds    int
	scale     int
	parts     string
	codecs    string
	report    report.Report
	nodes     int // made so far, for directory names
}

func main() {
	b := bench{}
	out := flag.String("out", "BENCHMARKS.md", "the file whose section is rewritten")
	flag.StringVar(&b.binary, "binary", "bin/walproxy", "the walproxy to measure")
	flag.IntVar(&b.walMiB, "wal", 1024, "MiB of WAL for throughput")
	flag.IntVar(&b.behindMiB, "behind", 1024, "MiB of WAL by which a consumer falls behind, for memory")
	flag.IntVar(&b.seconds, "seconds", 20, "seconds of pgbench for each latency figure")
	flag.IntVar(&b.rounds, "rounds", 3, "rounds of throughput, of which the median counts, and of base backups, of which the best does")
	flag.IntVar(&b.scale, "scale", 40, "pgbench scale of the database that base backups are taken of")
	flag.StringVar(&b.parts, "parts", "latency,memory,throughput,fanout,connect,basebackup", "what to measure")
	flag.StringVar(&b.codecs, "codecs", "none,zstd,auto", "codecs of the throughput part")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := b.run(ctx, *out); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func (b *bench) run(ctx context.Context, out string) (err error) {
	if b.binary, err = filepath.Abs(b.binary); err != nil {
		return err
	}
	if b.dir, err = pgcluster.TempDir("walproxy-bench-"); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(b.dir) }()
	for _, part := range []struct {
		name string
		do   func(context.Context) error
	}{{"latency", b.latency}, {"memory", b.memory}, {"throughput", b.throughput}, {"fanout", b.fanout}, {"connect", b.connect}, {"basebackup", b.baseBackup}} {
		if !strings.Contains(b.parts, part.name) {
			continue
		}
		started := time.Now()
		b.report = report.Report{}
		if err := part.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
		fmt.Fprintf(os.Stderr, "%s done in %.0f s\n", part.name, time.Since(started).Seconds())
		if err := b.report.Write(out, "relay "+part.name, b.command()); err != nil {
			return err
		}
	}
	return nil
}

// command is what a reader runs to measure the same.
func (b *bench) command() string {
	return fmt.Sprintf("go run ./integration/bench -parts %s -codecs %s -wal %d -behind %d -seconds %d -rounds %d -scale %d",
		b.parts, b.codecs, b.walMiB, b.behindMiB, b.seconds, b.rounds, b.scale)
}

// primary starts a server with a pgbench database.
func (b *bench) primary(ctx context.Context, scale int, conf ...string) (*pgcluster.Cluster, error) {
	install, err := pgcluster.FindAny()
	if err != nil {
		return nil, err
	}
	c, err := pgcluster.Create(ctx, pgcluster.Options{
		Major: install.Major, KeepMiB: 64 << 10,
		Conf: append([]string{"shared_buffers = 512MB", "max_wal_size = 16GB", "checkpoint_timeout = 1h", "wal_sender_timeout = 0"}, conf...),
	})
	if err != nil {
		return nil, err
	}
	if err := c.Start(ctx); err != nil {
		return c, err
	}
	_, err = c.Pgbench(ctx, "-i", "-q", "-s", fmt.Sprint(scale))
	return c, err
}

// node starts a node with recompress and acknowledge settings and waits until it is ready.
func (b *bench) node(ctx context.Context, upstream, settings string) (*nodeproc.Node, error) {
	b.nodes++
	n, err := nodeproc.New(nodeproc.Options{
		Binary: b.binary, Dir: filepath.Join(b.dir, fmt.Sprintf("node-%d", b.nodes)),
		// Receivers and nodes are stopped for longer than a peer would wait.
		Config: fmt.Sprintf("upstream:\n  conninfo: %q\n  receiver_timeout: 1h\nlisten:\n  wal_sender_timeout: 0s\n%s", upstream, settings),
	})
	if err != nil {
		return nil, err
	}
	return n, n.StartReady(ctx)
}

// close ends a node and removes what it stored.
func closeNode(n *nodeproc.Node) {
	if n != nil {
		n.Kill()
		_ = os.RemoveAll(n.Options.Dir)
	}
}
