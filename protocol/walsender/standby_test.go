package walsender_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"walproxy/integration/pgcluster"
	"walproxy/protocol"
	"walproxy/protocol/walsender"
)

// follow is a stock standby that follows a node which holds the WAL of the standby's primary.
type follow struct {
	t                *testing.T
	ctx              context.Context
	primary, standby *pgcluster.Cluster
	node             *node
	options          walsender.Options
	harness          *harness
	from             protocol.LSN // WAL is compared from here on
}

func newFollow(t *testing.T) *follow {
	t.Helper()
	f := &follow{t: t, ctx: deadline(t)}
	f.primary = primary(t, f.ctx)
	f.try(f.primary.Stop(f.ctx, pgcluster.Fast))
	var err error
	f.standby, err = f.primary.Clone(f.ctx, "")
	f.try(err)
	t.Cleanup(func() {
		if err := f.standby.Close(); err != nil {
			t.Error(err)
		}
	})
	f.try(f.primary.Start(f.ctx))
	f.from, err = f.primary.FlushLSN(f.ctx)
	f.try(err)
	load(t, f.ctx, f.primary, "CREATE TABLE t AS SELECT generate_series(1, 30000) i")
	f.node = mirror(t, f.ctx, f.primary, f.from-1)
	users, err := walsender.NewUsers(map[string]string{"postgres": "secret"})
	f.try(err)
	f.options.Access = passwords(users)
	f.harness = serveTCP(t, f.node, f.options)
	f.try(f.node.Create("standby", 0, walsender.SlotOptions{}))
	f.try(f.standby.MakeStandby(f.harness.conninfo()+" password=secret application_name=sb", "standby"))
	f.try(f.standby.Configure("wal_receiver_status_interval = 1", "wal_retrieve_retry_interval = 200ms", "wal_receiver_timeout = 2s"))
	f.try(f.standby.Start(f.ctx))
	return f
}

func (f *follow) try(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// check writes on the primary and compares WAL, contents and reports when the standby has all of it.
func (f *follow) check(tli protocol.Timeline, from protocol.LSN) protocol.LSN {
	f.t.Helper()
	load(f.t, f.ctx, f.primary, "INSERT INTO t SELECT generate_series(1, 10000)")
	end := pull(f.t, f.ctx, f.node, f.primary)
	f.try(f.standby.WaitReplayed(f.ctx, end))
	if err := pgcluster.CompareWAL(f.primary.WAL(), f.standby.WAL(), tli, from, end); err != nil {
		f.t.Error(err)
	}
	const sum = "SELECT count(*) || ' ' || sum(i) FROM t"
	want, errWant := f.primary.Value(f.ctx, sum)
	got, errGot := f.standby.Value(f.ctx, sum)
	if errWant != nil || errGot != nil || got != want {
		f.t.Errorf("standby has %s, %v; primary %s, %v", got, errGot, want, errWant)
	}
	eventually(f.t, f.node, "report", func() bool {
		last := f.last()
		return len(last.reports) > 0 && last.reports[len(last.reports)-1].Flush == end && f.node.slots["standby"].restart == end
	})
	return end
}

// last returns the consumer that is the standby's newest session. It is called under the node's lock.
func (f *follow) last() *consumer {
	for i := len(f.node.consumers) - 1; i >= 0; i-- {
		if c := f.node.consumers[i]; c.info.Slot == "standby" {
			return c
		}
	}
	return &consumer{}
}

// TestStandby has a stock standby follow a node across a shutdown of the node.
func TestStandby(t *testing.T) {
	f := newFollow(t)
	f.check(1, f.from)
	address := f.harness.listener.Addr().String()
	began := time.Now()
	f.harness.stop() // the standby confirms everything, and the stream ends in peace
	if d := time.Since(began); d > walsender.DefaultDrainTimeout {
		t.Errorf("shutdown took %s", d)
	}
	if err := pgcluster.Until(f.ctx, func() (bool, error) {
		return strings.Contains(f.standby.Log(), "replication terminated by primary server"), nil
	}); err != nil {
		t.Errorf("%v; log of the standby:\n%s", err, f.standby.Log())
	}
	l, err := net.Listen("tcp", address)
	f.try(err)
	serve(t, f.node, l, f.options)
	f.check(1, f.from)
	var consumer *consumer
	eventually(t, f.node, "consumer", func() bool { consumer = f.last(); return true })
	if consumer.info.ApplicationName != "sb" || consumer.info.User != "postgres" {
		t.Errorf("%+v", consumer.info)
	}
	// wal_receiver_timeout is two seconds: the standby asks, and the node must answer on an idle line.
	var reports int
	eventually(t, f.node, "reports", func() bool { reports = len(consumer.reports); return true })
	eventually(t, f.node, "life on an idle line", func() bool { return len(consumer.reports) >= reports+5 || consumer.closed })
	if consumer.closed {
		t.Error("the standby left an idle stream")
	}
}

// TestPromotion ends timeline 1 below a standby and a pg_receivewal, which go on with timeline 2 by themselves.
func TestPromotion(t *testing.T) {
	f := newFollow(t)
	end := f.check(1, f.from)
	f.try(f.node.Create("files", 0, walsender.SlotOptions{ReserveWAL: true}))
	dir := filepath.Join(t.TempDir(), "wal")
	r, err := pgcluster.PgReceivewal(dir, f.harness.conninfo()+" password=secret", "--slot=files", "--synchronous")
	f.try(err)
	t.Cleanup(r.Kill)
	files := pgcluster.Source{Dir: dir, SegmentBytes: 1 << 20}
	received := func(tli protocol.Timeline, from, to protocol.LSN) {
		t.Helper()
		if err := pgcluster.Until(f.ctx, func() (bool, error) {
			return pgcluster.CompareWAL(f.primary.WAL(), files, tli, from, to) == nil, nil
		}); err != nil {
			t.Fatalf("%v: %v\n%s", err, pgcluster.CompareWAL(f.primary.WAL(), files, tli, from, to), r.Log(4096))
		}
	}
	received(1, f.from.Floor(1<<20), end)

	// The primary comes back as a standby of nobody and is promoted.
	f.try(f.primary.Stop(f.ctx, pgcluster.Fast))
	f.try(f.primary.MakeStandby("", ""))
	f.try(f.primary.Start(f.ctx))
	f.try(f.primary.Promote(f.ctx))
	content, err := os.ReadFile(filepath.Join(f.primary.WALDir(), protocol.HistoryName(2)))
	f.try(err)
	history, err := protocol.ParseHistory(2, content)
	f.try(err)
	fork := history.Begin()
	_, have := f.node.Position()
	rest, err := pgcluster.ReadWAL(f.primary.WAL(), 1, have, fork)
	f.try(err)
	f.node.grow(rest)
	f.node.forkBy(2, fork, content)

	end = f.check(2, fork.Floor(1<<20))
	received(1, f.from.Floor(1<<20), fork)
	received(2, fork.Floor(1<<20), end)
	if got, err := os.ReadFile(filepath.Join(dir, protocol.HistoryName(2))); err != nil || string(got) != string(content) {
		t.Errorf("history file %q, %v, want %q", got, err, content)
	}
	eventually(t, f.node, "timeline of the session", func() bool { return f.last().info.Timeline == 2 })
	f.try(r.Stop(f.ctx))
}
