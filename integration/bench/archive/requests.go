package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"walproxy/integration/nodeproc"
	"walproxy/integration/pgcluster"
	"walproxy/integration/s3server"
	"walproxy/protocol"
)

// archived is what a node made of the WAL, and what it asked the bucket for.
type archived struct {
	row
	requests string
}

// nodePrefix is where the node archives to.
const nodePrefix = "node"

// perGiB returns what was counted, in words and for each GiB.
func perGiB(count map[string]int, bytes int64) string {
	var parts []string
	for method, n := range count {
		parts = append(parts, fmt.Sprintf("%.1f %s", float64(n)*(1<<30)/float64(bytes), method))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// generate starts a primary and a node that archives into a bucket, and lets pgbench write WAL.
func (b *bench) generate(ctx context.Context) (r archived, err error) {
	r.name = "walproxy node, auto"
	install, err := pgcluster.FindAny()
	if err != nil {
		return r, err
	}
	b.primary, err = pgcluster.Create(ctx, pgcluster.Options{Major: install.Major, KeepMiB: 64 << 10, Conf: []string{
		"shared_buffers = 256MB", "max_wal_size = 512MB", "checkpoint_timeout = 30s", "synchronous_commit = off", "wal_sender_timeout = 0"}})
	if err != nil {
		return r, err
	}
	if err := b.primary.Start(ctx); err != nil {
		return r, err
	}
	bucket, err := s3server.NewCounter(ctx)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, bucket.Close()) }()
	node, err := nodeproc.New(nodeproc.Options{Binary: b.binary, Dir: filepath.Join(b.dir, "node"), Env: bucket.Env(),
		Config: fmt.Sprintf("upstream:\n  conninfo: %q\n  slot: bench\n  create_slot: on\narchive:\n  store: %q\n", b.primary.Conninfo(), bucket.URL(nodePrefix))})
	if err != nil {
		return r, err
	}
	defer node.Kill()
	if err := node.StartReady(ctx); err != nil {
		return r, err
	}
	from, to, err := b.load(ctx)
	if err != nil {
		return r, err
	}
	b.progress(fmt.Sprintf("%d MiB of WAL", b.bytes>>20))
	err = b.awaitNode(ctx, &r, bucket.Path(nodePrefix), from, to)
	if err == nil {
		r.push.peak, err = peak(node.Process().PID())
	}
	r.requests = perGiB(bucket.Take(), b.bytes)
	b.progress(r.name)
	return r, err
}

// load lets pgbench write, and notes the segments.
func (b *bench) load(ctx context.Context) (from, to protocol.LSN, err error) {
	first, err := b.primary.FlushLSN(ctx)
	if err != nil {
		return 0, 0, err
	}
	size := b.primary.Options.SegmentBytes()
	from = first.Next(size)
	if _, err := b.primary.Pgbench(ctx, "-i", "-q", "-s", "20"); err != nil {
		return 0, 0, err
	}
	for to = from; uint64(to-from) < uint64(b.walMiB)<<20; {
		if _, err := b.primary.Pgbench(ctx, "-c", "4", "-T", "3", "-n", "-M", "prepared"); err != nil {
			return 0, 0, err
		}
		if to, err = b.primary.FlushLSN(ctx); err != nil {
			return 0, 0, err
		}
		to = min(to.Floor(size), from+protocol.LSN(b.walMiB)<<20)
	}
	for at := from; at < to; at = at.Next(size) {
		b.files = append(b.files, filepath.Join(b.primary.WALDir(), protocol.SegmentName(1, at, size)))
	}
	b.bytes = int64(len(b.files)) * int64(size)
	return from, to, nil
}

// awaitNode returns when all objects between two LSNs are there, and notes their bytes.
func (b *bench) awaitNode(ctx context.Context, r *archived, dir string, from, to protocol.LSN) error {
	return pgcluster.Until(ctx, func() (bool, error) {
		var covered protocol.LSN
		r.stored = 0
		objects, err := objectsOf(ctx, dir)
		if err != nil {
			return false, err
		}
		for _, o := range objects {
			if o.Start >= from && o.End <= to {
				r.stored, covered = r.stored+o.bytes, covered+(o.End-o.Start)
			}
		}
		return covered >= to-from, nil
	})
}

// bucket counts what a bucket is asked for by a push of all segments, and measures how they come back, as a recovering server
// fetches them.
func (b *bench) bucket(ctx context.Context, node archived) (err error) {
	c, err := s3server.NewCounter(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	store := c.URL("main")
	push := append([]string{"archive", "push", "--store", store}, b.files...)
	if _, err := command(ctx, c.Env(), b.binary, push...); err != nil {
		return err
	}
	pushed := perGiB(c.Take(), b.bytes)
	b.progress("pushed to S3")
	get := func(more ...string) func(file, to string) (cost, error) {
		return func(file, to string) (cost, error) {
			args := append([]string{"archive", "get", "--store", store}, more...)
			return command(ctx, c.Env(), b.binary, append(args, file, to)...)
		}
	}
	began := time.Now()
	if _, err := b.getAll(get("--read-ahead", "0")); err != nil {
		return err
	}
	alone, one := time.Since(began), perGiB(c.Take(), b.bytes)
	b.progress("restored from S3")
	began = time.Now()
	if _, err := b.getAll(get()); err != nil {
		return err
	}
	ahead, many := time.Since(began), perGiB(c.Take(), b.bytes)
	b.progress("restored from S3, reading ahead")
	b.report.Line("### Requests and restoring\n")
	b.report.Line("S3 is versitygw on this machine. Requests are counted before it, for a GiB of WAL; the seconds hold the comparison of every segment.\n")
	b.report.Line("| | requests | seconds for %d MiB |\n|---|---|--:|", b.bytes>>20)
	b.report.Line("| a node archives | %s | |", node.requests)
	b.report.Line("| `archive push`, all segments at once | %s | |", pushed)
	b.report.Line("| `archive get`, each segment, without reading ahead | %s | %.1f |", one, alone.Seconds())
	b.report.Line("| `archive get`, each segment, reading ahead | %s | %.1f |", many, ahead.Seconds())
	b.report.Line("")
	return nil
}
