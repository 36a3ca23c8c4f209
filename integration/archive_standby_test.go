package integration

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"walproxy/integration/pgcluster"
	"walproxy/protocol"
)

// A standby that fell behind what its primary keeps takes the WAL from the archive, then streams. When it is promoted, pg_rewind
// brings the old primary back with WAL from the archive that the old primary has removed.
func TestArchiveStandbyAndRewind(t *testing.T) {
	t.Parallel()
	ctx := setting(t, patience)
	store := fileStore(t)
	restore := "restore_command = " + quoted(store.shell(t, "get", "%f %p"))
	conf := append(archiveTo(t, store), restore, "wal_log_hints = on", "wal_keep_size = 0", "min_wal_size = 2MB", "max_wal_size = 4MB")
	primary := startPrimary(ctx, t, pgcluster.Options{Major: 15, SegmentMiB: 1, NoFsync: true, Conf: append(conf, fastRetry...)})
	standby := follower(ctx, t, primary, primary.Conninfo())
	t.Cleanup(func() { noReadAhead(t, standby) })
	t.Cleanup(func() { noReadAhead(t, primary) })
	must(t, standby.WaitReplayed(ctx, write(ctx, t, primary, 100)))
	must(t, standby.Stop(ctx, pgcluster.Fast))

	first := oldest(t, primary)
	for oldest(t, primary) <= first {
		write(ctx, t, primary, 5000)
		archived(ctx, t, primary)
		must(t, primary.Exec(ctx, "CHECKPOINT"))
	}
	must(t, standby.Start(ctx))
	must(t, standby.WaitReplayed(ctx, write(ctx, t, primary, 100)))
	sameRows(ctx, t, primary, standby)
	if log := standby.Log(); !strings.Contains(log, "restored log file") || !strings.Contains(log, "started streaming") {
		t.Fatal("the standby did not take WAL from the archive and then stream")
	}

	must(t, standby.Promote(ctx))
	fork := oldest(t, primary)
	for oldest(t, primary) <= fork { // on a timeline that nobody follows
		write(ctx, t, primary, 5000)
		archived(ctx, t, primary)
		must(t, primary.Exec(ctx, "CHECKPOINT"))
	}
	write(ctx, t, standby, 5000)
	archived(ctx, t, standby)
	must(t, standby.Exec(ctx, "CHECKPOINT")) // pg_rewind asks for the new timeline in the control file
	must(t, primary.Stop(ctx, pgcluster.Fast))
	rewind(ctx, t, primary, standby)
	must(t, primary.MakeStandby(standby.Conninfo(), ""))
	must(t, primary.Start(ctx))
	must(t, primary.WaitReplayed(ctx, write(ctx, t, standby, 100)))
	sameRows(ctx, t, standby, primary)
}

// oldest returns the name of the oldest segment in a server's pg_wal.
func oldest(t *testing.T, c *pgcluster.Cluster) string {
	t.Helper()
	for _, name := range segments(t, c) {
		return name
	}
	t.Fatal("no segment")
	return ""
}

// segments returns the names of the segments in a server's pg_wal, in order.
func segments(t *testing.T, c *pgcluster.Cluster) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(c.WALDir())
	must(t, err)
	for _, e := range entries {
		if _, _, err := protocol.ParseSegmentName(e.Name(), c.Options.SegmentBytes()); err == nil {
			names = append(names, e.Name())
		}
	}
	return names
}

// rewind makes target's data directory a copy of source's, first without the archive, which must fail.
func rewind(ctx context.Context, t *testing.T, target, source *pgcluster.Cluster) {
	t.Helper()
	tool, err := target.Install.Tool("pg_rewind")
	must(t, err)
	// Keep what belongs to the target's place.
	conf, err := os.ReadFile(filepath.Join(target.DataDir, "postgresql.conf"))
	must(t, err)
	args := []string{"-D", target.DataDir, "--source-server=" + source.Conninfo(), "--no-sync"}
	if _, err := pgcluster.RunAs(ctx, tool, append(args, "--dry-run")...); err == nil || !strings.Contains(err.Error(), "No such file") {
		t.Fatalf("pg_rewind does not need the archive: %v", err)
	}
	_, err = pgcluster.RunAs(ctx, tool, append(args, "--restore-target-wal")...)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(target.DataDir, "postgresql.conf"), conf, 0o600))
}

// everySegment compares what archive get hands out with each segment of a server that was archived, byte for byte, and returns how
// many there are.
func everySegment(ctx context.Context, t *testing.T, c *pgcluster.Cluster, s walStore) int {
	t.Helper()
	last, err := c.Value(ctx, "SELECT last_archived_wal FROM pg_stat_archiver")
	must(t, err)
	out, count := filepath.Join(t.TempDir(), "segment"), 0
	for _, name := range segments(t, c) {
		if name > last[:24] {
			break
		}
		if text, code := s.run(ctx, t, "get", name, out); code != 0 {
			t.Fatalf("archive get %s: exit code %d: %s", name, code, text)
		}
		got, err := os.ReadFile(out)
		must(t, err)
		want, err := os.ReadFile(filepath.Join(c.WALDir(), name))
		must(t, err)
		if !bytes.Equal(got, want) {
			t.Fatalf("%s is not what the server has", name)
		}
		count++
	}
	return count
}

// TestArchiveEverySegmentSoak archives 2 GiB of WAL, with page images compressed in each way and as they are, and compares every
// segment.
func TestArchiveEverySegmentSoak(t *testing.T) {
	if rounds(0, 1) == 0 {
		return
	}
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 30*patience)
	defer cancel()
	store := fileStore(t)
	primary := startPrimary(ctx, t, pgcluster.Options{Major: 15, NoFsync: true, KeepMiB: 4096,
		Conf: append(archiveTo(t, store), "max_wal_size = 256MB", "synchronous_commit = off")})
	_, err := primary.Pgbench(ctx, "-i", "-q", "-s", "20")
	must(t, err)
	begin, err := primary.CurrentLSN(ctx)
	must(t, err)
	compressions := []string{"off", "pglz", "lz4", "zstd"}
	for end, round := begin, 0; end-begin < 2<<30; end, round = must2(primary.CurrentLSN(ctx))(t), round+1 {
		must(t, primary.Exec(ctx, "ALTER SYSTEM SET wal_compression = "+compressions[round%len(compressions)]))
		must(t, primary.Exec(ctx, "SELECT pg_reload_conf()"))
		_, err := primary.Pgbench(ctx, "-n", "-M", "prepared", "-c", "4", "-t", "2000")
		must(t, err)
		write(ctx, t, primary, 300_000)
		t.Logf("round %d, wal_compression = %s, from %d MiB of WAL on", round, compressions[round%len(compressions)], (end-begin)>>20)
	}
	archived(ctx, t, primary)
	count := everySegment(ctx, t, primary, store)
	t.Logf("%d segments are the same", count)
	if count < 128 {
		t.Fatalf("only %d segments", count)
	}
}

// must2 passes a value on if there is no error.
func must2[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		must(t, err)
		return v
	}
}
