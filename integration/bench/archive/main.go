// Command archive measures the archive against pgBackRest and general compressors on the same WAL and writes its section of
// BENCHMARKS.md:
//
//	go run ./integration/bench/archive -binary bin/walproxy
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"walproxy/integration/bench/report"
	"walproxy/integration/pgcluster"
)

// bench is one run.
type bench struct {
	binary  string
	dir     string
	walMiB  int
	primary *pgcluster.Cluster
	files   []string // segments, in order
	bytes   int64
	report  report.Report
}

func main() {
	b := bench{}
	out := flag.String("out", "BENCHMARKS.md", "the file whose section is rewritten")
	flag.StringVar(&b.binary, "binary", "bin/walproxy", "the walproxy to measure")
	flag.IntVar(&b.walMiB, "wal", 256, "MiB of WAL")
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
	rows := []row{node}
	for _, measure := range []func(context.Context) (row, error){
		b.walproxy("auto"), b.walproxy("zstd"), b.pgBackRest,
		b.compressor("zstd -3", "zstd", "-3", "-q", "-k", "-f"), b.compressor("zstd -19", "zstd", "-19", "-q", "-k", "-f"), b.compressor("lz4", "lz4", "-q", "-k", "-f", "-m"),
	} {
		r, err := measure(ctx)
		if err != nil {
			return err
		}
		rows = append(rows, r)
	}
	b.write(rows)
	if err := b.requests(ctx); err != nil {
		return err
	}
	return b.report.Write(out, "archive", fmt.Sprintf("go run ./integration/bench/archive -wal %d", b.walMiB))
}

// row is what one way of archiving makes of the WAL.
type row struct {
	name      string
	stored    int64
	push, get time.Duration // 0: not measured
	pushRSS   int64         // bytes of the largest process
	getRSS    int64
}

func (b *bench) write(rows []row) {
	b.report.Line("## The archive\n")
	b.report.Line("%d segments of 16 MiB, pgbench's WAL with checkpoints. Each segment is pushed and fetched by a process of its own, one after", len(b.files))
	b.report.Line("the other, as a server does it; what comes back is compared. Stored bytes are all files. MB/s are 10^6 bytes of WAL; memory is the")
	b.report.Line("largest process'. The node archives from the stream while pgbench runs.\n")
	b.report.Line("| | stored | ratio | push MB/s | get MB/s | push MiB | get MiB |\n|---|--:|--:|--:|--:|--:|--:|")
	for _, r := range rows {
		b.report.Line("| %s | %.1f MiB | %.2f | %s | %s | %s | %s |", r.name, float64(r.stored)/(1<<20), float64(b.bytes)/float64(r.stored),
			b.speed(r.push), b.speed(r.get), memory(r.pushRSS), memory(r.getRSS))
	}
	b.report.Line("")
}

func (b *bench) speed(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f", float64(b.bytes)/1e6/d.Seconds())
}

func memory(rss int64) string {
	if rss == 0 {
		return ""
	}
	return fmt.Sprintf("%d", rss>>20)
}

// command runs a program and returns its peak memory in bytes.
func command(ctx context.Context, env []string, name string, args ...string) (int64, error) {
	cmd, err := pgcluster.Command(ctx, name, args...)
	if err != nil {
		return 0, err
	}
	cmd.Env = append(cmd.Env, env...)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil {
		return 0, fmt.Errorf("%s %v: %w: %s", filepath.Base(name), args, err, output.String())
	}
	usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0, errors.New("no resource usage")
	}
	return usage.Maxrss << 10, nil
}

// pushAndGet measures both ways over all segments. push gets the path of a segment, get its name and where to write it.
func (b *bench) pushAndGet(r row, push, get func(a, to string) (int64, error), store string) (row, error) {
	began := time.Now()
	for _, path := range b.files {
		rss, err := push(path, "")
		if err != nil {
			return r, err
		}
		r.pushRSS = max(r.pushRSS, rss)
	}
	r.push = time.Since(began)
	target := filepath.Join(b.dir, "RECOVERYXLOG")
	for _, path := range b.files {
		began := time.Now()
		rss, err := get(filepath.Base(path), target)
		r.get += time.Since(began)
		if err == nil {
			err = same(path, target)
		}
		if err != nil {
			return r, err
		}
		r.getRSS = max(r.getRSS, rss)
	}
	var err error
	r.stored, err = size(store)
	return r, err
}

func same(a, b string) error {
	x, err := os.ReadFile(a)
	if err != nil {
		return err
	}
	y, err := os.ReadFile(b)
	if err != nil {
		return err
	}
	if !bytes.Equal(x, y) {
		return fmt.Errorf("%s came back changed", filepath.Base(a))
	}
	return os.Remove(b)
}

// size returns the bytes of all files in a directory.
func size(dir string) (n int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		n += info.Size()
		return err
	})
	return n, err
}

// walproxy measures archive push and get with a codec, without reading ahead, which would hide the time of get.
func (b *bench) walproxy(codec string) func(context.Context) (row, error) {
	return func(ctx context.Context) (row, error) {
		dir := filepath.Join(b.dir, "archive-"+codec)
		store := "file://" + dir
		return b.pushAndGet(row{name: "walproxy archive push, " + codec},
			func(path, _ string) (int64, error) {
				return command(ctx, nil, b.binary, "archive", "push", "--store", store, "--codec", codec, path)
			},
			func(file, to string) (int64, error) {
				return command(ctx, nil, b.binary, "archive", "get", "--read-ahead", "0", "--store", store, file, to)
			}, dir)
	}
}

// compressor measures a program that makes one file of one segment.
func (b *bench) compressor(name, program string, args ...string) func(context.Context) (row, error) {
	return func(ctx context.Context) (row, error) {
		path, err := exec.LookPath(program)
		if err != nil {
			return row{}, err
		}
		r := row{name: name + ", each segment"}
		out := filepath.Join(b.dir, "compressed")
		began := time.Now()
		for _, file := range b.files {
			rss, err := command(ctx, nil, "/bin/sh", "-c", fmt.Sprintf("'%s' %s -c < '%s' > '%s'", path, join(args), file, out))
			if err != nil {
				return r, err
			}
			r.pushRSS = max(r.pushRSS, rss)
			info, err := os.Stat(out)
			if err != nil {
				return r, err
			}
			r.stored += info.Size()
		}
		r.push, r.pushRSS = time.Since(began), 0 // the shell's
		return r, nil
	}
}

func join(args []string) (text string) {
	for _, a := range args {
		if !slices.Contains([]string{"-k", "-f", "-m"}, a) {
			text += " " + a
		}
	}
	return text
}
