// Command engine measures recompression on WAL of real servers against general compressors on the same bytes in the same run. It
// writes its section of BENCHMARKS.md and a chart:
//
//	go run ./integration/bench/engine -binary bin/walproxy -out BENCHMARKS.md -charts docs/charts
//
// Speeds are of one processor, unless a table says otherwise.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"walproxy/integration/bench/report"
	"walproxy/integration/pgcluster"
	"walproxy/integration/workload"
)

// bench is one run.
type bench struct {
	binary    string
	dir       string // of the WAL
	out       string // the file whose section is rewritten
	charts    string
	quick     bool
	scale     float64
	keepMiB   int64
	rounds    int
	workloads []string
	report    report.Report
	wal       map[string]string // directories of WAL by workload, compression and clients
}

func main() {
	b := bench{wal: map[string]string{}}
	flag.StringVar(&b.out, "out", "BENCHMARKS.md", "the file whose section is rewritten")
	names := flag.String("workloads", strings.Join(workload.Names(), ","), "which workloads, separated by commas")
	flag.StringVar(&b.binary, "binary", "bin/walproxy", "the walproxy to measure")
	flag.StringVar(&b.charts, "charts", "docs/charts", "the directory for charts")
	flag.BoolVar(&b.quick, "quick", false, "a few minutes: little WAL, default levels, fewer tables")
	flag.Float64Var(&b.scale, "scale", 0, "factor for the workloads; 0 is 1, or 0.1 with -quick")
	flag.Int64Var(&b.keepMiB, "keep", 0, "MiB of WAL of each workload; 0 is 32, or 2 with -quick")
	flag.IntVar(&b.rounds, "rounds", 0, "rounds of each measurement, of which the fastest counts; 0 is 3, or 1 with -quick")
	flag.Parse()
	b.workloads = strings.Split(*names, ",")
	b.defaults()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := b.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func (b *bench) defaults() {
	scale, keep, rounds := 1.0, int64(32), 3
	if b.quick {
		scale, keep, rounds = 0.1, 2, 1
	}
	if b.scale == 0 {
		b.scale = scale
	}
	if b.keepMiB == 0 {
		b.keepMiB = keep
	}
	if b.rounds == 0 {
		b.rounds = rounds
	}
}

func (b *bench) run(ctx context.Context) (err error) {
	for _, name := range b.workloads {
		if workload.About(name) == "" {
			return fmt.Errorf("unknown workload %q: want some of %s", name, strings.Join(workload.Names(), ","))
		}
	}
	if b.binary, err = filepath.Abs(b.binary); err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "walproxy-bench-engine-"); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(b.dir) }()
	b.report.Line("### Recompression\n")
	b.report.Line("WAL of PostgreSQL, up to %d MiB of each workload, workloads at %g of their full size. Sizes count all that a node stores. Every run was\n"+
		"decoded and compared byte for byte. Speeds are 10⁶ bytes of WAL per second on one processor, best of %d.\n", b.keepMiB, b.scale, b.rounds)
	for _, part := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"codecs", b.codecs}, {"commits", b.commits}, {"compression of the server", b.serverCompression}, {"clients", b.clients},
		{"reset distance", b.distances}, {"record threshold", b.thresholds}, {"images", b.images}, {"contexts", b.contexts},
		{"processors", b.processors},
	} {
		started := time.Now()
		if err := part.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
		fmt.Fprintf(os.Stderr, "%s done in %.0f s\n", part.name, time.Since(started).Seconds())
	}
	return b.report.Write(b.out, "engine", strings.Join(append([]string{"go run ./integration/bench/engine"}, os.Args[1:]...), " "))
}

// source is some WAL to measure on.
type source struct {
	workload, compression string
	clients               int // 0: the usual number
	major                 int // of the server; 0: the newest that has its client tools
}

// make returns the directory with the WAL of s. It is written once.
func (b *bench) make(ctx context.Context, s source) (string, error) {
	name := fmt.Sprintf("%s-%s-%d-%d", s.workload, s.compression, s.clients, s.major)
	if dir, ok := b.wal[name]; ok {
		return dir, nil
	}
	dir, started := filepath.Join(b.dir, name), time.Now()
	segmentMiB := 16
	for int64(segmentMiB) > b.keepMiB {
		segmentMiB /= 2
	}
	r, err := workload.Generate(ctx, dir, workload.Options{
		Name: s.workload, Compression: s.compression, Clients: s.clients, Major: s.major, Scale: b.scale, KeepBytes: b.keepMiB << 20, SegmentMiB: segmentMiB,
	})
	if err != nil {
		return "", err
	}
	fmt.Fprintf(os.Stderr, "%s: %d segments of %d MiB in %.1f s\n", name, r.Segments, segmentMiB, time.Since(started).Seconds())
	b.wal[name] = dir
	return dir, nil
}

// only returns those of names that this run is about.
func (b *bench) only(names ...string) []string {
	return slices.DeleteFunc(names, func(name string) bool { return !slices.Contains(b.workloads, name) })
}

// compressions are the settings of wal_compression that the server to be used has.
func compressions() ([]string, error) {
	install, err := pgcluster.FindAny()
	if err != nil {
		return nil, err
	}
	if install.Major < 15 {
		return []string{"off", "pglz"}, nil
	}
	return []string{"off", "pglz", "lz4", "zstd"}, nil
}
