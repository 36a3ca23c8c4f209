package integration

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"walproxy/integration/nodeproc"
	"walproxy/integration/pgcluster"
	"walproxy/integration/wire"
	"walproxy/protocol"
)

// TestPromotion promotes the server that node A follows. Nodes, the standby behind them and pg_receivewal go on with the new
// timeline, nobody touching them.
func TestPromotion(t *testing.T) {
	eachMajor(t, func(ctx context.Context, t *testing.T, major int) {
		primary := startPrimary(ctx, t, pgcluster.Options{Major: major, Conf: fastRetry})
		upstream := follower(ctx, t, primary, primary.Conninfo())
		standby := follower(ctx, t, primary, "") // started below
		a := startNode(ctx, t, nodeproc.Options{Config: fastNode(upstream.Conninfo(), "")})
		b := startNode(ctx, t, nodeproc.Options{Config: fastNode(a.Conninfo(), "")})
		must(t, standby.MakeStandby(b.Conninfo(), ""))
		must(t, standby.Start(ctx))
		receiver := receiverFor(t, major, b.Conninfo())
		before := write(ctx, t, primary, 2000)
		must(t, standby.WaitReplayed(ctx, before))

		must(t, primary.Stop(ctx, pgcluster.Fast))
		must(t, upstream.Promote(ctx))
		lsn := write(ctx, t, upstream, 5000)
		must(t, standby.WaitReplayed(ctx, lsn))
		sameRows(ctx, t, upstream, standby)
		sameWAL(t, 2, before.Floor(upstream.Options.SegmentBytes()), lsn, upstream.WAL(), standby.WAL())
		if receiver != nil {
			source := pgcluster.Source{Dir: receiver.Dir, SegmentBytes: upstream.Options.SegmentBytes()}
			must(t, pgcluster.AwaitWAL(ctx, upstream.WAL(), source, 2, before.Floor(source.SegmentBytes), lsn))
		}
		must(t, restartNode(ctx, a)) // everything is found again
		must(t, restartNode(ctx, b))
		lsn = write(ctx, t, upstream, 1000)
		must(t, standby.WaitReplayed(ctx, lsn))
		sameRows(ctx, t, upstream, standby)
	})
}

// TestFailover gives node A two hosts. The first one dies for good, the second one is promoted.
func TestFailover(t *testing.T) {
	eachMajor(t, func(ctx context.Context, t *testing.T, major int) {
		primary := startPrimary(ctx, t, pgcluster.Options{Major: major, Conf: fastRetry})
		second := follower(ctx, t, primary, primary.Conninfo())
		standby := follower(ctx, t, primary, "")
		both := fmt.Sprintf("host=127.0.0.1,127.0.0.1 port=%d,%d user=%s target_session_attrs=read-write", primary.Port, second.Port, pgcluster.User)
		a := startNode(ctx, t, nodeproc.Options{Config: fastNode(both, "")})
		b := startNode(ctx, t, nodeproc.Options{Config: fastNode(a.Conninfo(), "")})
		must(t, standby.MakeStandby(b.Conninfo(), ""))
		must(t, standby.Start(ctx))
		before := write(ctx, t, primary, 2000)
		must(t, standby.WaitReplayed(ctx, before))
		must(t, second.WaitReplayed(ctx, before))
		from := before.Floor(second.Options.SegmentBytes())
		consumer, err := wire.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", b.Options.Port))
		must(t, err)
		defer consumer.Close()
		must(t, as(consumer, pgcluster.User, "wal_sender_timeout", "60000"))
		stream, err := startStream(consumer, from, 1)
		must(t, err)

		must(t, primary.Kill9())
		must(t, second.Promote(ctx))
		lsn := write(ctx, t, second, 5000)
		must(t, standby.WaitReplayed(ctx, lsn))
		t.Run("43_consumer_is_sent_on", func(t *testing.T) { sentOn(t, consumer, stream, second) })
		sameRows(ctx, t, second, standby)
		sameWAL(t, 2, before.Floor(second.Options.SegmentBytes()), lsn, second.WAL(), standby.WAL())
	})
}

// sentOn reads a stream up to the end of its timeline, which a server's promotion made.
func sentOn(t *testing.T, c *wire.Conn, stream *brought, promoted *pgcluster.Cluster) {
	t.Helper()
	c.Log, c.Values = nil, true
	must(t, stream.take(c, ofType("cEZ")))
	must(t, stream.stop(c))
	fork := forkOf(t, promoted)
	if got, want := strings.Join(c.Log, ", "), fmt.Sprintf(`D "2" "%s", C START_STREAMING, C START_REPLICATION`, fork); !strings.Contains(got, want) {
		t.Errorf("%s, want %s", got, want)
	}
	if end := stream.end(); end < fork || end > fork.Next(8192) { // the rest of a page is what a server could have sent, too
		t.Fatalf("the stream of timeline 1 ended at %s, the timeline at %s", end, fork)
	}
	theirs, err := pgcluster.ReadWAL(promoted.WAL(), 1, stream.start, fork)
	must(t, err)
	if !bytes.HasPrefix(stream.wal, theirs) {
		t.Errorf("other WAL from %s to %s", stream.start, fork)
	}
}

// forkOf returns where a server's timeline 2 began.
func forkOf(t *testing.T, c *pgcluster.Cluster) protocol.LSN {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(c.WALDir(), protocol.HistoryName(2)))
	must(t, err)
	history, err := protocol.ParseHistory(2, content)
	must(t, err)
	return history.Begin()
}

// TestPromotionWhileNodesAreDown promotes twice while the nodes do not run. They find the way over both timelines.
func TestPromotionWhileNodesAreDown(t *testing.T) {
	t.Parallel()
	ctx := setting(t, patience)
	primary := startPrimary(ctx, t, pgcluster.Options{Major: 15, Conf: fastRetry})
	second := follower(ctx, t, primary, primary.Conninfo())
	third := follower(ctx, t, primary, second.Conninfo())
	standby := follower(ctx, t, primary, "")
	hosts := fmt.Sprintf("host=127.0.0.1,127.0.0.1,127.0.0.1 port=%d,%d,%d user=%s target_session_attrs=read-write",
		primary.Port, second.Port, third.Port, pgcluster.User)
	a := startNode(ctx, t, nodeproc.Options{Config: fastNode(hosts, "")})
	b := startNode(ctx, t, nodeproc.Options{Config: fastNode(a.Conninfo(), "")})
	must(t, standby.MakeStandby(b.Conninfo(), ""))
	must(t, standby.Start(ctx))
	lsn := write(ctx, t, primary, 1000)
	must(t, standby.WaitReplayed(ctx, lsn))

	must(t, b.Stop(ctx))
	must(t, a.Stop(ctx))
	last := primary
	for _, next := range []*pgcluster.Cluster{second, third} {
		lsn = write(ctx, t, last, 1000)
		must(t, next.WaitReplayed(ctx, lsn))
		if next == second {
			must(t, third.WaitReplayed(ctx, lsn))
		}
		must(t, last.Stop(ctx, pgcluster.Fast))
		must(t, next.Promote(ctx))
		last = next
	}
	lsn = write(ctx, t, third, 1000)
	must(t, a.StartReady(ctx))
	must(t, b.StartReady(ctx))
	must(t, standby.WaitReplayed(ctx, lsn))
	sameRows(ctx, t, third, standby)
	tli, err := third.Timeline(ctx)
	must(t, err)
	if tli != protocol.Timeline(3) {
		t.Fatalf("the third server is on timeline %d", tli)
	}
}

// follower returns a copy of a server: running as a standby of upstream, or stopped if that is "".
func follower(ctx context.Context, t *testing.T, of *pgcluster.Cluster, upstream string) *pgcluster.Cluster {
	t.Helper()
	c := cloneOf(ctx, t, of)
	if upstream != "" {
		must(t, c.MakeStandby(upstream, ""))
		must(t, c.Start(ctx))
	}
	return c
}

// receiverFor starts pg_receivewal if there is one for this version, else it returns nil.
func receiverFor(t *testing.T, major int, conninfo string) *pgcluster.Receivewal {
	t.Helper()
	if _, tool, err := pgcluster.FindTool("pg_receivewal"); err != nil || tool < major {
		return nil
	}
	return receive(t, conninfo)
}
