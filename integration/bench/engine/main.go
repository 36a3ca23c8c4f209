// Command engine measures recompression on WAL of real servers against general compressors on the same bytes in the same run. Each
// part writes its section of BENCHMARKS.md, one also a chart:
//
//	go run ./integration/bench/engine -binary bin/walproxy -out BENCHMARKS.md -charts docs/charts
//	go run ./integration/bench/engine -parts codecs,processors -wal /var/tmp/wal
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
	out       string // the file whose sections are rewritten
	charts    string
	quick     bool
	scale     float64
	keepMiB   int64
	longMiB   int64
	rounds    int
	workloads []string
	report    report.Report // of the part in progress
}

// part is a table or two in a section of their own.
type part struct {
	name string
	do   func(*bench, context.Context) error
}

// parts in the order in which BENCHMARKS.md has them.
var parts = []part{
	{"codecs", (*bench).codecs}, {"commits", (*bench).commits}, {"compression", (*bench).serverCompression},
	{"clients", (*bench).clients}, {"distance", (*bench).distances}, {"threshold", (*bench).thresholds}, {"images", (*bench).images},
	{"contexts", (*bench).contexts}, {"processors", (*bench).processors},
}

func partNames() string {
	var names []string
	for _, p := range parts {
		names = append(names, p.name)
	}
	return strings.Join(names, ",")
}

func main() {
	b := &bench{}
	flag.StringVar(&b.out, "out", "BENCHMARKS.md", "the file whose sections are rewritten")
	flag.StringVar(&b.dir, "wal", "", "the directory for WAL, which is made once and stays; none: one that is removed at the end")
	chosen := flag.String("parts", partNames(), "which parts, separated by commas")
	names := flag.String("workloads", strings.Join(workload.Names(), ","), "which workloads, separated by commas")
	flag.StringVar(&b.binary, "binary", "bin/walproxy", "the walproxy to measure")
	flag.StringVar(&b.charts, "charts", "docs/charts", "the directory for charts")
	flag.BoolVar(&b.quick, "quick", false, "a few minutes: little WAL, one round, default levels, fewer tables")
	flag.Float64Var(&b.scale, "scale", 1, "factor for the workloads, beside what makes them write as much WAL as is kept")
	flag.Int64Var(&b.keepMiB, "keep", 0, "MiB of WAL of each workload; 0 is 16, or 4 with -quick")
	flag.Int64Var(&b.longMiB, "long", 0, "the same where windows of all sizes or many of them are needed; 0 is 64, or 16 with -quick")
	flag.IntVar(&b.rounds, "rounds", 0, "rounds of each measurement of speed, of which the fastest counts; 0 is 3, or 1 with -quick")
	flag.Parse()
	b.workloads = strings.Split(*names, ",")
	b.defaults()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := b.run(ctx, strings.Split(*chosen, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func (b *bench) defaults() {
	keep, long, rounds := int64(16), int64(64), 3
	if b.quick {
		keep, long, rounds = 4, 16, 1
	}
	if b.keepMiB == 0 {
		b.keepMiB = keep
	}
	if b.longMiB == 0 {
		b.longMiB = long
	}
	if b.rounds == 0 {
		b.rounds = rounds
	}
}

func (b *bench) run(ctx context.Context, chosen []string) (err error) {
	for _, name := range b.workloads {
		if workload.About(name) == "" {
			return fmt.Errorf("unknown workload %q: want some of %s", name, strings.Join(workload.Names(), ","))
		}
	}
	for _, name := range chosen {
		if !slices.ContainsFunc(parts, func(p part) bool { return p.name == name }) {
			return fmt.Errorf("unknown part %q: want some of %s", name, partNames())
		}
	}
	if b.binary, err = filepath.Abs(b.binary); err != nil {
		return err
	}
	if b.dir == "" {
		if b.dir, err = os.MkdirTemp("", "walproxy-bench-engine-"); err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(b.dir) }()
	}
	started := time.Now()
	for _, p := range parts {
		if !slices.Contains(chosen, p.name) {
			continue
		}
		if err := b.part(ctx, p); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		fmt.Fprintf(os.Stderr, "%s since the start\n\n", time.Since(started).Round(time.Second))
	}
	return nil
}

// part runs a part and writes its section, if it has anything to say.
func (b *bench) part(ctx context.Context, p part) error {
	b.report = report.Report{}
	started := time.Now()
	fmt.Fprintf(os.Stderr, "part %s\n", p.name)
	if err := p.do(b, ctx); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "part %s: done in %s, ", p.name, time.Since(started).Round(time.Second))
	if b.report.Empty() {
		return nil
	}
	return b.report.Write(b.out, "engine "+p.name, strings.Join(append([]string{"go run ./integration/bench/engine"}, os.Args[1:]...), " "))
}

// source is some WAL to measure on.
type source struct {
	workload, compression string
	clients               int   // 0: the usual number
	major                 int   // of the server; 0: the newest that has its client tools
	mib                   int64 // 0: as much as is kept of every workload
}

// make returns the directory with the WAL of s. It is made once.
func (b *bench) make(ctx context.Context, s source) (string, error) {
	if s.mib == 0 {
		s.mib = b.keepMiB
	}
	name := fmt.Sprintf("%s-%s-%d-%d-%dMiB-%g", s.workload, s.compression, s.clients, s.major, s.mib, b.scale)
	dir, started := filepath.Join(b.dir, name), time.Now()
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	segmentMiB := 16
	for int64(segmentMiB) > s.mib {
		segmentMiB /= 2
	}
	unfinished := dir + ".new"
	if err := os.RemoveAll(unfinished); err != nil {
		return "", err
	}
	r, err := workload.Generate(ctx, unfinished, workload.Options{
		Name: s.workload, Compression: s.compression, Clients: s.clients, Major: s.major, Scale: b.scale * workload.ScaleFor(s.workload, s.mib<<20),
		KeepBytes: s.mib << 20, SegmentMiB: segmentMiB,
	})
	if err != nil {
		return "", err
	}
	fmt.Fprintf(os.Stderr, "WAL %s: %d segments of %d MiB in %.1f s\n", name, r.Segments, segmentMiB, time.Since(started).Seconds())
	return dir, os.Rename(unfinished, dir)
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
