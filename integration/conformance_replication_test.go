package integration

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"walproxy/integration/nodeproc"
	"walproxy/integration/pgcluster"
	"walproxy/integration/wire"
	"walproxy/protocol"
)

// twins are a server that was promoted, and its node, which has lived through that: both have WAL of two timelines.
type twins struct {
	*door
	removed, from, fork, end protocol.LSN // removed is in a segment that is gone, from where the WAL begins that both have
}

const (
	segmentBytes = 1 << 20
	bigRecord    = 24 << 20 // more than sockets hold
)

// TestConformanceReplication holds the statements about commands and streams that depend on the state of a server, each by doing
// the same to a server and to a node.
func TestConformanceReplication(t *testing.T) {
	eachMajor(t, func(ctx context.Context, t *testing.T, major int) {
		w := openTwins(ctx, t, major)
		for _, statement := range []struct {
			name string
			test func(*twins, context.Context, *testing.T)
		}{
			{"19_identify_system", (*twins).identifies}, {"23_timeline_history", (*twins).histories}, {"24_25_read_slot", (*twins).readsSlots},
			{"26_if_not_exists", (*twins).createsOnce}, {"34_same_bytes", (*twins).sameBytes}, {"36_chunks", (*twins).chunks},
			{"37_start_anywhere", (*twins).anywhere}, {"38_out_of_reach", (*twins).outOfReach}, {"39_timelines", (*twins).timelines},
			{"40_child_timeline", (*twins).child}, {"41_two_tags", (*twins).twoTags}, {"45_silence", (*twins).silence},
			{"48_done_early", (*twins).doneEarly}, {"53_rest_in_a_record", (*twins).restsInARecord}, {"64_pg_receivewal", (*twins).receives},
		} {
			t.Run(statement.name, func(t *testing.T) { statement.test(w, ctx, t) })
		}
	})
}

// openTwins starts a server that has removed WAL already, then its node, writes WAL of many kinds and promotes the server.
func openTwins(ctx context.Context, t *testing.T, major int) *twins {
	t.Helper()
	w := &twins{door: &door{}}
	w.server = startPrimary(ctx, t, pgcluster.Options{Major: major, SegmentMiB: 1, NoFsync: true, Conf: append([]string{
		"wal_keep_size = 0", "min_wal_size = 2MB", "checkpoint_timeout = 1h", "wal_writer_delay = 10ms",
	}, fastRetry...)})
	var err error
	w.removed, err = w.server.FlushLSN(ctx)
	must(t, err)
	for range 3 {
		_, err = w.server.SwitchWAL(ctx)
		must(t, err)
		write(ctx, t, w.server, 1)
	}
	must(t, w.server.Exec(ctx, "CHECKPOINT"))
	if _, err := pgcluster.ReadWAL(w.server.WAL(), 1, w.removed, w.removed+1); err == nil {
		t.Fatalf("the WAL at %s is still there", w.removed)
	}
	must(t, w.server.Configure("wal_keep_size = 1GB"))
	must(t, w.server.Reload())
	lsn, err := w.server.FlushLSN(ctx)
	must(t, err)
	w.from = lsn.Next(segmentBytes)
	w.node = startNode(ctx, t, nodeproc.Options{Config: fastNode(w.server.Conninfo(), "recompress:\n  codec: zstd\n")})
	allKinds(ctx, t, w.server)

	must(t, w.server.Stop(ctx, pgcluster.Fast))
	must(t, w.server.MakeStandby("", ""))
	must(t, w.server.Start(ctx))
	must(t, w.server.Promote(ctx))
	w.end = write(ctx, t, w.server, 1000)
	w.fork = forkOf(t, w.server)
	must(t, w.server.Exec(ctx, fmt.Sprintf("SELECT pg_logical_emit_message(false, 'big', repeat('x', %d)); CHECKPOINT", bigRecord)))
	w.end = write(ctx, t, w.server, 1)
	w.quiet(ctx, t)
	return w
}

// allKinds writes WAL: page images not at all and by each method that the server has, a large record, subtransactions, switches.
func allKinds(ctx context.Context, t *testing.T, c *pgcluster.Cluster) {
	t.Helper()
	methods, err := c.Query(ctx, "SELECT unnest(coalesce(enumvals, '{off,on}')) FROM pg_settings WHERE name = 'wal_compression'")
	must(t, err)
	write(ctx, t, c, 500)
	for _, method := range methods {
		must(t, c.Exec(ctx, "CHECKPOINT"))
		must(t, c.Exec(ctx, "SET wal_compression = "+method[0]+"; UPDATE t SET text = text || 'x'"))
	}
	_, err = c.SwitchWAL(ctx)
	must(t, err)
	must(t, c.Configure("full_page_writes = off"))
	must(t, c.Reload())
	must(t, pgcluster.Until(ctx, func() (bool, error) {
		value, err := c.Value(ctx, "SHOW full_page_writes")
		return value == "off", err
	}))
	for _, sql := range []string{
		"CHECKPOINT", "UPDATE t SET text = text || 'y'", "SELECT pg_logical_emit_message(true, 'large', repeat('y', 3000000))",
		"DO 'BEGIN FOR n IN 1 .. 200 LOOP BEGIN INSERT INTO t (text) VALUES (n::text); EXCEPTION WHEN division_by_zero THEN END; END LOOP; END'",
		"CREATE INDEX ON t (text)", "VACUUM t", "DROP TABLE t; CREATE TABLE t (id bigserial PRIMARY KEY, at timestamptz DEFAULT now(), text text)",
	} {
		must(t, c.Exec(ctx, sql))
	}
}

// position asks a server or node over the wire.
func position(ctx context.Context, t *testing.T, conninfo string) protocol.LSN {
	t.Helper()
	conn := replicate(ctx, t, conninfo)
	results, err := conn.Exec(ctx, "IDENTIFY_SYSTEM").ReadAll()
	must(t, err)
	must(t, conn.Close(ctx))
	return parseLSN(t, string(results[0].Rows[0][2]))
}

// quiet waits until the node has all WAL of the server, and returns its end.
func (d *door) quiet(ctx context.Context, t *testing.T) (end protocol.LSN) {
	t.Helper()
	must(t, pgcluster.Until(ctx, func() (bool, error) {
		end = position(ctx, t, d.server.Conninfo())
		return position(ctx, t, d.node.Conninfo()) == end, nil
	}))
	return end
}

// sameWhenQuiet is same for what depends on the end of the WAL: if the server wrote some meanwhile, it is done again.
func (w *twins) sameWhenQuiet(ctx context.Context, t *testing.T, name string, script func(c *wire.Conn) error) {
	t.Helper()
	for {
		before := w.quiet(ctx, t)
		if before > w.end {
			w.end = before
		}
		problem := compare(w.dial(t, false, false), w.dial(t, true, false), script)
		if problem == "" {
			return
		}
		if position(ctx, t, w.server.Conninfo()) == before {
			t.Errorf("%s: %s", name, problem)
			return
		}
	}
}

// 19: the same row while nothing is written. Under load the node is never ahead of the server, and serves what it says at once.
func (w *twins) identifies(ctx context.Context, t *testing.T) {
	w.sameWhenQuiet(ctx, t, "IDENTIFY_SYSTEM", func(c *wire.Conn) error {
		c.Values = true
		if err := as(c, pgcluster.User, "database", "postgres"); err != nil {
			return err
		}
		return c.Command("IDENTIFY_SYSTEM")
	})
	written := make(chan error, 1)
	go func() {
		written <- w.server.Exec(ctx, "INSERT INTO t (text) SELECT md5(n::text) FROM generate_series(1, 20000) n")
	}()
	for range 20 {
		ours := position(ctx, t, w.node.Conninfo())
		if theirs := position(ctx, t, w.server.Conninfo()); ours > theirs {
			t.Errorf("the node is at %s, the server at %s", ours, theirs)
		}
		c := w.dial(t, true, false)
		must(t, as(c, pgcluster.User))
		r, err := startStream(c, ours, 2)
		must(t, err)
		must(t, report(c, ours, true))
		must(t, r.take(c, func(m wire.Message) bool { return answered(m) || m.Type == 'E' }))
		if slices.ContainsFunc(c.Log, func(m string) bool { return strings.HasPrefix(m, "E ") }) {
			t.Errorf("a start at %s: %v", ours, c.Log)
		}
		must(t, c.Close())
	}
	must(t, <-written)
}

// 23: the same bytes of history files, the same answer where there is none.
func (w *twins) histories(ctx context.Context, t *testing.T) {
	w.same(t, "TIMELINE_HISTORY", func(c *wire.Conn) error {
		c.Values = true
		if err := as(c, pgcluster.User); err != nil {
			return err
		}
		return errors.Join(c.Command("TIMELINE_HISTORY 2"), c.Command("TIMELINE_HISTORY 1"), c.Command("TIMELINE_HISTORY 9"))
	})
}

// 24, 25: slots that hold nothing, WAL of the one and the other timeline, and WAL from the last checkpoint on.
func (w *twins) readsSlots(ctx context.Context, t *testing.T) {
	w.same(t, "slots", func(c *wire.Conn) error {
		c.Values = true
		if err := as(c, pgcluster.User); err != nil {
			return err
		}
		for _, command := range []string{
			"READ_REPLICATION_SLOT none", "CREATE_REPLICATION_SLOT s PHYSICAL", "READ_REPLICATION_SLOT s",
			"CREATE_REPLICATION_SLOT checkpoint PHYSICAL RESERVE_WAL", "READ_REPLICATION_SLOT checkpoint", "DROP_REPLICATION_SLOT checkpoint",
		} {
			if err := c.Command(command); err != nil {
				return err
			}
		}
		for _, at := range []protocol.LSN{w.from, w.fork, w.end} {
			if err := c.Send(wire.Query(fmt.Sprintf("START_REPLICATION SLOT s %s TIMELINE 2", w.fork))); err != nil {
				return err
			}
			r := &brought{start: w.fork}
			if err := errors.Join(r.take(c, ofType("WE")), report(c, at, true), r.take(c, answered), r.stop(c), c.Command("READ_REPLICATION_SLOT s")); err != nil {
				return err
			}
		}
		return c.Command("DROP_REPLICATION_SLOT s")
	})
}

// tool runs pg_receivewal on server and node, for a segment or two, and compares what it says and what it writes.
func (w *twins) tool(ctx context.Context, t *testing.T, args ...string) {
	t.Helper()
	path, _, err := pgcluster.FindTool("pg_receivewal")
	must(t, err)
	base := t.TempDir()
	var said [2][]string
	for i, port := range []int{w.server.Port, w.node.Options.Port} {
		dir := filepath.Join(base, fmt.Sprint(i))
		must(t, os.Mkdir(dir, 0o700))
		for _, step := range args {
			cmd := exec.CommandContext(ctx, path, append(strings.Fields(step), "--directory", dir, "--no-loop", "--no-password", "--verbose",
				"--dbname", fmt.Sprintf("host=127.0.0.1 port=%d user=%s sslmode=disable", port, pgcluster.User))...)
			out, err := cmd.CombinedOutput()
			said[i] = append(said[i], fmt.Sprintf("%s: %v %s", step, err, strings.NewReplacer(fmt.Sprint(port), "PORT", dir, "DIR").Replace(string(out))))
		}
		must(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			content, err := os.ReadFile(path)
			said[i] = append(said[i], fmt.Sprintf("%s: %d bytes, %x", entry.Name(), len(content), sha256.Sum256(content)))
			return err
		}))
	}
	if !slices.Equal(said[0], said[1]) {
		t.Errorf("on the server:\n%s\non the node:\n%s", strings.Join(said[0], "\n"), strings.Join(said[1], "\n"))
	}
}

// 26: pg_receivewal's own ways with slots.
func (w *twins) createsOnce(ctx context.Context, t *testing.T) {
	w.tool(ctx, t, "--slot=tool --create-slot", "--slot=tool --create-slot --if-not-exists", "--slot=tool --create-slot", "--slot=tool --drop-slot", "--slot=tool --drop-slot")
}

// 64: pg_receivewal goes on from its newest file, from its slot, or from the segment that is written, on the timeline that it belongs to.
func (w *twins) receives(ctx context.Context, t *testing.T) {
	w.quiet(ctx, t)
	to := func(lsn protocol.LSN) string { return " --endpos=" + lsn.String() }
	_, err := w.server.SwitchWAL(ctx)
	must(t, err)
	w.end = write(ctx, t, w.server, 3000)
	w.quiet(ctx, t)
	last := w.end.Floor(segmentBytes)
	w.tool(ctx, t, to(last+8192), to(w.end-8))                               // with .partial
	w.tool(ctx, t, "--compress=5"+to(last+8192), "--compress=5"+to(w.end-8)) // with .gz.partial
	// A slot that holds WAL of timeline 1: the tool is sent on to timeline 2.
	for _, port := range []bool{false, true} {
		c := w.dial(t, port, false)
		r := &brought{start: w.fork.Floor(segmentBytes)}
		must(t, as(c, pgcluster.User))
		must(t, c.Command("CREATE_REPLICATION_SLOT old PHYSICAL"))
		must(t, c.Send(wire.Query(fmt.Sprintf("START_REPLICATION SLOT old %s TIMELINE 2", w.fork.Floor(segmentBytes)))))
		must(t, r.take(c, ofType("W")))
		must(t, report(c, w.fork-2*segmentBytes, true))
		must(t, r.take(c, answered))
		must(t, c.Close())
	}
	w.tool(ctx, t, "--slot=old"+to(w.fork+2*segmentBytes), "--slot=old"+to(w.fork+4*segmentBytes))
}
