// Package workload makes real WAL: a throwaway server prepares tables and runs one of several loads, and the segments that the
// load wrote are kept. Data is computed from row numbers or with a fixed seed, so that two runs write much the same; what differs
// is the order of concurrent transactions, timestamps, and the random values of workload mixed.
package workload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"walproxy/integration/pgcluster"
	"walproxy/protocol"
)

// Options say which WAL is made.
type Options struct {
	Name        string  // of a workload: one of Names
	Compression string  // wal_compression: off, pglz, lz4, zstd; "" is off. The latter two from version 15 on
	Major       int     // of the server; 0 is the newest that has its client tools
	SegmentMiB  int     // 0 is PostgreSQL's 16
	Scale       float64 // factor for rows and transactions; 0 is 1
	Clients     int     // of the concurrent workloads; 0 is what the workload has by itself
	KeepBytes   int64   // keep no more than the first segments up to so many bytes; 0 is all
}

// Result says what was made.
type Result struct {
	Major      int
	Segments   int
	Begin, End protocol.LSN // of what the load wrote: Begin starts a segment, End lies behind the last record
}

// Generate runs the workload and leaves its segments in dir, which is made if it is not there.
//
// Errors: of class pgcluster.ErrMissing without a server; those of the server.
func Generate(ctx context.Context, dir string, o Options) (r Result, err error) {
	w, err := find(o.Name)
	if err != nil {
		return r, err
	}
	if o.Scale == 0 {
		o.Scale = 1
	}
	if o.Major == 0 {
		install, err := pgcluster.FindAny()
		if err != nil {
			return r, err
		}
		o.Major = install.Major
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return r, err
	}
	compression, err := walCompression(o.Compression, o.Major)
	if err != nil {
		return r, err
	}
	c, err := pgcluster.Create(ctx, pgcluster.Options{
		Major: o.Major, SegmentMiB: o.SegmentMiB, NoFsync: true, KeepMiB: 16 << 10,
		Conf: append([]string{
			"shared_buffers = 256MB", "max_connections = 100", "max_wal_size = 32GB", "checkpoint_timeout = 1h", "maintenance_work_mem = 128MB", compression,
		}, w.conf...),
	})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := c.Start(ctx); err != nil {
		return r, err
	}
	l := &load{cluster: c, options: o}
	if r, err = l.do(ctx, w); err != nil {
		return r, fmt.Errorf("workload %s: %w", o.Name, err)
	}
	return r, l.keep(dir, &r)
}

// walCompression returns the line of postgresql.conf.
func walCompression(method string, major int) (string, error) {
	switch method {
	case "", "off":
		return "wal_compression = off", nil
	case "pglz":
		if major < 15 { // which know no other
			return "wal_compression = on", nil
		}
		return "wal_compression = pglz", nil
	case "lz4", "zstd":
		if major >= 15 {
			return "wal_compression = " + method, nil
		}
		return "", fmt.Errorf("PostgreSQL %d has no wal_compression = %s", major, method)
	}
	return "", fmt.Errorf("wal_compression %q: want off, pglz, lz4 or zstd", method)
}

// load is a workload at work.
type load struct {
	cluster *pgcluster.Cluster
	options Options
}

func (l *load) do(ctx context.Context, w *workload) (r Result, err error) {
	r.Major = l.cluster.Major
	if err := w.prepare(ctx, l); err != nil {
		return r, fmt.Errorf("prepare: %w", err)
	}
	if err := l.exec(ctx, "CHECKPOINT"); err != nil {
		return r, err
	}
	if _, err := l.cluster.SwitchWAL(ctx); err != nil {
		return r, err
	}
	segment := l.cluster.Options.SegmentBytes()
	if r.Begin, err = l.cluster.CurrentLSN(ctx); err != nil {
		return r, err
	}
	r.Begin = r.Begin.Floor(segment)
	if err := w.run(ctx, l); err != nil {
		return r, fmt.Errorf("run: %w", err)
	}
	r.End, err = l.cluster.SwitchWAL(ctx)
	return r, err
}

// keep copies the segments of the load to dir.
func (l *load) keep(dir string, r *Result) error {
	segment := l.cluster.Options.SegmentBytes()
	for at := r.Begin; at < r.End; at += protocol.LSN(segment) {
		if l.options.KeepBytes > 0 && r.Segments > 0 && int64(r.Segments+1)*int64(segment) > l.options.KeepBytes {
			r.End = at
			break
		}
		name := protocol.SegmentName(1, at, segment)
		if err := copyFile(filepath.Join(dir, name), filepath.Join(l.cluster.WALDir(), name)); err != nil {
			return err
		}
		r.Segments++
	}
	return nil
}

func copyFile(to, from string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }()
	dst, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	return errors.Join(err, dst.Close())
}

// exec runs statements, each in a transaction of its own.
func (l *load) exec(ctx context.Context, statements ...string) error {
	for _, sql := range statements {
		if err := l.cluster.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// n scales a number of rows or transactions.
func (l *load) n(full int) int { return max(1, int(float64(full)*l.options.Scale)) }

// clients returns how many run concurrently.
func (l *load) clients(usual int) int {
	if l.options.Clients > 0 {
		return l.options.Clients
	}
	return usual
}

// pgbench runs transactions for each of the clients, reproducibly as far as concurrency allows.
func (l *load) pgbench(ctx context.Context, clients, transactions int, args ...string) error {
	args = append([]string{
		"-n", "--random-seed=20", "-c", strconv.Itoa(clients), "-j", strconv.Itoa(min(2, clients)), "-t", strconv.Itoa(transactions),
	}, args...)
	_, err := l.cluster.Pgbench(ctx, args...)
	return err
}
