package integration

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"walproxy/integration/nodeproc"
	"walproxy/integration/pgcluster"
	"walproxy/protocol"
)

// twoNodes starts node A behind a server and node B behind node A.
func twoNodes(ctx context.Context, t *testing.T, primary *pgcluster.Cluster, config string) (a, b *nodeproc.Node) {
	t.Helper()
	a = startNode(ctx, t, nodeproc.Options{Config: fastNode(primary.Conninfo(), config)})
	return a, startNode(ctx, t, nodeproc.Options{Config: fastNode(a.Conninfo(), config)})
}

// becomesStandby starts a standby and compares it with its primary.
func becomesStandby(ctx context.Context, t *testing.T, primary, standby *pgcluster.Cluster) {
	t.Helper()
	own(t, "standby", standby)
	must(t, standby.Start(ctx))
	must(t, standby.WaitReplayed(ctx, write(ctx, t, primary, 100)))
	sameRows(ctx, t, primary, standby)
}

// TestConformanceBaseBackup: statements 29 to 31 for every version, through two nodes. The answer to BASE_BACKUP has the shape that
// the server's own has, message by message; what it carries becomes a standby that follows with nothing but node B's address.
func TestConformanceBaseBackup(t *testing.T) {
	eachMajor(t, func(ctx context.Context, t *testing.T, major int) {
		options := pgcluster.Options{Major: major, NoFsync: true, Conf: slices.Clone(fastRetry)}
		if major >= 17 {
			// With checksums a hint is WAL; and only checkpoints write what has one.
			options.Checksums, options.Conf = true, append(options.Conf, "summarize_wal = on", "bgwriter_lru_maxpages = 0")
		}
		primary := startPrimary(ctx, t, options)
		write(ctx, t, primary, 20000)
		_, b := twoNodes(ctx, t, primary, "")
		direct, relayed := dialReplication(ctx, t, primary.Conninfo()), dialReplication(ctx, t, b.Conninfo())

		command := backupCommand(major, "LABEL 'test'", "PROGRESS", "FAST", "NOWAIT")
		want, got := direct.backUp(command, major), relayed.backUp(command, major)
		t.Run("31_same_messages", func(t *testing.T) { sameShape(t, want, got, major) })
		t.Run("30_restore", func(t *testing.T) {
			files, err := unpack(got.base(major))
			must(t, err)
			standby, err := primary.Restore("", func(dir string) error { return place(files, dir) })
			must(t, err)
			must(t, standby.MakeStandby(b.Conninfo(), ""))
			becomesStandby(ctx, t, primary, standby)
		})
		if major < 17 {
			t.Run("29_no_manifest", func(t *testing.T) { knowsNoManifest(t, direct, relayed) })
			return
		}
		must(t, primary.Exec(ctx, "CREATE TABLE shrinks AS SELECT g AS n, repeat('x', 500) AS text FROM generate_series(1, 5000) g"))
		must(t, primary.Exec(ctx, "CREATE TABLE goes AS TABLE shrinks"))
		full := relayed.backUp(fullBackup, major)
		t.Run("29_manifest", func(t *testing.T) { manifests(ctx, t, primary, full, direct, relayed) })
		t.Run("30_incremental", func(t *testing.T) { incrementals(ctx, t, primary, full, relayed, b.Conninfo()) })
	})
}

// sameShape compares the messages of two backups of one server.
func sameShape(t *testing.T, want, got *takenBackup, major int) {
	t.Helper()
	if w, g := strings.Join(want.shapes(), "\n"), strings.Join(got.shapes(), "\n"); w != g {
		t.Errorf("the server's answer:\n%s\nthe node's:\n%s", w, g)
	}
	wantTypes := "len=8 mod=-1"
	if major < 16 {
		wantTypes = "len=-1 mod=0"
	}
	if !strings.Contains(got.shape[0], "tli oid=20 "+wantTypes) {
		t.Errorf("first result set: %s, want the timeline as oid=20 %s", got.shape[0], wantTypes)
	}
	steady := func(b *takenBackup) (list []string) {
		files, err := unpack(b.base(major))
		must(t, err)
		for name := range files {
			if !strings.Contains(name, "pg_internal.init") {
				list = append(list, name)
			}
		}
		slices.Sort(list)
		return list
	}
	if w, g := steady(want), steady(got); !slices.Equal(w, g) || len(g) < 500 {
		t.Errorf("%d files in the server's backup, %d in the node's", len(w), len(g))
	}
}

// knowsNoManifest: before 17 the command does not exist, and the node says so as the server does.
func knowsNoManifest(t *testing.T, direct, relayed *replication) {
	want, got := direct.upload(nil), relayed.upload(nil)
	if want == nil || got == nil || want.Code != protocol.CodeFeatureNotSupported || got.Code != want.Code || got.Message != want.Message {
		t.Fatalf("UPLOAD_MANIFEST: %v from the server, %v from the node", want, got)
	}
}

// manifests uploads the manifest of a full backup and takes an incremental one, on one connection.
func manifests(ctx context.Context, t *testing.T, primary *pgcluster.Cluster, full *takenBackup, direct, relayed *replication) {
	major := primary.Major
	write(ctx, t, primary, 10)
	for _, r := range []*replication{direct, relayed} {
		if failure := r.upload([]byte("no manifest")); failure == nil || failure.Code == protocol.CodeFeatureNotSupported {
			t.Fatalf("a bad manifest: %v", failure)
		}
		if failure := r.upload(full.manifest); failure != nil {
			t.Fatalf("a good manifest of %d bytes: %v", len(full.manifest), failure)
		}
	}
	want, got := direct.backUp(incrementalBackup, major), relayed.backUp(incrementalBackup, major)
	sameShape := slices.Equal(want.shapes(), got.shapes())
	incremental := 0
	files, err := unpack(got.base(major))
	must(t, err)
	for name := range files {
		if strings.Contains(name, "INCREMENTAL.") {
			incremental++
		}
	}
	if !sameShape || incremental < 100 || len(got.base(major)) > len(full.base(major))/2 || !bytes.Contains(got.manifest, []byte("INCREMENTAL.")) {
		t.Errorf("incremental backup: same shape %t, %d incremental files, %d bytes of %d, failure %v",
			sameShape, incremental, len(got.base(major)), len(full.base(major)), got.failure)
	}
}

// TestBaseBackupTools runs pg_basebackup and pg_verifybackup of 15 in the ways that people use them, through two nodes.
func TestBaseBackupTools(t *testing.T) {
	t.Parallel()
	for _, major := range where(15) {
		if major > 15 {
			continue // which they refuse
		}
		t.Run(fmt.Sprint(major), func(t *testing.T) {
			t.Parallel()
			baseBackupTools(setting(t, 2*patience), t, major)
		})
	}
}

func baseBackupTools(ctx context.Context, t *testing.T, major int) {
	primary := startPrimary(ctx, t, pgcluster.Options{Major: major, NoFsync: true, Checksums: true, Conf: fastRetry})
	space, err := pgcluster.TempDir("tablespace-")
	must(t, err)
	defer func() { must(t, os.RemoveAll(space)) }()
	must(t, primary.Exec(ctx, "SELECT pg_create_physical_replication_slot('node_a', true)"))
	write(ctx, t, primary, 20000)
	a, b := twoNodes(ctx, t, primary, "")
	verify, _, err := pgcluster.FindTool("pg_verifybackup")
	must(t, err)
	tool, _, err := pgcluster.FindTool("pg_basebackup")
	must(t, err)

	t.Run("bootstrap", func(t *testing.T) {
		standby, err := primary.BaseBackup(ctx, "", b.Conninfo(), "--write-recovery-conf", "--create-slot", "--slot=standby1", "--progress")
		must(t, err)
		knowsTools(t, standby, b, "standby1")
		becomesStandby(ctx, t, primary, standby)
	})
	t.Run("fetch", func(t *testing.T) {
		standby, err := primary.BaseBackup(ctx, "", b.Conninfo(), "--write-recovery-conf", "--wal-method=fetch")
		must(t, err)
		args := []string{standby.DataDir, "--ignore=postgresql.conf", "--ignore=standby.signal", "--ignore=postgresql.auto.conf"}
		if major < 15 { // whose WAL the tool does not read
			args = append(args, "--no-parse-wal")
		}
		_, err = pgcluster.RunAs(ctx, verify, args...)
		must(t, err)
		knowsTools(t, standby, b, "")
		becomesStandby(ctx, t, primary, standby)
	})
	must(t, primary.Exec(ctx, "CREATE TABLESPACE elsewhere LOCATION '"+space+"'"))
	must(t, primary.Exec(ctx, "CREATE TABLE far TABLESPACE elsewhere AS SELECT generate_series(1, 10000) AS n"))
	for name, args := range map[string][]string{
		"tar with tablespace": {"--format=tar", "--gzip"},
		"server-side gzip":    {"--format=tar", "--compress=server-gzip", "--wal-method=fetch"},
		"rate":                {"--format=tar", "--max-rate=200M", "--no-slot"},
	} {
		if strings.HasPrefix(name, "server-side") && major < 15 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			dir, err := pgcluster.TempDir("backup-")
			must(t, err)
			defer func() { must(t, os.RemoveAll(dir)) }()
			_, err = pgcluster.RunAs(ctx, tool, append([]string{"-d", b.Conninfo(), "-D", filepath.Join(dir, "b"), "-c", "fast"}, args...)...)
			must(t, err)
			found, err := filepath.Glob(filepath.Join(dir, "b", "*.tar*"))
			must(t, err)
			if len(found) < 2 {
				t.Errorf("archives %q: want those of the data directory and of the tablespace", found)
			}
		})
	}
	metrics, err := b.Metrics()
	must(t, err)
	ofA, err := a.Metrics()
	must(t, err)
	received, sent := metrics["walproxy_base_backup_received_bytes_total"], ofA["walproxy_base_backup_received_bytes_total"]
	t.Logf("%.1f MB came over the link, %.1f MB from the primary", received/1e6, sent/1e6)
	if received == 0 || received > sent/2 {
		t.Errorf("%.0f bytes came over the link for %.0f from the primary", received, sent)
	}
}

// knowsTools replaces what pg_basebackup of 15 wrote into the configuration of a standby of 13, whose libpq does not know all of it.
func knowsTools(t *testing.T, standby *pgcluster.Cluster, node *nodeproc.Node, slot string) {
	t.Helper()
	if standby.Major < 14 {
		must(t, standby.WriteFile("postgresql.auto.conf", nil))
		must(t, standby.MakeStandby(node.Conninfo(), slot))
	}
}

// TestBaseBackupEnds: a backup that its client cancels, leaves, or that the node's shutdown ends, ends at the primary too, behind
// two nodes; and one whose upstream dies is an error that says so.
func TestBaseBackupEnds(t *testing.T) {
	t.Parallel()
	ctx := setting(t, patience)
	primary := startPrimary(ctx, t, pgcluster.Options{Major: 15, NoFsync: true, Conf: fastRetry})
	_, b := twoNodes(ctx, t, primary, "")
	running := func(want string) {
		t.Helper()
		must(t, pgcluster.Until(ctx, func() (bool, error) {
			got, err := primary.Value(ctx, "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'walsender' AND query LIKE 'BASE_BACKUP%' AND state = 'active'")
			return got == want, err
		}))
	}
	slow := backupCommand(15, "FAST", "NOWAIT", "MAX_RATE 32")

	canceled := dialReplication(ctx, t, b.Conninfo())
	canceled.query(slow)
	running("1")
	must(t, canceled.conn.CancelRequest(ctx))
	failure := canceled.finish()
	if failure == nil || failure.Code != protocol.CodeQueryCanceled {
		t.Errorf("after a cancel request: %+v", failure)
	}
	running("0")
	canceled.query("IDENTIFY_SYSTEM")
	if failure := canceled.finish(); failure != nil {
		t.Errorf("the session does not go on: %v", failure)
	}

	gone := dialReplication(ctx, t, b.Conninfo())
	gone.query(slow)
	running("1")
	must(t, gone.conn.Conn().Close())
	running("0")

	dead := dialReplication(ctx, t, b.Conninfo())
	dead.query(slow)
	running("1")
	must(t, primary.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'BASE_BACKUP%'"))
	if failure := dead.finish(); failure == nil || failure.Code != protocol.CodeAdminShutdown {
		t.Errorf("after the primary ended it: %+v", failure)
	}

	last := dialReplication(ctx, t, b.Conninfo())
	last.query(slow)
	running("1")
	must(t, b.Stop(ctx))
	if failure := last.finish(); failure == nil || failure.Code != protocol.CodeAdminShutdown {
		t.Errorf("after the node's shutdown: %+v", failure)
	}
	running("0")
}

// TestBaseBackupOfStandby: the backup of a standby begins at its last checkpoint, long before a new node's WAL does.
func TestBaseBackupOfStandby(t *testing.T) {
	t.Parallel()
	ctx := setting(t, patience)
	primary := startPrimary(ctx, t, pgcluster.Options{Major: 15, NoFsync: true, SegmentMiB: 1, Conf: fastRetry})
	upstream := cloneOf(ctx, t, primary)
	must(t, upstream.MakeStandby(primary.Conninfo(), ""))
	must(t, upstream.Start(ctx))
	must(t, upstream.WaitReplayed(ctx, write(ctx, t, primary, 50000)))
	node := startNode(ctx, t, nodeproc.Options{Config: fastNode(upstream.Conninfo(), "")})
	standby, err := primary.BaseBackup(ctx, "", node.Conninfo(), "--write-recovery-conf")
	must(t, err)
	becomesStandby(ctx, t, primary, standby)
	if log := upstream.Log(); !strings.Contains(log, "walproxy earlier WAL") {
		t.Error("the backup began where the node's WAL does: nothing is shown")
	}
}

// TestBaseBackupSwitchedOff: the node says so, in one line.
func TestBaseBackupSwitchedOff(t *testing.T) {
	t.Parallel()
	ctx := setting(t, patience)
	primary := startPrimary(ctx, t, pgcluster.Options{Major: 15, NoFsync: true})
	node := startNode(ctx, t, nodeproc.Options{Config: fmt.Sprintf("upstream: {conninfo: %q}\nlisten: {base_backup: off}\n", primary.Conninfo())})
	conn, err := pgconn.Connect(ctx, node.Conninfo()+" replication=true sslmode=disable")
	must(t, err)
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, "BASE_BACKUP").ReadAll()
	if err == nil || !strings.Contains(err.Error(), "base backups are switched off at this node (SQLSTATE 0A000)") {
		t.Errorf("BASE_BACKUP: %v", err)
	}
}
