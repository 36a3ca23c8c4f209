package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"walproxy/integration/nodeproc"
	"walproxy/integration/pgcluster"
)

// metricBackup counts what a node gets from its upstream for base backups.
const metricBackup = "walproxy_base_backup_received_bytes_total"

// baseBackup measures pg_basebackup from the primary, through a compressed link, and with the server's own compression.
func (b *bench) baseBackup(ctx context.Context) error {
	primary, err := b.primary(ctx, b.scale, "wal_level = replica")
	if primary != nil {
		defer func() { _ = primary.Close() }()
	}
	if err != nil {
		return err
	}
	if _, err := primary.Pgbench(ctx, "-c", "2", "-t", "2000"); err != nil {
		return err
	}
	a, err := b.node(ctx, primary.Conninfo(), "")
	defer closeNode(a)
	if err != nil {
		return err
	}
	second, err := b.node(ctx, a.Conninfo(), "")
	defer closeNode(second)
	if err != nil {
		return err
	}
	paths := []backupPath{
		{name: "primary → pg_basebackup", conninfo: primary.Conninfo()},
		{name: "primary → A → pg_basebackup", conninfo: a.Conninfo()},
		{name: "primary → A ═ B → pg_basebackup", conninfo: second.Conninfo(), link: second},
		{name: "primary → pg_basebackup --compress=server-zstd", conninfo: primary.Conninfo(), args: []string{"--compress=server-zstd"}},
	}
	for range b.rounds {
		for i := range paths {
			if err := b.backUp(ctx, primary, &paths[i]); err != nil {
				return err
			}
		}
	}
	b.report.Line("### Base backups\n")
	b.report.Line("pg_basebackup of a pgbench database at scale %d, after 4,000 transactions, in tar format without WAL, written to this disk\n"+
		"without fsync. Best of %d rounds, all paths in turn. Bytes: of the link, and of the files where the server compresses.\n", b.scale, b.rounds)
	b.report.Line("| path | MB/s of data | ratio to direct | bytes on the way |\n|---|---:|---:|---:|")
	for _, p := range paths {
		b.report.Line("| %s | %.0f | %.2f | %s |", p.name, paths[0].data/1e6/p.best, paths[0].best/p.best, megabytes(p.way))
	}
	b.report.Line("")
	return nil
}

// backupPath is one way of a backup.
type backupPath struct {
	name, conninfo string
	args           []string
	link           *nodeproc.Node // the node that gets it over a link

	best float64 // seconds
	data float64 // bytes in the files
	way  float64 // bytes on the way
}

// backUp takes one backup and removes it.
func (b *bench) backUp(ctx context.Context, primary *pgcluster.Cluster, p *backupPath) error {
	tool, err := primary.Install.Tool("pg_basebackup")
	if err != nil {
		return err
	}
	before, err := linkBytes(p.link)
	if err != nil {
		return err
	}
	dir := filepath.Join(b.dir, "backup")
	defer func() { _ = os.RemoveAll(dir) }()
	args := append([]string{"-d", p.conninfo, "-D", dir, "-Ft", "-X", "none", "-c", "fast", "--no-sync"}, p.args...)
	started := time.Now()
	if _, err := pgcluster.RunAs(ctx, tool, args...); err != nil {
		return err
	}
	took := time.Since(started).Seconds()
	if p.best == 0 || took < p.best {
		p.best = took
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	p.data = 0
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return err
		}
		p.data += float64(info.Size())
	}
	after, err := linkBytes(p.link)
	p.way = after - before
	if p.link == nil {
		p.way = p.data
	}
	return err
}

func linkBytes(n *nodeproc.Node) (float64, error) {
	if n == nil {
		return 0, nil
	}
	metrics, err := n.Metrics()
	return metrics[metricBackup], err
}

func megabytes(bytes float64) string { return fmt.Sprintf("%.2f MB", bytes/1e6) }
