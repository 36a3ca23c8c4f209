package integration

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"testing"

	"walproxy/integration/nodeproc"
	"walproxy/integration/pgcluster"
	"walproxy/protocol"
)

// relay is the topology that most tests are about: primary → node A ═ node B → standby, and pg_receivewal on both nodes.
type relay struct {
	ctx      context.Context
	t        *testing.T
	primary  *pgcluster.Cluster
	a, b     *nodeproc.Node
	standby  *pgcluster.Cluster
	receiveA *pgcluster.Receivewal // nil if there is no pg_receivewal for this version
	receiveB *pgcluster.Receivewal
	from     protocol.LSN // first byte that everybody holds
}

// fastRetry makes servers notice and mend faults quickly.
var fastRetry = []string{"wal_sender_timeout = 5s", "wal_receiver_timeout = 5s", "wal_retrieve_retry_interval = 100ms", "wal_receiver_status_interval = 1s"}

// fastNode is the same for nodes.
func fastNode(upstream, more string) string {
	return fmt.Sprintf("upstream:\n  conninfo: %q\n  status_interval: 1s\n  receiver_timeout: 5s\n  backoff_max: 300ms\n"+
		"listen:\n  wal_sender_timeout: 5s\n  drain_timeout: 3s\n%s", upstream, more)
}

// startRelay starts everything. options.Major chooses the version.
func startRelay(ctx context.Context, t *testing.T, options pgcluster.Options) *relay {
	t.Helper()
	return startRelayWith(ctx, t, options, "")
}

// startRelayWith is startRelay with more configuration for both nodes.
func startRelayWith(ctx context.Context, t *testing.T, options pgcluster.Options, config string) *relay {
	t.Helper()
	options.Conf = append(options.Conf, fastRetry...)
	return relayBehind(ctx, t, startPrimary(ctx, t, options), config)
}

// relayBehind starts everything but the primary.
func relayBehind(ctx context.Context, t *testing.T, primary *pgcluster.Cluster, config string) *relay {
	t.Helper()
	r := &relay{ctx: ctx, t: t, primary: primary}
	r.standby = cloneOf(ctx, t, r.primary)
	r.a = startNode(ctx, t, nodeproc.Options{Config: fastNode(r.primary.Conninfo(), config)})
	r.b = startNode(ctx, t, nodeproc.Options{Config: fastNode(r.a.Conninfo(), config)})
	must(t, r.standby.MakeStandby(r.b.Conninfo(), ""))
	must(t, r.standby.Start(ctx))
	lsn := write(ctx, t, r.primary, 1)
	r.from = lsn.Floor(r.primary.Options.SegmentBytes())
	if _, tool, err := pgcluster.FindTool("pg_receivewal"); err == nil && tool >= primary.Major {
		r.receiveA, r.receiveB = receive(t, r.a.Conninfo()), receive(t, r.b.Conninfo())
	}
	r.caughtUp(lsn)
	return r
}

// caughtUp waits until the standby and both pg_receivewal have everything up to lsn.
func (r *relay) caughtUp(lsn protocol.LSN) {
	r.t.Helper()
	if err := r.standby.WaitReplayed(r.ctx, lsn); err != nil {
		r.t.Fatalf("standby behind two nodes: %v", err)
	}
	for _, receiver := range []*pgcluster.Receivewal{r.receiveA, r.receiveB} {
		if receiver != nil {
			r.waitReceived(receiver, lsn)
		}
	}
}

func (r *relay) source(dir string) pgcluster.Source {
	return pgcluster.Source{Dir: dir, SegmentBytes: r.primary.Options.SegmentBytes()}
}

func (r *relay) waitReceived(receiver *pgcluster.Receivewal, lsn protocol.LSN) {
	r.t.Helper()
	err := pgcluster.Until(r.ctx, func() (bool, error) {
		if !receiver.Running() {
			return false, fmt.Errorf("pg_receivewal ended: %s", receiver.Log(4096))
		}
		return pgcluster.CompareWAL(r.primary.WAL(), r.source(receiver.Dir), 1, lsn-8, lsn) == nil, nil
	})
	if err != nil {
		r.t.Fatalf("pg_receivewal in %s does not reach %s: %v", receiver.Dir, lsn, err)
	}
}

// same ends the test: everybody has the same rows and the same WAL.
func (r *relay) same() {
	r.t.Helper()
	lsn := write(r.ctx, r.t, r.primary, 1)
	r.caughtUp(lsn)
	sameRows(r.ctx, r.t, r.primary, r.standby)
	others := []pgcluster.Source{r.standby.WAL()}
	for _, receiver := range []*pgcluster.Receivewal{r.receiveA, r.receiveB} {
		if receiver != nil {
			others = append(others, r.source(receiver.Dir))
		}
	}
	sameWAL(r.t, 1, r.from, lsn, r.primary.WAL(), others...)
}

// TestRelay is the product's promise for every version: a stock standby follows its primary through two nodes, byte for
// byte, through restarts of everybody.
func TestRelay(t *testing.T) {
	eachMajor(t, func(ctx context.Context, t *testing.T, major int) {
		r := startRelay(ctx, t, pgcluster.Options{Major: major})
		restarts := []struct {
			what string
			do   func() error
		}{
			{"node B", func() error { return restartNode(ctx, r.b) }},
			{"node A", func() error { return restartNode(ctx, r.a) }},
			{"primary", func() error { return r.primary.Restart(ctx, pgcluster.Fast) }},
			{"standby", func() error { return r.standby.Restart(ctx, pgcluster.Fast) }},
		}
		for _, restart := range restarts {
			must(t, r.primary.Exec(ctx, "CHECKPOINT")) // page images follow
			write(ctx, t, r.primary, 5000)
			if err := restart.do(); err != nil {
				t.Fatalf("restart %s: %v", restart.what, err)
			}
			_, err := r.primary.SwitchWAL(ctx)
			must(t, err)
			r.caughtUp(write(ctx, t, r.primary, 5000))
		}
		r.same()
	})
}

func restartNode(ctx context.Context, n *nodeproc.Node) error {
	if err := n.Stop(ctx); err != nil {
		return err
	}
	return n.StartReady(ctx)
}

// TestRelayUnderLoad runs pgbench and restarts the nodes meanwhile.
func TestRelayUnderLoad(t *testing.T) {
	t.Parallel()
	ctx := setting(t, patience)
	r := startRelay(ctx, t, pgcluster.Options{Major: 15, Autovacuum: true})
	_, err := r.primary.Pgbench(ctx, "-i", "-q", "-s", "2")
	must(t, err)
	for _, n := range []*nodeproc.Node{r.a, r.b} { // so that sealed windows are served from here on
		must(t, pgcluster.Until(ctx, func() (bool, error) {
			m, err := n.Metrics()
			return m["walproxy_spool_sealed_windows_total"] > 0, err
		}))
	}
	stop := load(ctx, r.primary)
	for _, n := range []*nodeproc.Node{r.a, r.b, r.a, r.b} {
		before, err := r.primary.FlushLSN(ctx)
		must(t, err)
		must(t, pgcluster.Until(ctx, func() (bool, error) { // some load between two restarts
			now, err := r.primary.FlushLSN(ctx)
			return now > before+1<<20, err
		}))
		must(t, restartNode(ctx, n))
	}
	must(t, stop())
	r.same()
}

// load runs pgbench again and again until the function that it returns is called, which waits for its end.
func load(ctx context.Context, c *pgcluster.Cluster) (stop func() error) {
	end, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			if _, err := c.Pgbench(ctx, "-n", "-c", "4", "-j", "2", "-T", "2"); err != nil {
				ended <- err
				return
			}
			select {
			case <-end:
				ended <- nil
				return
			default:
			}
		}
	}()
	return func() error {
		close(end)
		return <-ended
	}
}

// TestSegmentSizes relays clusters whose segments are smaller and larger than the reset distance.
func TestSegmentSizes(t *testing.T) {
	t.Parallel()
	for _, mib := range []int{1, 64} {
		t.Run(fmt.Sprintf("54_segments_of_%dMiB", mib), func(t *testing.T) {
			t.Parallel()
			ctx := setting(t, patience)
			r := startRelay(ctx, t, pgcluster.Options{Major: 15, SegmentMiB: mib})
			for range 3 {
				r.caughtUp(write(ctx, t, r.primary, 20000))
				must(t, restartNode(ctx, r.b))
			}
			r.same()
		})
	}
}

// TestCodecs relays with every codec, over page images, an index build, COPY and VACUUM.
func TestCodecs(t *testing.T) {
	t.Parallel()
	for _, codec := range []string{"none", "zstd", "model"} {
		t.Run(codec, func(t *testing.T) {
			t.Parallel()
			ctx := setting(t, patience)
			r := startRelayWith(ctx, t, pgcluster.Options{Major: 15, Checksums: true}, "recompress:\n  codec: "+codec+"\n")
			for _, sql := range []string{
				"CHECKPOINT", "INSERT INTO t (text) SELECT md5(n::text) FROM generate_series(1, 20000) n", "CREATE INDEX ON t (text)",
				"CREATE TABLE j AS SELECT n AS id, jsonb_build_object('k', n, 'v', md5(n::text)) AS doc FROM generate_series(1, 5000) n",
				"CREATE INDEX ON j USING gin (doc)", "UPDATE t SET text = text || 'x' WHERE id % 3 = 0", "DELETE FROM t WHERE id % 5 = 0", "VACUUM t", "CHECKPOINT",
				"UPDATE t SET text = 'y' WHERE id % 7 = 0",
			} {
				must(t, r.primary.Exec(ctx, sql))
			}
			must(t, restartNode(ctx, r.a))
			must(t, restartNode(ctx, r.b))
			r.same()
			m, err := r.a.Metrics()
			must(t, err)
			raw, wal := m["walproxy_feed_raw_frames_total"], m["walproxy_feed_frames_total"]
			if codec != "none" && raw > wal/2 {
				t.Errorf("%v of %v frames went out raw", raw, wal)
			}
		})
	}
}

// TestThreeNodesAndFanOut puts a third node into the chain and two standbys behind it.
func TestThreeNodesAndFanOut(t *testing.T) {
	t.Parallel()
	ctx := setting(t, patience)
	r := startRelay(ctx, t, pgcluster.Options{Major: 15})
	c := startNode(ctx, t, nodeproc.Options{Config: fastNode(r.b.Conninfo(), "")})
	for i := range 2 {
		standby, err := r.primary.BaseBackup(ctx, "", r.primary.Conninfo(), "--wal-method=none", "--checkpoint=fast")
		must(t, err)
		own(t, "standby "+strconv.Itoa(i), standby)
		must(t, standby.MakeStandby(c.Conninfo(), ""))
		must(t, standby.Start(ctx))
		lsn := write(ctx, t, r.primary, 3000)
		must(t, standby.WaitReplayed(ctx, lsn))
		sameRows(ctx, t, r.primary, standby)
	}
	r.same()
}

// TestLinkOff makes node B a plain consumer of node A: the fallback when one side does not speak frames.
func TestLinkOff(t *testing.T) {
	t.Parallel()
	ctx := setting(t, patience)
	primary := startPrimary(ctx, t, pgcluster.Options{Major: 15})
	a := startNode(ctx, t, nodeproc.Options{Config: fastNode(primary.Conninfo(), "  link: false\n")})
	b := startNode(ctx, t, nodeproc.Options{Config: fastNode(a.Conninfo(), "")})
	from := write(ctx, t, primary, 1).Floor(primary.Options.SegmentBytes())
	receiver := receive(t, b.Conninfo())
	lsn := write(ctx, t, primary, 20000)
	r := &relay{ctx: ctx, t: t, primary: primary}
	r.waitReceived(receiver, lsn)
	sameWAL(t, 1, from, lsn, primary.WAL(), r.source(receiver.Dir))
	m, err := a.Metrics()
	must(t, err)
	if m["walproxy_link_sent_bytes_total"] != 0 || m["walproxy_plain_sent_wal_bytes_total"] == 0 {
		t.Fatalf("node A sent %v bytes of frames and %v bytes of plain WAL", m["walproxy_link_sent_bytes_total"], m["walproxy_plain_sent_wal_bytes_total"])
	}
}

// TestReceivewalWithSlot creates, uses and drops a slot on a node by the stock tool, and resumes by it.
func TestReceivewalWithSlot(t *testing.T) {
	t.Parallel()
	ctx := setting(t, patience)
	r := startRelay(ctx, t, pgcluster.Options{Major: 15})
	dir := filepath.Join(t.TempDir(), "slot")
	tool := func(args ...string) *pgcluster.Receivewal {
		receiver, err := pgcluster.PgReceivewal(dir, r.b.Conninfo(), args...)
		must(t, err)
		t.Cleanup(receiver.Kill)
		return receiver
	}
	must(t, tool("--slot=archive", "--create-slot").Wait(ctx))
	first := tool("--slot=archive", "--synchronous")
	from := write(ctx, t, r.primary, 100).Floor(r.primary.Options.SegmentBytes())
	r.waitReceived(first, write(ctx, t, r.primary, 5000))
	must(t, first.Stop(ctx))
	must(t, restartNode(ctx, r.b))
	write(ctx, t, r.primary, 5000)
	_, err := r.primary.SwitchWAL(ctx)
	must(t, err)
	second := tool("--slot=archive", "--synchronous")
	lsn := write(ctx, t, r.primary, 5000)
	r.waitReceived(second, lsn)
	must(t, second.Stop(ctx))
	sameWAL(t, 1, from, lsn, r.primary.WAL(), r.source(dir))
	must(t, tool("--slot=archive", "--drop-slot").Wait(ctx))
	if err := tool("--slot=archive", "--drop-slot").Wait(ctx); err == nil {
		t.Fatal("a slot that was dropped could be dropped again")
	}
	r.same()
}
