package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"walproxy/integration/faultproxy"
	"walproxy/integration/nodeproc"
	"walproxy/integration/pgcluster"
	"walproxy/protocol"
)

// patience bounds a test of one server version; whatever takes longer hangs.
const patience = 3 * time.Minute

// atOnce bounds how many sets of servers run side by side, so that small machines keep up.
var atOnce = make(chan struct{}, 3)

// setting waits for its turn among the tests that run servers, and returns a context that bounds the test.
func setting(t *testing.T, limit time.Duration) context.Context {
	t.Helper()
	atOnce <- struct{}{}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(func() {
		cancel()
		<-atOnce
	})
	return ctx
}

// eachMajor runs test for every major version of PostgreSQL.
func eachMajor(t *testing.T, test func(ctx context.Context, t *testing.T, major int)) {
	t.Parallel()
	for _, major := range pgcluster.Majors() {
		t.Run(fmt.Sprint(major), func(t *testing.T) {
			t.Parallel()
			test(setting(t, patience), t, major)
		})
	}
}

// where returns the versions where something differs, which are enough; or all of them, if all are asked for.
func where(majors ...int) []int {
	if os.Getenv("WALPROXY_MAJORS") == "all" {
		return pgcluster.Majors()
	}
	return majors
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// startPrimary returns a new, running server with a small table.
func startPrimary(ctx context.Context, t *testing.T, options pgcluster.Options) *pgcluster.Cluster {
	t.Helper()
	options.Templates = templates
	c, err := pgcluster.Create(ctx, options)
	must(t, err)
	own(t, "primary", c)
	must(t, c.Start(ctx))
	must(t, c.Exec(ctx, "CREATE TABLE t (id bigserial PRIMARY KEY, at timestamptz DEFAULT now(), text text)"))
	return c
}

// cloneOf returns a stopped copy of a running server, which is stopped for a moment. MakeStandby is the next step.
func cloneOf(ctx context.Context, t *testing.T, c *pgcluster.Cluster) *pgcluster.Cluster {
	t.Helper()
	must(t, c.Stop(ctx, pgcluster.Fast))
	clone, err := c.Clone(ctx, "")
	must(t, err)
	own(t, "clone", clone)
	must(t, c.Start(ctx))
	return clone
}

// own ends a server with its test, and shows its log if the test failed.
func own(t *testing.T, role string, c *pgcluster.Cluster) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of the %s, PostgreSQL %d on port %d:\n%s", role, c.Major, c.Port, c.Log())
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// startNode returns a running node that is ready. Binary and Dir of the options are filled in where they are empty.
func startNode(ctx context.Context, t *testing.T, options nodeproc.Options) *nodeproc.Node {
	t.Helper()
	if options.Binary == "" {
		options.Binary = binary(t)
	}
	if options.Dir == "" {
		options.Dir = filepath.Join(t.TempDir(), "node")
	}
	node, err := nodeproc.New(options)
	must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of the node on port %d:\n%s", node.Options.Port, node.Log())
		}
		node.Kill()
	})
	must(t, node.StartReady(ctx))
	return node
}

// receive starts pg_receivewal on a server or node.
func receive(t *testing.T, conninfo string, args ...string) *pgcluster.Receivewal {
	t.Helper()
	r, err := pgcluster.PgReceivewal(filepath.Join(t.TempDir(), "wal"), conninfo, args...)
	must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("pg_receivewal on %q:\n%s", conninfo, r.Log(8<<10))
		}
		r.Kill()
	})
	return r
}

// through puts a fault proxy before a server or node. The second result is the conninfo with the proxy's port.
func through(t *testing.T, port int) (*faultproxy.Proxy, string) {
	t.Helper()
	proxy, err := faultproxy.Listen("127.0.0.1:" + strconv.Itoa(port))
	must(t, err)
	t.Cleanup(func() { must(t, proxy.Close()) })
	return proxy, fmt.Sprintf("host=127.0.0.1 port=%d user=%s", proxy.Port(), pgcluster.User)
}

// write commits rows on a primary and returns the LSN up to which its WAL is flushed then.
func write(ctx context.Context, t *testing.T, c *pgcluster.Cluster, rows int) protocol.LSN {
	t.Helper()
	must(t, c.Exec(ctx, fmt.Sprintf("INSERT INTO t (text) SELECT md5(n::text) FROM generate_series(1, %d) n", rows)))
	lsn, err := c.FlushLSN(ctx)
	must(t, err)
	return lsn
}

// sameRows compares the small table on two servers.
func sameRows(ctx context.Context, t *testing.T, a, b *pgcluster.Cluster) {
	t.Helper()
	const sql = "SELECT count(*), md5(string_agg(t::text, ',' ORDER BY id)) FROM t"
	left, err := a.Query(ctx, sql)
	must(t, err)
	right, err := b.Query(ctx, sql)
	must(t, err)
	if l, r := strings.Join(left[0], " "), strings.Join(right[0], " "); l != r {
		t.Fatalf("table t: %s on one server, %s on the other", l, r)
	}
}

// sameWAL compares all sources with the first one, byte for byte.
func sameWAL(t *testing.T, timeline protocol.Timeline, from, to protocol.LSN, first pgcluster.Source, others ...pgcluster.Source) {
	t.Helper()
	if to <= from {
		t.Fatalf("nothing to compare: WAL from %s to %s", from, to)
	}
	for _, other := range others {
		must(t, pgcluster.CompareWAL(first, other, timeline, from, to))
	}
}

// random returns a source of random choices and logs the seed that repeats them.
func random(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv("WALPROXY_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		must(t, err)
	}
	t.Logf("WALPROXY_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// rounds returns how often a fault test repeats itself: normally, or in a soak run.
func rounds(normal, soak int) int {
	if os.Getenv("WALPROXY_SOAK") == "1" {
		return soak
	}
	return normal
}

// lasting returns how long a test goes on that only waits or loads: normally, or in a soak run, where WALPROXY_SOAK_TIME overrides it.
func lasting(t *testing.T, normal, soak time.Duration) time.Duration {
	t.Helper()
	if rounds(0, 1) == 0 {
		return normal
	}
	if text := os.Getenv("WALPROXY_SOAK_TIME"); text != "" {
		var err error
		soak, err = time.ParseDuration(text)
		must(t, err)
	}
	return soak
}
