package main

import (
	"bufio"
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

// latency measures commits that wait for a synchronous standby: connected straight, through one node and through two. A node
// reports what its consumer has flushed.
func (b *bench) latency(ctx context.Context) error {
	b.report.Line("### Commit latency\n")
	b.report.Line("pgbench -c 1 for %d s, synchronous_commit = on, the standby is the synchronous one; nodes report the standby's flush.\n", b.seconds)
	b.report.Line("All servers and nodes share one disk here, so their fsyncs wait for each other; the last row leaves the nodes' own out\n" +
		"(`spool.fsync: off`), which shows what the way through them costs.\n")
	b.report.Line("| path | p50 ms | p99 ms | added p50 ms | link bytes / WAL bytes |\n|---|---:|---:|---:|---:|")
	var base float64
	for i, path := range []string{"primary → standby", "primary → A → standby", "primary → A ═ B → standby", "the same, nodes without fsync"} {
		settings := "acknowledge:\n  write: min\n  flush: min\n"
		if i == 3 {
			settings += "spool:\n  fsync: off\n"
		}
		l, err := b.latencyThrough(ctx, min(i, 2), settings)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if i == 0 {
			base = l.p50
		}
		b.report.Line("| %s | %.3f | %.3f | %.3f | %s |", path, l.p50, l.p99, l.p50-base, l.link)
	}
	b.report.Line("")
	return nil
}

type latencies struct {
	p50, p99 float64 // milliseconds
	link     string  // bytes on the link for a byte of WAL
}

func (b *bench) latencyThrough(ctx context.Context, count int, settings string) (l latencies, err error) {
	primary, err := b.primary(ctx, 5)
	if primary != nil {
		defer func() { _ = primary.Close() }()
	}
	if err != nil {
		return l, err
	}
	upstream := primary.Conninfo() + " application_name=sync"
	var nodes []*nodeproc.Node
	defer func() {
		for _, n := range nodes {
			closeNode(n)
		}
	}()
	for range count {
		n, err := b.node(ctx, upstream, settings)
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
	if err := primary.Configure("synchronous_standby_names = 'sync'"); err != nil {
		return l, err
	}
	if err := primary.Reload(); err != nil {
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
	l.link, err = linkShare(nodes)
	return l, err
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
