// Command archive measures the archive against pgBackRest and general compressors on the same WAL and writes its section of
// BENCHMARKS.md:
//
//	go run ./integration/bench/archive -binary bin/walproxy
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"walproxy/integration/bench/report"
	"walproxy/integration/pgcluster"
)

// slowSample is how many segments the slowest compressor is measured on: all would take most of the time.
const slowSample = 4

// bench is one run.
type bench struct {
	binary  string
	dir     string
	walMiB  int
	primary *pgcluster.Cluster
	files   []string // segments, in order
	bytes   int64
	report  report.Report
	began   time.Time
}

func main() {
	b := bench{began: time.Now()}
	out := flag.String("out", "BENCHMARKS.md", "the file whose section is rewritten")
	flag.StringVar(&b.binary, "binary", "bin/walproxy", "the walproxy to measure")
	flag.IntVar(&b.walMiB, "wal", 1024, "MiB of WAL")
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
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	node, err := b.generate(ctx)
	if b.primary != nil {
		defer func() { err = errors.Join(err, b.primary.Close()) }()
	}
	if err != nil {
		return err
	}
	rows := []row{node.row}
	for _, measure := range []func(context.Context) (row, error){
		b.walproxy("auto"), b.walproxy("zstd"), b.pgBackRest,
		b.compressor("zstd -3", len(b.files), "zstd", "-3", "-q", "-c"), b.compressor("lz4", len(b.files), "lz4", "-q", "-c"),
		b.compressor("zstd -19", slowSample, "zstd", "-19", "-q", "-c"),
	} {
		r, err := measure(ctx)
		if err != nil {
			return err
		}
		b.progress(r.name)
		rows = append(rows, r)
	}
	b.write(rows)
	if err := b.bucket(ctx, node); err != nil {
		return err
	}
	return b.report.Write(out, "archive", fmt.Sprintf("go run ./integration/bench/archive -wal %d", b.walMiB))
}

// progress says on standard error what was done.
func (b *bench) progress(what string) {
	fmt.Fprintf(os.Stderr, "bench: %s after %s\n", what, time.Since(b.began).Round(time.Second))
}

func (b *bench) write(rows []row) {
	b.report.Line("### Stored bytes, speed, memory\n")
	b.report.Line("%d segments of 16 MiB of pgbench's WAL, with checkpoints. A process for each segment pushes it, and another one gets it, one after", len(b.files))
	b.report.Line("the other, without reading ahead; what comes back is compared. The node archives to S3 from the stream while pgbench runs.")
	b.report.Line("Stored: all files. MB/s: 10^6 bytes of WAL, the start of the processes included. CPU: seconds for a GiB of WAL. MiB: resident")
	b.report.Line("memory of the largest process at its peak, the node's with its spool. `zstd -19` was measured on %d segments.\n", min(slowSample, len(b.files)))
	b.report.Line("| | stored MiB | ratio | push MB/s | CPU | MiB | get MB/s | CPU | MiB |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|")
	for _, r := range rows {
		if r.of == 0 {
			r.of = b.bytes
		}
		ratio := float64(r.of) / float64(r.stored)
		b.report.Line("| %s | %.1f | %.1f | %s | %s |", r.name, float64(b.bytes)/ratio/(1<<20), ratio, r.push.columns(r.of), r.get.columns(b.bytes))
	}
	b.report.Line("")
}

// columns shows what it took to handle so many bytes: speed, CPU time, memory.
func (c cost) columns(bytes int64) string {
	speed, cpu, peak := "", "", ""
	if c.wall > 0 {
		speed = fmt.Sprintf("%.0f", float64(bytes)/1e6/c.wall.Seconds())
		if float64(bytes)/1e6/c.wall.Seconds() < 10 {
			speed = fmt.Sprintf("%.1f", float64(bytes)/1e6/c.wall.Seconds())
		}
	}
	if c.cpu > 0 {
		cpu = fmt.Sprintf("%.1f", c.cpu.Seconds()*(1<<30)/float64(bytes))
	}
	if c.peak > 0 {
		peak = fmt.Sprintf("%d", c.peak>>20)
	}
	return speed + " | " + cpu + " | " + peak
}

// walproxy measures archive push and get with a codec, without reading ahead, which would hide the time of get.
func (b *bench) walproxy(codec string) func(context.Context) (row, error) {
	return func(ctx context.Context) (row, error) {
		dir := filepath.Join(b.dir, "archive-"+codec)
		store := "file://" + dir
		return b.pushAndGet(row{name: "walproxy archive push, " + codec},
			func(path string) (cost, error) {
				return command(ctx, nil, b.binary, "archive", "push", "--store", store, "--codec", codec, path)
			},
			func(file, to string) (cost, error) {
				return command(ctx, nil, b.binary, "archive", "get", "--read-ahead", "0", "--store", store, file, to)
			}, dir)
	}
}

// compressor measures a program that makes one file of one segment, on so many of them, which lie apart.
func (b *bench) compressor(name string, count int, program string, args ...string) func(context.Context) (row, error) {
	return func(ctx context.Context) (row, error) {
		path, err := exec.LookPath(program)
		if err != nil {
			return row{}, err
		}
		count = min(count, len(b.files))
		r := row{name: name + ", each segment", of: b.bytes / int64(len(b.files)) * int64(count)}
		out := filepath.Join(b.dir, "compressed")
		for i := range count {
			file := b.files[i*len(b.files)/count]
			c, err := command(ctx, nil, "/bin/sh", append([]string{"-c", `to=$1; shift; "$@" > "$to"`, "sh", out, path}, append(args, file)...)...)
			if err != nil {
				return r, err
			}
			r.push.add(c)
			info, err := os.Stat(out)
			if err != nil {
				return r, err
			}
			r.stored += info.Size()
		}
		r.push.peak = 0 // of no interest
		return r, nil
	}
}
