package integration

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"walproxy/integration/nodeproc"
	"walproxy/integration/pgcluster"
	"walproxy/integration/wire"
	"walproxy/protocol"
)

// TestConformanceLifeSoak holds the statements about connections that last: those of idle servers and of servers that shut down.
// A soak run waits long.
func TestConformanceLifeSoak(t *testing.T) {
	t.Parallel()
	for _, major := range where(13, 18) {
		t.Run(fmt.Sprint(major), func(t *testing.T) {
			t.Parallel()
			idle := lasting(t, 3*time.Second, 10*time.Minute)
			ctx := setting(t, patience+idle)
			primary := startPrimary(ctx, t, pgcluster.Options{Major: major, NoFsync: true, Conf: fastRetry})
			standby := cloneOf(ctx, t, primary)
			node := startNode(ctx, t, nodeproc.Options{Config: strings.Replace(fastNode(primary.Conninfo(), ""), "drain_timeout: 3s", "drain_timeout: 1s", 1)})
			must(t, standby.MakeStandby(node.Conninfo(), ""))
			must(t, standby.Configure(fmt.Sprintf("wal_receiver_timeout = %d", min(5*time.Second, idle/3).Milliseconds())))
			must(t, standby.Start(ctx))
			must(t, standby.WaitReplayed(ctx, write(ctx, t, primary, 10)))
			d := &door{server: primary, node: node}
			t.Run("46_idle_standby", func(t *testing.T) { staysConnected(ctx, t, standby, idle) })
			t.Run("50_client_that_never_confirms", func(t *testing.T) { d.neverConfirms(ctx, t) })
			t.Run("49_50_clean_shutdown", func(t *testing.T) { d.shutsDown(ctx, t, standby) })
		})
	}
}

// staysConnected watches a standby for three times its wal_receiver_timeout, or longer.
func staysConnected(ctx context.Context, t *testing.T, standby *pgcluster.Cluster, idle time.Duration) {
	t.Helper()
	began, first := time.Now(), ""
	must(t, pgcluster.Until(ctx, func() (bool, error) {
		pid, err := standby.Value(ctx, "SELECT coalesce(max(pid), 0) FROM pg_stat_wal_receiver WHERE status = 'streaming'")
		switch {
		case err != nil:
			return false, err
		case first == "" && pid != "0":
			first, began = pid, time.Now()
		case first != "" && pid != first:
			return false, fmt.Errorf("walreceiver %s, before it was %s", pid, first)
		}
		return first != "" && time.Since(began) > idle, nil
	}))
	t.Logf("walreceiver %s streamed from the idle node for %s", first, idle)
}

// listens streams from a position until the connection ends, and reports as confirm says for each message that asks.
func (d *door) listens(t *testing.T, c *wire.Conn, at protocol.LSN, confirm func(r *brought) protocol.LSN) (r *brought, ended chan error) {
	t.Helper()
	must(t, as(c, pgcluster.User, "wal_sender_timeout", "60000"))
	r, err := startStream(c, at, 1)
	must(t, err)
	c.Log = nil
	ended = make(chan error, 1)
	go func() {
		ended <- r.take(c, func(m wire.Message) bool {
			if m.Type == 'd' {
				_ = report(c, confirm(r), false) // the end may have come meanwhile, which is read next
			}
			return m.Type == 0
		})
	}()
	return r, ended
}

// startOfSegment is what a client reports that only confirms whole segments.
func startOfSegment(r *brought) protocol.LSN { return r.end().Floor(16 << 20) }

// neverConfirms: a node that shuts down waits for such a client as long as it is told to, and ends as if it had confirmed.
func (d *door) neverConfirms(ctx context.Context, t *testing.T) {
	c := d.dial(t, true, false)
	r, ended := d.listens(t, c, d.quiet(ctx, t), startOfSegment)
	began := time.Now()
	must(t, d.node.Stop(ctx))
	took := time.Since(began)
	must(t, <-ended)
	if took < 900*time.Millisecond || took > 20*time.Second || fmt.Sprint(c.Log) != "[C COPY 0 closed]" || !r.alive.ReplyRequested {
		t.Errorf("after %s of a drain_timeout of 1s: %v", took, c.Log)
	}
	must(t, d.node.StartReady(ctx))
}

// shutsDown: a server in its clean shutdown sends everything, waits for whoever does not confirm it, and says goodbye; so does a
// node. The standby behind the node has all of it and can be promoted.
func (d *door) shutsDown(ctx context.Context, t *testing.T, standby *pgcluster.Cluster) {
	at := d.quiet(ctx, t).Floor(16 << 20)
	everything := func(r *brought) protocol.LSN { return r.end() }
	direct, through, laggard := d.dial(t, false, false), d.dial(t, true, false), d.dial(t, false, false)
	theirs, theirEnd := d.listens(t, direct, at, everything)
	ours, ourEnd := d.listens(t, through, at, everything)
	release, asked := make(chan struct{}), make(chan struct{}, 1)
	_, laggardEnd := d.listens(t, laggard, at, func(r *brought) protocol.LSN {
		select {
		case <-release:
			return r.end()
		default:
		}
		if r.alive.ReplyRequested { // it is in its shutdown
			select {
			case asked <- struct{}{}:
			default:
			}
		}
		return startOfSegment(r)
	})
	write(ctx, t, d.server, 1000)
	rows, err := d.server.Value(ctx, "SELECT count(*) FROM t")
	must(t, err)
	stopped := make(chan error, 1)
	go func() { stopped <- d.server.Stop(ctx, pgcluster.Fast) }()
	<-asked
	select {
	case <-stopped:
		t.Error("the server did not wait for a client that confirms nothing")
	default:
	}
	close(release)
	began := time.Now()
	must(t, <-stopped)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the server ended %s after the last client had confirmed", took)
	}
	must(t, <-theirEnd)
	must(t, <-laggardEnd)
	end := theirs.end()
	must(t, pgcluster.Until(ctx, func() (bool, error) { return position(ctx, t, d.node.Conninfo()) == end, nil }))
	must(t, pgcluster.Until(ctx, func() (bool, error) {
		received, err := standby.FlushLSN(ctx)
		return received == end, err // the shutdown checkpoint too
	}))
	must(t, d.node.Stop(ctx))
	must(t, <-ourEnd)
	if diff := wire.Diff(direct.Log, through.Log); diff != "" || fmt.Sprint(direct.Log) != "[C COPY 0 closed]" {
		t.Errorf("the server's last words %v, the node's %v", direct.Log, through.Log)
	}
	if !bytes.Equal(theirs.wal, ours.wal) {
		t.Errorf("the server sent WAL from %s to %s, the node other WAL to %s", at, end, ours.end())
	}
	must(t, standby.Promote(ctx))
	if got, err := standby.Value(ctx, "SELECT count(*) FROM t"); err != nil || got != rows {
		t.Errorf("%s rows after the promotion, %v, want %s", got, err, rows)
	}
}

// TestConformanceContrecord: a primary that was killed and lost the rest of a record says so in its WAL. That goes through a node,
// and the standby behind it replays past it.
func TestConformanceContrecord(t *testing.T) {
	t.Parallel()
	t.Run("52_overwritten_record", func(t *testing.T) {
		for _, major := range where(18) {
			t.Run(fmt.Sprint(major), func(t *testing.T) {
				t.Parallel()
				ctx := setting(t, patience)
				primary := startPrimary(ctx, t, pgcluster.Options{Major: major, SegmentMiB: 1, Conf: append([]string{"checkpoint_timeout = 1h"}, fastRetry...)})
				standby := cloneOf(ctx, t, primary)
				node := startNode(ctx, t, nodeproc.Options{Config: fastNode(primary.Conninfo(), "")})
				must(t, standby.MakeStandby(node.Conninfo(), ""))
				must(t, standby.Start(ctx))
				_, err := primary.SwitchWAL(ctx)
				must(t, err)
				begin := write(ctx, t, primary, 1).Floor(segmentBytes)
				must(t, standby.WaitReplayed(ctx, write(ctx, t, primary, 1)))
				must(t, node.Stop(ctx)) // it has the WAL before the record
				must(t, primary.Exec(ctx, "SELECT pg_logical_emit_message(false, 'lost', repeat('x', 1536 * 1024)); SELECT txid_current()"))
				must(t, primary.Kill9())
				for lost := begin.Next(segmentBytes); lost < begin+16*segmentBytes; lost = lost.Next(segmentBytes) {
					if err := os.Remove(filepath.Join(primary.WALDir(), protocol.SegmentName(1, lost, segmentBytes))); err != nil && !os.IsNotExist(err) {
						t.Fatal(err)
					}
				}
				must(t, primary.Start(ctx))
				must(t, node.StartReady(ctx))
				end := write(ctx, t, primary, 1000)
				must(t, standby.WaitReplayed(ctx, end))
				sameRows(ctx, t, primary, standby)
				sameWAL(t, 1, begin, end, primary.WAL(), standby.WAL())
				page, err := pgcluster.ReadWAL(standby.WAL(), 1, begin.Next(segmentBytes), begin.Next(segmentBytes)+4)
				must(t, err)
				if page[2]&8 == 0 { // XLP_FIRST_IS_OVERWRITE_CONTRECORD
					t.Errorf("the page at %s has the flags %02x: nothing is shown", begin.Next(segmentBytes), page[2])
				}
			})
		}
	})
}

// TestConformanceCascade: a standby behind a standby behind a node follows when the one in the middle is promoted.
func TestConformanceCascade(t *testing.T) {
	t.Parallel()
	t.Run("63_middle_is_promoted", func(t *testing.T) {
		for _, major := range where(18) {
			t.Run(fmt.Sprint(major), func(t *testing.T) {
				t.Parallel()
				ctx := setting(t, patience)
				primary := startPrimary(ctx, t, pgcluster.Options{Major: major, NoFsync: true, Conf: fastRetry})
				middle, leaf := follower(ctx, t, primary, ""), follower(ctx, t, primary, "")
				node := startNode(ctx, t, nodeproc.Options{Config: fastNode(primary.Conninfo(), "")})
				must(t, middle.MakeStandby(node.Conninfo(), ""))
				must(t, middle.Start(ctx))
				must(t, leaf.MakeStandby(middle.Conninfo(), ""))
				must(t, leaf.Start(ctx))
				before := write(ctx, t, primary, 1000)
				must(t, leaf.WaitReplayed(ctx, before))
				must(t, middle.Promote(ctx))
				lsn := write(ctx, t, middle, 1000)
				must(t, leaf.WaitReplayed(ctx, lsn))
				sameRows(ctx, t, middle, leaf)
				sameWAL(t, 2, before.Floor(middle.Options.SegmentBytes()), lsn, middle.WAL(), leaf.WAL())
			})
		}
	})
}
