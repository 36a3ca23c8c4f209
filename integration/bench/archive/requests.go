package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"walproxy/integration/nodeproc"
	"walproxy/integration/pgcluster"
	"walproxy/integration/s3server"
	"walproxy/protocol"
)

// counter passes requests on to an S3 server and counts them by method; a listing is a method of its own.
type counter struct {
	server *s3server.Server
	web    *httptest.Server
	mu     sync.Mutex
	count  map[string]int
}

func newCounter(ctx context.Context) (*counter, error) {
	server, err := s3server.New(ctx)
	if err != nil {
		return nil, err
	}
	target, err := url.Parse(server.Endpoint())
	if err != nil {
		return nil, errors.Join(err, server.Close())
	}
	c := &counter{server: server, count: map[string]int{}}
	pass := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = r.In.Host // it is signed
	}}
	c.web = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		method := r.Method
		if r.URL.Query().Has("list-type") {
			method = "LIST"
		}
		c.mu.Lock()
		c.count[method]++
		c.mu.Unlock()
		pass.ServeHTTP(w, r)
	}))
	return c, nil
}

func (c *counter) store(prefix string) string {
	return fmt.Sprintf("s3://%s/%s?endpoint=%s&region=%s", s3server.Bucket, prefix, c.web.URL, s3server.Region)
}

func (c *counter) close() error {
	c.web.Close()
	return c.server.Close()
}

// take returns what was counted, in words and for each GiB, and begins anew.
func (c *counter) take(bytes int64) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var parts []string
	for method, n := range c.count {
		parts = append(parts, fmt.Sprintf("%.0f %s", float64(n)*(1<<30)/float64(bytes), method))
	}
	slices.Sort(parts)
	c.count = map[string]int{}
	return strings.Join(parts, ", ")
}

// generate starts a primary and a node that archives into a directory, and lets pgbench write WAL.
func (b *bench) generate(ctx context.Context) (row, error) {
	r := row{name: "walproxy node, auto"}
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
	dir := filepath.Join(b.dir, "node-archive")
	node, err := nodeproc.New(nodeproc.Options{Binary: b.binary, Dir: filepath.Join(b.dir, "node"),
		Config: fmt.Sprintf("upstream:\n  conninfo: %q\n  slot: bench\n  create_slot: on\narchive:\n  store: file://%s\n", b.primary.Conninfo(), dir)})
	if err != nil {
		return r, err
	}
	defer node.Kill()
	if err := node.StartReady(ctx); err != nil {
		return r, err
	}
	first, err := b.primary.FlushLSN(ctx)
	if err != nil {
		return r, err
	}
	size := b.primary.Options.SegmentBytes()
	from := first.Next(size)
	if _, err := b.primary.Pgbench(ctx, "-i", "-q", "-s", "10"); err != nil {
		return r, err
	}
	to := from
	for uint64(to-from) < uint64(b.walMiB)<<20 {
		if _, err := b.primary.Pgbench(ctx, "-c", "4", "-T", "3", "-n"); err != nil {
			return r, err
		}
		if to, err = b.primary.FlushLSN(ctx); err != nil {
			return r, err
		}
		to = min(to.Floor(size), from+(protocol.LSN(b.walMiB)<<20).Next(size))
	}
	for at := from; at < to; at = at.Next(size) {
		b.files = append(b.files, filepath.Join(b.primary.WALDir(), protocol.SegmentName(1, at, size)))
	}
	b.bytes = int64(len(b.files)) * int64(size)
	r.stored, r.pushRSS, err = b.awaitNode(ctx, node, dir, from, to)
	return r, err
}

// awaitNode returns the bytes of the objects between two LSNs when all of them are there, and the node's peak memory.
func (b *bench) awaitNode(ctx context.Context, node *nodeproc.Node, dir string, from, to protocol.LSN) (stored, rss int64, err error) {
	err = pgcluster.Until(ctx, func() (bool, error) {
		stored = 0
		var covered protocol.LSN
		objects, err := objectsOf(ctx, dir)
		if err != nil {
			return false, err
		}
		for _, o := range objects {
			if o.Start >= from && o.End <= to {
				stored, covered = stored+o.bytes, covered+(o.End-o.Start)
			}
		}
		return covered >= to-from, nil
	})
	if err == nil {
		rss, err = peak(node.Process().PID())
	}
	return stored, rss, err
}

// requests counts what a bucket is asked: by a push and a get of every segment.
func (b *bench) requests(ctx context.Context) (err error) {
	c, err := newCounter(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	push := append([]string{"archive", "push", "--codec", "zstd", "--store", c.store("main")}, b.files...)
	if _, err := command(ctx, c.server.Env(), b.binary, push...); err != nil {
		return err
	}
	pushed := c.take(b.bytes)
	began := time.Now()
	target := filepath.Join(b.dir, "RECOVERYXLOG")
	for _, path := range b.files {
		if _, err := command(ctx, c.server.Env(), b.binary, "archive", "get", "--read-ahead", "0", "--store", c.store("main"), filepath.Base(path), target); err != nil {
			return err
		}
		if err := same(path, target); err != nil {
			return err
		}
	}
	took := time.Since(began)
	b.report.Line("Requests to an S3 server (versitygw on this machine) for a GiB of WAL: to push in one batch %s; to restore, a process for each", pushed)
	b.report.Line("segment, %s, at %.0f MB/s.\n", c.take(b.bytes), float64(b.bytes)/1e6/took.Seconds())
	return nil
}
