package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"walproxy/integration/nodeproc"
	"walproxy/integration/pgcluster"
)

// latencyPath is one way from the primary to its synchronous standby.
type latencyPath struct {
	name     string
	nodes    int
	settings string // of the nodes
	measured []latencies
}

type latencies struct {
	p50, p99 float64 // milliseconds
	link     string  // bytes on the link for a byte of WAL
}

func (b *bench) latencyPaths() []*latencyPath {
	const acknowledge, noSync = "acknowledge:\n  write: min\n  flush: min\n", "spool:\n  fsync: off\n"
	paths := []*latencyPath{
		{name: "primary → standby"},
		{name: "primary → A → standby, codec none", nodes: 1, settings: acknowledge + "recompress:\n  codec: none\n"},
	}
	for _, sync := range []string{"", noSync} {
		for _, codec := range strings.Split(b.codecs, ",") {
			p := &latencyPath{name: "primary → A ═ B → standby, codec " + codec, nodes: 2,
				settings: acknowledge + sync + "recompress:\n  codec: " + codec + "\n"}
			if sync != "" {
				p.name += ", nodes without fsync"
			}
			paths = append(paths, p)
		}
	}
	return paths
}

// latency measures commits that wait for a synchronous standby: connected straight, through one node and through two. A node
// reports what its consumer has flushed. The paths take turns, so that a machine that gets slower does so for all of them.
func (b *bench) latency(ctx context.Context) error {
	primary, err := b.primary(ctx, 5)
	if primary != nil {
		defer func() { _ = primary.Close() }()
	}
	if err != nil {
		return err
	}
	paths := b.latencyPaths()
	for range b.rounds {
		for _, p := range paths {
			l, err := b.latencyThrough(ctx, primary, p)
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			fmt.Fprintf(os.Stderr, "%s: %.3f ms, %.3f ms\n", p.name, l.p50, l.p99)
			p.measured = append(p.measured, l)
		}
	}
	b.report.Line("### Commit latency\n")
	b.report.Line("pgbench -c 1 for %d s, synchronous_commit = on, the standby is the synchronous one; nodes report the standby's flush.\n"+
		"Median of %d rounds.\n", b.seconds, b.rounds)
	b.report.Line("All servers and nodes share one disk and the CPUs here, so their fsyncs wait for each other; rows without fsync leave the\n" +
		"nodes' own out (`spool.fsync: off`), which shows what the way through them costs.\n")
	b.report.Line("| path | p50 ms | p99 ms | added p50 ms | link bytes / WAL bytes |\n|---|---:|---:|---:|---:|")
	base := paths[0].median()
	for _, p := range paths {
		l := p.median()
		b.report.Line("| %s | %.3f | %.3f | %.3f | %s |", p.name, l.p50, l.p99, l.p50-base.p50, l.link)
	}
	b.report.Line("")
	return nil
}

// median returns the round whose p50 is in the middle.
func (p *latencyPath) median() latencies {
	slices.SortFunc(p.measured, func(a, b latencies) int { return cmp.Compare(a.p50, b.p50) })
	return p.measured[len(p.measured)/2]
}

func (b *bench) latencyThrough(ctx context.Context, primary *pgcluster.Cluster, p *latencyPath) (l latencies, err error) {
	upstream := primary.Conninfo() + " application_name=sync"
	var nodes []*nodeproc.Node
	defer func() {
		for _, n := range nodes {
			closeNode(n)
		}
	}()
	for range p.nodes {
		n, err := b.node(ctx, upstream, p.settings)
		nodes = append(nodes, n)
		if err != nil {
			return l, err
		}
		upstream = n.Conninfo() + " application_name=sync"
	}
	standby, err := b.standby(ctx, primary, upstream)
	if standby != nil {
		defer func() { _ = standby.Close() }()
	}
	if err != nil {
		return l, err
	}
	if err := setSynchronous(ctx, primary, "sync"); err != nil {
		return l, err
	}
	err = pgcluster.Until(ctx, func() (bool, error) {
		state, err := primary.Value(ctx, "select coalesce(max(sync_state), '') from pg_stat_replication")
		return state == "sync", err
	})
	if err != nil {
		return l, err
	}
	if l.p50, l.p99, err = b.pgbenchLatency(ctx, primary); err != nil {
		return l, err
	}
	if l.link, err = linkShare(nodes); err != nil {
		return l, err
	}
	return l, setSynchronous(ctx, primary, "")
}

// setSynchronous sets synchronous_standby_names.
func setSynchronous(ctx context.Context, primary *pgcluster.Cluster, names string) error {
	if err := primary.Configure("synchronous_standby_names = '" + names + "'"); err != nil {
		return err
	}
	if err := primary.Reload(); err != nil {
		return err
	}
	return pgcluster.Until(ctx, func() (bool, error) {
		now, err := primary.Value(ctx, "SHOW synchronous_standby_names")
		return now == names, err
	})
}

func (b *bench) standby(ctx context.Context, primary *pgcluster.Cluster, upstream string) (*pgcluster.Cluster, error) {
	standby, err := primary.BaseBackup(ctx, "", primary.Conninfo(), "--wal-method=none", "--checkpoint=fast")
	if err != nil {
		return nil, err
	}
	if err := standby.MakeStandby(upstream, ""); err != nil {
		return standby, err
	}
	return standby, standby.Start(ctx)
}

// pgbenchLatency runs pgbench with one client and returns percentiles of its transactions in milliseconds.
func (b *bench) pgbenchLatency(ctx context.Context, primary *pgcluster.Cluster) (p50, p99 float64, err error) {
	dir, err := pgcluster.TempDir("walproxy-pgbench-")
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	prefix := filepath.Join(dir, "log")
	if _, err := primary.Pgbench(ctx, "-n", "-c", "1", "-T", strconv.Itoa(b.seconds), "-l", "--log-prefix="+prefix); err != nil {
		return 0, 0, err
	}
	files, err := filepath.Glob(prefix + ".*")
	if err != nil || len(files) == 0 {
		return 0, 0, fmt.Errorf("pgbench left no log in %s: %w", dir, err)
	}
	times, err := readLog(files[0])
	if err != nil {
		return 0, 0, err
	}
	slices.Sort(times)
	return times[len(times)/2], times[len(times)*99/100], nil
}

// readLog returns the transactions' times in milliseconds from a pgbench log; its third column counts microseconds.
func readLog(file string) ([]float64, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var times []float64
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 3 {
			continue
		}
		us, err := strconv.ParseFloat(fields[2], 64)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		times = append(times, us/1000)
	}
	if len(times) == 0 {
		return nil, fmt.Errorf("read %s: no transactions", file)
	}
	return times, lines.Err()
}

// linkShare returns what the link from the first node carried, as a share of the WAL.
func linkShare(nodes []*nodeproc.Node) (string, error) {
	if len(nodes) < 2 {
		return "-", nil
	}
	m, err := nodes[0].Metrics()
	if err != nil {
		return "", err
	}
	sent, wal := m["walproxy_link_sent_bytes_total"], m["walproxy_link_sent_wal_bytes_total"]
	if wal == 0 {
		return "", fmt.Errorf("node A sent no frames")
	}
	return fmt.Sprintf("%.3f (%.1fx)", sent/wal, wal/sent), nil
}
