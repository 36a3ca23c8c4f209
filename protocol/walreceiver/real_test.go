package walreceiver_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	"go.uber.org/zap/zaptest/observer"

	"walproxy/integration/pgcluster"
	"walproxy/protocol"
	"walproxy/protocol/walreceiver"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// start runs a receiver in the background. wait returns Run's error when it ends by itself; stop ends it.
func start(t *testing.T, o walreceiver.Options, sink walreceiver.Sink) (wait, stop func() error) {
	t.Helper()
	if o.Logger == nil {
		o.Logger = zaptest.NewLogger(t)
	}
	if o.BackoffMax == 0 {
		o.BackoffMin, o.BackoffMax = 10*time.Millisecond, 200*time.Millisecond
	}
	r, err := walreceiver.New(o)
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	var result error
	go func() {
		defer close(ended)
		result = r.Run(ctx, sink)
	}()
	wait = func() error {
		select {
		case <-ended:
			return result
		case <-time.After(20 * time.Second):
			return errors.New("the receiver does not end")
		}
	}
	stop = func() error {
		cancel()
		return wait()
	}
	t.Cleanup(func() {
		if err := stop(); err != nil && !errors.Is(err, context.Canceled) {
			t.Logf("receiver ended with: %v", err)
		}
	})
	return wait, stop
}

func eachMajor(t *testing.T, test func(ctx context.Context, t *testing.T, major int)) {
	majors := pgcluster.Majors()
	if testing.Short() { // the race detector's run
		majors = majors[len(majors)-1:]
	}
	for _, major := range majors {
		t.Run(fmt.Sprint(major), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			test(ctx, t, major)
		})
	}
}

func cluster(ctx context.Context, t *testing.T, o pgcluster.Options) *pgcluster.Cluster {
	t.Helper()
	o.Templates = templates
	c, err := pgcluster.Create(ctx, o)
	must(t, err)
	closeAtEnd(t, c)
	return c
}

func closeAtEnd(t *testing.T, c *pgcluster.Cluster) {
	t.Cleanup(func() { must(t, c.Close()) })
}

// compareSpan holds what the sink has of a timeline against the server's own segments, up to end.
func compareSpan(t *testing.T, m *memSink, c *pgcluster.Cluster, tli protocol.Timeline, end protocol.LSN) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.spans {
		if s.timeline != tli {
			continue
		}
		want, err := pgcluster.ReadWAL(c.WAL(), tli, s.start, end)
		must(t, err)
		if !bytes.Equal(s.wal[:end-s.start], want) {
			t.Fatalf("WAL from %s to %s on timeline %d differs from the server's", s.start, end, tli)
		}
		t.Logf("timeline %d: %d bytes equal, %d compared again", tli, len(want), m.compared)
		return
	}
	t.Fatalf("nothing held of timeline %d", tli)
}

func load(ctx context.Context, t *testing.T, c *pgcluster.Cluster, from int) protocol.LSN {
	t.Helper()
	must(t, c.Exec(ctx, "CREATE TABLE IF NOT EXISTS t (id int PRIMARY KEY, filler text)"))
	for i := from; i < from+5; i++ {
		must(t, c.Exec(ctx, fmt.Sprintf(
			"INSERT INTO t SELECT i, repeat(md5(i::text), 8) FROM generate_series(%d, %d) i", i*2000+1, (i+1)*2000)))
	}
	lsn, err := c.FlushLSN(ctx)
	must(t, err)
	return lsn
}

// TestReceive: live WAL, a killed and restarted primary, the slot, a clean shutdown; everything equal to pg_wal.
func TestReceive(t *testing.T) {
	eachMajor(t, func(ctx context.Context, t *testing.T, major int) {
		primary := cluster(ctx, t, pgcluster.Options{Major: major, NoFsync: true, SegmentMiB: 1})
		must(t, primary.Start(ctx))
		sink := newMemSink()
		_, stop := start(t, walreceiver.Options{Conninfo: primary.Conninfo(), Slot: "node_a", CreateSlot: true}, sink)
		sink.waitFor(t, 1, load(ctx, t, primary, 0))
		if got := sink.identity; got.Major() != major || got.SegmentSize != 1<<20 || got.WALBlockSize != 8192 || got.Settings["wal_level"] != "replica" {
			t.Fatalf("identity %+v", got)
		}
		must(t, primary.Kill9())
		must(t, primary.Start(ctx))
		end := load(ctx, t, primary, 5)
		sink.waitFor(t, 1, end)
		compareSpan(t, sink, primary, 1, end)
		if sink.compared == 0 {
			t.Error("no overlap was compared after the reconnect")
		}
		must(t, pgcluster.Until(ctx, func() (bool, error) {
			slot, err := primary.Value(ctx, "SELECT restart_lsn FROM pg_replication_slots WHERE slot_name = 'node_a' AND active")
			if err != nil || slot == "" {
				return false, err
			}
			lsn, err := protocol.ParseLSN(slot)
			return lsn >= end, err
		}))

		begun := time.Now()
		must(t, primary.Stop(ctx, pgcluster.Fast))
		t.Logf("clean shutdown took %s", time.Since(begun))
		if took := time.Since(begun); took > 3*time.Second {
			t.Errorf("clean shutdown took %s", took)
		}
		must(t, stopQuietly(stop))
	})
}

func stopQuietly(stop func() error) error {
	if err := stop(); !errors.Is(err, context.Canceled) {
		return fmt.Errorf("Run returned %w, want the end of its context", err)
	}
	return nil
}

// TestPromotion: the upstream is a standby that is promoted under the receiver.
func TestPromotion(t *testing.T) {
	eachMajor(t, func(ctx context.Context, t *testing.T, major int) {
		primary, standby := pair(ctx, t, major)
		sink := newMemSink()
		start(t, walreceiver.Options{Conninfo: standby.Conninfo()}, sink)
		lsn := load(ctx, t, primary, 0)
		sink.waitFor(t, 1, lsn)
		must(t, primary.Stop(ctx, pgcluster.Immediate))
		must(t, standby.Promote(ctx))
		end := load(ctx, t, standby, 5)
		sink.waitFor(t, 2, end)
		compareSpan(t, sink, standby, 2, end)
		fork := sink.spans[1].start
		compareSpan(t, sink, primary, 1, min(fork, lsn))
		if want, ok := sink.History(2); !ok || !bytes.Contains(want, []byte(fork.String())) {
			t.Errorf("history of timeline 2 is %q, fork at %s", want, fork)
		}
	})
}

// pair returns a running primary and a standby that streams from it.
func pair(ctx context.Context, t *testing.T, major int) (primary, standby *pgcluster.Cluster) {
	t.Helper()
	primary = cluster(ctx, t, pgcluster.Options{Major: major, NoFsync: true})
	must(t, primary.Start(ctx))
	must(t, primary.Stop(ctx, pgcluster.Fast))
	standby, err := primary.Clone(ctx, "")
	must(t, err)
	closeAtEnd(t, standby)
	must(t, primary.Start(ctx))
	must(t, standby.MakeStandby(primary.Conninfo(), ""))
	must(t, standby.Start(ctx))
	return primary, standby
}

// TestFailover: several hosts in the conninfo, the primary dies, the standby takes over; the receiver was away meanwhile and
// has more than the old timeline's end nowhere, less everywhere.
func TestFailover(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	primary, standby := pair(ctx, t, 15)
	conninfo := fmt.Sprintf("host=127.0.0.1,127.0.0.1 port=%d,%d user=%s target_session_attrs=read-write",
		standby.Port, primary.Port, pgcluster.User)
	sink := newMemSink()
	_, stop := start(t, walreceiver.Options{Conninfo: conninfo}, sink)
	lsn := load(ctx, t, primary, 0)
	sink.waitFor(t, 1, lsn)
	must(t, stopQuietly(stop))

	must(t, primary.Exec(ctx, "INSERT INTO t SELECT i, 'while the receiver was down' FROM generate_series(100000, 101000) i"))
	lsn, err := primary.FlushLSN(ctx)
	must(t, err)
	must(t, standby.WaitReplayed(ctx, lsn))
	must(t, primary.Kill9())
	must(t, standby.Promote(ctx))
	start(t, walreceiver.Options{Conninfo: conninfo}, sink)
	end := load(ctx, t, standby, 10)
	sink.waitFor(t, 2, end)
	compareSpan(t, sink, standby, 2, end)
	compareSpan(t, sink, primary, 1, sink.spans[1].start)
}

// TestCutBack: more is held than the promoted standby had; the timeline is ended at the switch point.
func TestCutBack(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	primary, standby := pair(ctx, t, 15)
	sink := newMemSink()
	_, stop := start(t, walreceiver.Options{Conninfo: primary.Conninfo()}, sink)
	lsn := load(ctx, t, primary, 0)
	must(t, standby.WaitReplayed(ctx, lsn))
	must(t, standby.Stop(ctx, pgcluster.Fast))
	lost := load(ctx, t, primary, 5)
	sink.waitFor(t, 1, lost)
	must(t, stopQuietly(stop))
	must(t, primary.Kill9())
	must(t, standby.Start(ctx))
	must(t, standby.Promote(ctx))

	core, logs := observer.New(zap.WarnLevel)
	start(t, walreceiver.Options{Conninfo: standby.Conninfo(), Logger: zap.New(core)}, sink)
	end := load(ctx, t, standby, 10)
	sink.waitFor(t, 2, end)
	compareSpan(t, sink, standby, 2, end)
	if fork := sink.spans[1].start; fork >= lost || sink.spans[0].end() != fork {
		t.Errorf("timeline 1 ends at %s, timeline 2 begins at %s, %s was held", sink.spans[0].end(), fork, lost)
	}
	if logs.FilterMessageSnippet("given up").Len() != 1 {
		t.Errorf("no warning about the WAL that is given up: %v", logs.All())
	}
}

// TestOtherCluster: another system identifier is fatal.
func TestOtherCluster(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	primary := cluster(ctx, t, pgcluster.Options{Major: 15, NoFsync: true})
	must(t, primary.Start(ctx))
	sink := newMemSink()
	sink.identity.SystemID = 1
	wait, _ := start(t, walreceiver.Options{Conninfo: primary.Conninfo()}, sink)
	err := wait()
	var fatal *walreceiver.FatalError
	if !errors.As(err, &fatal) {
		t.Fatalf("got %v, want a *FatalError", err)
	}
	t.Log(err)
}

// TestRemoved: the WAL that is needed next is gone; the error says so, and the receiver goes on trying. What the error says to
// do helps, and without stopping the server it does not: the same error again, from another SQLSTATE.
func TestRemoved(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	primary := cluster(ctx, t, pgcluster.Options{Major: 15, NoFsync: true, SegmentMiB: 1, KeepMiB: 1})
	must(t, primary.Start(ctx))
	sink := newMemSink()
	_, stop := start(t, walreceiver.Options{Conninfo: primary.Conninfo()}, sink)
	sink.waitFor(t, 1, load(ctx, t, primary, 0))
	must(t, stopQuietly(stop))
	archive := map[string][]byte{}
	var end protocol.LSN
	for i := range 4 {
		end = load(ctx, t, primary, 5+5*i)
		archiveWAL(t, primary, archive)
		must(t, primary.Exec(ctx, "CHECKPOINT"))
	}
	core, logs := observer.New(zap.DebugLevel)
	_, stop = start(t, walreceiver.Options{Conninfo: primary.Conninfo(), Logger: zap.New(core)}, sink)
	must(t, pgcluster.Until(ctx, func() (bool, error) { return logs.FilterMessage("still no stream from upstream").Len() >= 1, nil }))
	var removed *walreceiver.RemovedError
	if err, ok := logs.FilterLevelExact(zap.ErrorLevel).All()[0].Context[0].Interface.(error); !ok || !errors.As(err, &removed) {
		t.Fatalf("logged %v, want a *RemovedError", logs.All()[0])
	}
	t.Log(removed)
	restoreWAL(t, primary, archive)
	must(t, pgcluster.Until(ctx, func() (bool, error) { return logs.FilterLevelExact(zap.ErrorLevel).Len() >= 2, nil }))
	var refused *protocol.Error
	if err, ok := logs.FilterLevelExact(zap.ErrorLevel).All()[1].Context[0].Interface.(error); !ok || !errors.As(err, &removed) ||
		!errors.As(err, &refused) || refused.Code != protocol.CodeInternalError {
		t.Fatalf("logged %v, want a *RemovedError from XX000", logs.FilterLevelExact(zap.ErrorLevel).All()[1])
	}
	t.Log(removed)
	must(t, primary.Stop(ctx, pgcluster.Fast))
	restoreWAL(t, primary, archive)
	must(t, primary.Start(ctx))
	sink.waitFor(t, 1, end)
	must(t, stopQuietly(stop))
	if logs.FilterMessage("the stream from the upstream is back").Len() != 1 {
		t.Errorf("the log does not say that the stream is back: %v", logs.All())
	}
}

// archiveWAL adds the segments of a server.
func archiveWAL(t *testing.T, server *pgcluster.Cluster, archive map[string][]byte) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(server.WALDir(), "????????????????????????"))
	must(t, err)
	for _, file := range files {
		content, err := os.ReadFile(file)
		must(t, err)
		archive[filepath.Base(file)] = content
	}
}

// restoreWAL puts the segments of an archive that a server has not into its pg_wal.
func restoreWAL(t *testing.T, server *pgcluster.Cluster, archive map[string][]byte) {
	t.Helper()
	info, err := os.Stat(server.WALDir())
	must(t, err)
	owner := info.Sys().(*syscall.Stat_t)
	for name, content := range archive {
		file := filepath.Join(server.WALDir(), name)
		if _, err := os.Stat(file); err == nil {
			continue
		}
		must(t, os.WriteFile(file+".new", content, 0o600))
		must(t, os.Chown(file+".new", int(owner.Uid), int(owner.Gid)))
		must(t, os.Rename(file+".new", file))
	}
}
