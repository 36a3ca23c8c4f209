package walformat

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"walproxy/integration/pgcluster"
	"walproxy/protocol"
	"walproxy/protocol/wal"
)

// kinds returns the events of w that are neither records nor continuations of them, as kind names by LSN, and all records.
func kinds(t *testing.T, w span, o wal.Options) map[wal.Kind][]protocol.LSN {
	t.Helper()
	found := map[wal.Kind][]protocol.LSN{}
	walker := wal.NewWalker(w.begin, o)
	must(t, walker.Feed(w.bytes))
	for ev, ok := walker.Next(); ok; ev, ok = walker.Next() {
		found[ev.Kind] = append(found[ev.Kind], ev.Start)
		if ev.NewTimeline {
			found[0] = append(found[0], ev.Start)
		}
	}
	return found
}

// TestOverwrittenContrecord: a primary is killed and loses the segment in which its last record ends; after the restart it
// declares the record dead. The walker drops it, and everything behind it decodes.
func TestOverwrittenContrecord(t *testing.T) {
	eachMajor(t, func(ctx context.Context, t *testing.T, major int) {
		c := start(ctx, t, major, "checkpoint_timeout = 1h")
		must(t, c.Exec(ctx, "CREATE TABLE t (id int)"))
		_, err := c.SwitchWAL(ctx)
		must(t, err)
		must(t, c.Exec(ctx, "CHECKPOINT; INSERT INTO t VALUES (1)"))
		begin, err := c.CurrentLSN(ctx)
		must(t, err)
		segment := c.Options.SegmentBytes()
		begin = begin.Floor(segment)
		// One record of 1.5 segments: it begins in this segment and ends in the next one or the one after.
		must(t, c.Exec(ctx, "SELECT pg_logical_emit_message(false, 'lost', repeat('x', 1536 * 1024)); SELECT txid_current()"))
		must(t, c.Kill9())
		for lost := begin.Next(segment); lost < begin+protocol.LSN(16*segment); lost = lost.Next(segment) {
			err := os.Remove(filepath.Join(c.WALDir(), protocol.SegmentName(1, lost, segment)))
			if err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
		}
		must(t, c.Start(ctx))
		must(t, c.Exec(ctx, "INSERT INTO t VALUES (2)"))
		w := read(ctx, t, c, 1, begin)

		found := kinds(t, w, options(c))
		if len(found[wal.KindAborted]) != 1 || len(found[wal.KindRaw]) != 0 || len(found[wal.KindFragment]) != 0 {
			t.Fatalf("aborted at %s, raw at %s, fragments at %s; want one aborted record and nothing else",
				found[wal.KindAborted], found[wal.KindRaw], found[wal.KindFragment])
		}
		records := decode(t, w, options(c), wal.KindAborted)
		n := 0
		for i := range records {
			if records[i].Class() != wal.ClassOverwriteContrecord {
				continue
			}
			n++
			// Its main data begins with the LSN of the dead record.
			if lsn := leLSN(records[i].Main); lsn != found[wal.KindAborted][0] || records[i].start != begin.Next(segment)+wal.LongHeaderBytes {
				t.Errorf("record at %s says %s is dead, the walker says %s", records[i].start, lsn, found[wal.KindAborted][0])
			}
		}
		if n != 1 {
			t.Errorf("%d OVERWRITE_CONTRECORD, want 1", n)
		}
	})
}

func leLSN(b []byte) protocol.LSN {
	lsn := protocol.LSN(0)
	for i := range 8 {
		lsn |= protocol.LSN(b[i]) << (8 * i)
	}
	return lsn
}

// TestTimelineFork: the WAL of the parent up to a real promotion and that of the child behind it are one stream: the record
// chain goes on, and the first page that the child began says so.
func TestTimelineFork(t *testing.T) {
	eachMajor(t, func(ctx context.Context, t *testing.T, major int) {
		primary := start(ctx, t, major)
		must(t, primary.Exec(ctx, "CREATE TABLE t AS SELECT generate_series(1, 1000) id"))
		must(t, primary.Stop(ctx, pgcluster.Fast))
		standby, err := primary.Clone(ctx, "")
		must(t, err)
		t.Cleanup(func() {
			if err := standby.Close(); err != nil {
				t.Error(err)
			}
		})
		must(t, primary.Start(ctx))
		must(t, standby.MakeStandby(primary.Conninfo(), ""))
		must(t, standby.Start(ctx))
		must(t, primary.Exec(ctx, "INSERT INTO t SELECT generate_series(1, 5000)"))
		lsn, err := primary.FlushLSN(ctx)
		must(t, err)
		must(t, standby.WaitReplayed(ctx, lsn))
		must(t, primary.Stop(ctx, pgcluster.Immediate))
		must(t, standby.Promote(ctx))
		must(t, standby.Exec(ctx, "INSERT INTO t SELECT generate_series(1, 5000)"))

		content, err := os.ReadFile(filepath.Join(standby.WALDir(), protocol.HistoryName(2)))
		must(t, err)
		history, err := protocol.ParseHistory(2, content)
		must(t, err)
		fork := history.Begin()
		child := read(ctx, t, standby, 2, fork.Floor(standby.Options.SegmentBytes()))
		parent, err := pgcluster.ReadWAL(standby.WAL(), 1, fork.Floor(standby.Options.SegmentBytes()), fork)
		must(t, err)
		if !bytes.Equal(parent, child.bytes[:len(parent)]) {
			t.Fatal("the child's segment does not begin with the parent's WAL")
		}
		found := kinds(t, child, options(standby))
		next := fork.Next(wal.DefaultPageSize)
		if len(found[0]) != 1 || found[0][0] != next {
			t.Errorf("new timeline at %s, want %s", found[0], next)
		}
		after := false
		for _, s := range decode(t, child, options(standby), wal.KindFragment) {
			if s.start >= fork && !after {
				after = true
				if class := s.Class(); class != wal.ClassEndOfRecovery && class != wal.ClassCheckpoint {
					t.Errorf("first record of the child at %s is %s of class %d", s.start, s.Rmgr, class)
				}
			}
		}
		if !after {
			t.Error("no record of the child")
		}
	})
}
