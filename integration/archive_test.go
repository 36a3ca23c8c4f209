package integration

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"walproxy/integration/pgcluster"
	"walproxy/integration/s3server"
)

// walStore is an archive that servers push to and get from.
type walStore struct {
	url string
	env []string // of whoever uses it
}

// fileStore returns an archive in a directory that servers may write to.
func fileStore(t *testing.T) walStore {
	t.Helper()
	dir, err := pgcluster.TempDir("walproxy-archive-")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	return walStore{url: "file://" + filepath.Join(dir, "main")}
}

// bucketStore returns an archive in a bucket of an S3 server.
func bucketStore(ctx context.Context, t *testing.T) walStore {
	t.Helper()
	server, err := s3server.New(ctx)
	must(t, err)
	t.Cleanup(func() { must(t, server.Close()) })
	return walStore{url: server.URL("some/where"), env: server.Env()}
}

// shell returns a command line for archive_command and restore_command.
func (s walStore) shell(t *testing.T, verb, rest string) string {
	t.Helper()
	return strings.Join(append(s.env, binary(t), "archive", verb, "--store", "'"+s.url+"'", rest), " ")
}

// run runs walproxy archive VERB and returns what it printed and its exit code.
func (s walStore) run(ctx context.Context, t *testing.T, verb string, args ...string) (string, int) {
	t.Helper()
	cmd := exec.CommandContext(ctx, binary(t), append([]string{"archive", verb, "--store", s.url}, args...)...)
	cmd.Env = append(os.Environ(), s.env...)
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// quoted makes text a value in postgresql.conf.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// archiveTo has a server push its WAL.
func archiveTo(t *testing.T, s walStore) []string {
	t.Helper()
	return []string{"archive_mode = on", "archive_command = " + quoted(s.shell(t, "push", "%p"))}
}

// archived switches segments and waits until everything up to there is in the archive.
func archived(ctx context.Context, t *testing.T, c *pgcluster.Cluster) {
	t.Helper()
	last, err := c.Value(ctx, "SELECT pg_walfile_name(pg_switch_wal())")
	must(t, err)
	err = pgcluster.Until(ctx, func() (bool, error) {
		done, err := c.Value(ctx, "SELECT coalesce(last_archived_wal, '') FROM pg_stat_archiver")
		return done >= last && len(done) == len(last), err
	})
	if err != nil {
		t.Fatalf("%s is not archived: %v", last, err)
	}
}

// recoverFrom returns a running server that recovered a copy of base from the archive as the settings say, and takes writes.
func recoverFrom(ctx context.Context, t *testing.T, base *pgcluster.Cluster, s walStore, settings ...string) *pgcluster.Cluster {
	t.Helper()
	c, err := base.Clone(ctx, "")
	must(t, err)
	own(t, fmt.Sprintf("server recovered by %q", settings), c)
	t.Cleanup(func() { noReadAhead(t, c) })
	must(t, c.Configure(append([]string{
		"archive_command = 'false'", "restore_command = " + quoted(s.shell(t, "get", "%f %p")), "recovery_target_action = promote",
		"primary_conninfo = ''",
	}, settings...)...))
	signal(t, c, "recovery.signal")
	must(t, c.Start(ctx))
	must(t, pgcluster.Until(ctx, func() (bool, error) {
		recovering, err := c.Value(ctx, "SELECT pg_is_in_recovery()")
		return recovering == "f", err
	}))
	return c
}

// noReadAhead waits until no process reads ahead for a server.
func noReadAhead(t *testing.T, c *pgcluster.Cluster) {
	t.Helper()
	locks, err := filepath.Glob(filepath.Join(c.DataDir, "walproxy-read-ahead", "*", "lock"))
	must(t, err)
	for _, name := range locks {
		lock, err := os.Open(name)
		must(t, err)
		must(t, syscall.Flock(int(lock.Fd()), syscall.LOCK_EX))
		must(t, lock.Close())
	}
}

// signal makes a signal file in a stopped server's data directory.
func signal(t *testing.T, c *pgcluster.Cluster, name string) {
	t.Helper()
	path := filepath.Join(c.DataDir, name)
	must(t, os.WriteFile(path, nil, 0o644))
}

// contents returns what the small table holds.
func contents(ctx context.Context, t *testing.T, c *pgcluster.Cluster) string {
	t.Helper()
	rows, err := c.Query(ctx, "SELECT count(*), max(id), md5(string_agg(t::text, ',' ORDER BY id)) FROM t")
	must(t, err)
	return strings.Join(rows[0], " ")
}

// target is a point of recovery and what the source held there.
type target struct{ setting, holds string }

// targets lets a primary write, and returns points of recovery of each kind, the last one being the end of the archive.
func targets(ctx context.Context, t *testing.T, c *pgcluster.Cluster) []target {
	t.Helper()
	var list []target
	at := func(setting, sql string) {
		list = append(list, target{setting, contents(ctx, t, c)})
		value, err := c.Value(ctx, sql)
		must(t, err)
		list[len(list)-1].setting += " = " + quoted(value)
		write(ctx, t, c, 300)
	}
	write(ctx, t, c, 20_000)
	at("recovery_target_time", "SELECT clock_timestamp()")
	must(t, c.Exec(ctx, "SELECT pg_create_restore_point('here')"))
	at("recovery_target_name", "SELECT 'here'")
	at("recovery_target_lsn", "SELECT pg_current_wal_insert_lsn()")
	at("recovery_target_xid", "SELECT max(xmin::text::bigint) FROM t")
	archived(ctx, t, c)
	return append(list, target{"recovery_target_timeline = latest", contents(ctx, t, c)})
}

// Everything that recovery can aim at is reached from a base backup and the archive, and the database is the source's there.
func TestArchiveRecovery(t *testing.T) {
	t.Parallel()
	for _, major := range []int{13, 15, 18} {
		t.Run(fmt.Sprint(major), func(t *testing.T) {
			t.Parallel()
			ctx := setting(t, 2*patience)
			if major == 15 {
				recovery(ctx, t, major, fileStore(t), false)
			} else {
				recovery(ctx, t, major, bucketStore(ctx, t), true)
			}
		})
	}
}

func TestArchiveRecoverySoak(t *testing.T) {
	if rounds(0, 1) == 0 {
		return
	}
	t.Parallel()
	for _, major := range pgcluster.Majors() {
		t.Run(fmt.Sprint(major), func(t *testing.T) {
			t.Parallel()
			ctx := setting(t, 3*patience)
			recovery(ctx, t, major, fileStore(t), false)
			recovery(ctx, t, major, bucketStore(ctx, t), false)
		})
	}
}

// recovery recovers to each target, unless only the latest is wanted, and then to the latest, over two promotions.
func recovery(ctx context.Context, t *testing.T, major int, store walStore, latestOnly bool) {
	options := pgcluster.Options{Major: major, SegmentMiB: 1, NoFsync: true, Conf: archiveTo(t, store)}
	if major == 15 {
		options.SegmentMiB, options.Conf = 16, append(options.Conf, "wal_compression = lz4")
	}
	primary := startPrimary(ctx, t, options)
	base := backup(ctx, t, primary)
	points := targets(ctx, t, primary)
	if count := everySegment(ctx, t, primary, store); count < 3 {
		t.Fatalf("only %d segments were compared", count)
	}
	latest := points[len(points)-1]
	if points = points[:len(points)-1]; latestOnly {
		points = nil
	}
	for _, point := range points {
		c := recoverFrom(ctx, t, base, store, point.setting)
		if got := contents(ctx, t, c); got != point.holds {
			t.Fatalf("%s: the table holds %s, at the source it held %s", point.setting, got, point.holds)
		}
		must(t, c.Stop(ctx, pgcluster.Immediate))
	}
	promotions(ctx, t, primary, base, store, latest)
}

// backup returns a stopped copy of a running server.
func backup(ctx context.Context, t *testing.T, c *pgcluster.Cluster) *pgcluster.Cluster {
	t.Helper()
	if c.Major != 15 {
		return cloneOf(ctx, t, c) // no pg_basebackup as new
	}
	base, err := c.BaseBackup(ctx, "", c.Conninfo(), "-X", "none")
	must(t, err)
	own(t, "base backup", base)
	return base
}

// promotions recovers the end of the archive twice, with writes between, which go to the archive too, and a third time.
func promotions(ctx context.Context, t *testing.T, primary, base *pgcluster.Cluster, store walStore, latest target) {
	must(t, primary.Stop(ctx, pgcluster.Immediate))
	for round := range 3 {
		c := recoverFrom(ctx, t, base, store, append(archiveTo(t, store), latest.setting)...)
		if got := contents(ctx, t, c); round == 0 && got != latest.holds {
			t.Fatalf("%s: the table holds %s, at the source it held %s", latest.setting, got, latest.holds)
		}
		if tli, err := c.Timeline(ctx); err != nil || int(tli) != round+2 {
			t.Fatalf("after promotion %d: timeline %d, %v", round+1, tli, err)
		}
		marks, err := c.Value(ctx, "SELECT count(*) FROM t WHERE text LIKE 'promoted%'")
		must(t, err)
		if marks != fmt.Sprint(round) {
			t.Fatalf("after promotion %d: %s rows of the timelines before, want %d", round+1, marks, round)
		}
		must(t, c.Exec(ctx, fmt.Sprintf("INSERT INTO t (text) VALUES ('promoted %d')", round)))
		write(ctx, t, c, 300)
		archived(ctx, t, c)
		must(t, c.Stop(ctx, pgcluster.Immediate))
	}
}
