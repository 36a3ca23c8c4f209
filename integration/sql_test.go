package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"walproxy/integration/nodeproc"
	"walproxy/integration/pgcluster"
	"walproxy/protocol"
)

// sqlTo is the configuration of a node that relays SQL of the superuser to a server or node.
func sqlTo(conninfo string) string {
	return fmt.Sprintf("  sql: relay\n  sql_users:\n    - name: %s\n      conninfo: %q\n", pgcluster.User, conninfo)
}

func sqlNode(ctx context.Context, t *testing.T, upstream, slot string) *nodeproc.Node {
	t.Helper()
	config := fastNode(upstream, sqlTo(upstream))
	if slot != "" {
		config = strings.Replace(config, "  status_interval", "  slot: "+slot+"\n  create_slot: on\n  status_interval", 1)
	}
	return startNode(ctx, t, nodeproc.Options{Config: config})
}

// TestSQL carries every form of the protocol through two nodes: simple and extended, copies, long rows, errors, cancel requests.
func TestSQL(t *testing.T) {
	t.Parallel()
	ctx := setting(t, patience)
	primary := startPrimary(ctx, t, pgcluster.Options{Major: 15, NoFsync: true})
	a := sqlNode(ctx, t, primary.Conninfo(), "")
	b := sqlNode(ctx, t, a.Conninfo(), "")
	conn, err := pgconn.Connect(ctx, b.Conninfo()+" dbname=postgres sslmode=disable application_name=through options='-c work_mem=77MB'")
	must(t, err)
	defer func() { _ = conn.Close(ctx) }()

	for sql, want := range map[string]string{
		"SHOW work_mem":                        "77MB",
		"SHOW application_name":                "through",
		"SELECT pg_is_in_recovery()":           "f",
		"SELECT $1::int + 1":                   "42",
		"SELECT length(repeat('x', 30000000))": "30000000",
		"SELECT md5(string_agg(n::text, '')) FROM generate_series(1, 300000) n": "",
	} {
		var params [][]byte
		if strings.Contains(sql, "$1") {
			params = [][]byte{[]byte("41")}
		}
		result := conn.ExecParams(ctx, sql, params, nil, nil, nil).Read()
		must(t, result.Err)
		if got := string(result.Rows[0][0]); want != "" && got != want {
			t.Errorf("%s: %s, want %s", sql, got, want)
		}
	}
	long := conn.ExecParams(ctx, "SELECT repeat('0123456789', 3000000)", nil, nil, nil, nil).Read()
	must(t, long.Err)
	if !bytes.Equal(long.Rows[0][0], bytes.Repeat([]byte("0123456789"), 3000000)) {
		t.Error("a row of 30 MB came back changed")
	}
	var lines bytes.Buffer
	for n := range 100000 {
		fmt.Fprintf(&lines, "line %d\n", n)
	}
	sent := bytes.Clone(lines.Bytes())
	_, err = conn.CopyFrom(ctx, &lines, "COPY t (text) FROM STDIN")
	must(t, err)
	var back bytes.Buffer
	_, err = conn.CopyTo(ctx, &back, "COPY (SELECT text FROM t ORDER BY id) TO STDOUT")
	must(t, err)
	if !bytes.Equal(back.Bytes(), sent) {
		t.Errorf("%d bytes came back of %d copied in", back.Len(), len(sent))
	}
	var failure *pgconn.PgError
	if _, err = conn.Exec(ctx, "SELECT 1/0").ReadAll(); !errors.As(err, &failure) || failure.Code != "22012" {
		t.Errorf("division by zero: %v", err)
	}
	canceled := make(chan error, 1)
	go func() {
		_, err := conn.Exec(context.Background(), "SELECT pg_sleep(60)").ReadAll()
		canceled <- err
	}()
	must(t, pgcluster.Until(ctx, func() (bool, error) {
		n, err := primary.Value(ctx, "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%' AND state = 'active'")
		return n == "1", err
	}))
	must(t, conn.CancelRequest(ctx))
	if err := <-canceled; !errors.As(err, &failure) || failure.Code != protocol.CodeQueryCanceled {
		t.Errorf("a canceled command: %v", err)
	}
	refusals(ctx, t, primary, b)
	walsenderSQL(ctx, t, b)
}

// refusals: what a server says in refusing reaches the client; users who are not listed get nowhere.
func refusals(ctx context.Context, t *testing.T, primary *pgcluster.Cluster, b *nodeproc.Node) {
	t.Helper()
	without := startNode(ctx, t, nodeproc.Options{Config: fastNode(primary.Conninfo(), "")})
	for conninfo, code := range map[string]string{
		b.Conninfo() + " dbname=missing":                               "3D000",
		strings.Replace(b.Conninfo(), "user=", "user=not_", 1):         protocol.CodeInvalidAuthorization,
		b.Conninfo() + " dbname=postgres options='-c work_mem=little'": protocol.CodeInvalidParameterValue,
		without.Conninfo() + " dbname=postgres":                        protocol.CodeFeatureNotSupported,
		without.Conninfo() + " dbname=postgres replication=false":      protocol.CodeFeatureNotSupported,
	} {
		_, err := pgconn.Connect(ctx, conninfo+" sslmode=disable")
		var failure *pgconn.PgError
		if !errors.As(err, &failure) || failure.Code != code || failure.Severity != "FATAL" {
			t.Errorf("%s: %v, want SQLSTATE %s", conninfo, err, code)
		}
	}
}

// walsenderSQL: on a replication connection with a database, replication commands are the node's and SQL the server's.
func walsenderSQL(ctx context.Context, t *testing.T, b *nodeproc.Node) {
	t.Helper()
	conn, err := pgconn.Connect(ctx, b.Conninfo()+" dbname=postgres replication=database sslmode=disable")
	must(t, err)
	defer func() { _ = conn.Close(ctx) }()
	value := func(command string) string {
		t.Helper()
		results, err := conn.Exec(ctx, command).ReadAll()
		must(t, err)
		if last := results[len(results)-1]; len(last.Rows) > 0 {
			return string(last.Rows[0][len(last.Rows[0])-1])
		}
		return ""
	}
	for _, c := range []struct{ command, want string }{
		{"IDENTIFY_SYSTEM", "postgres"}, {"SELECT current_database()", "postgres"}, {"BEGIN", ""}, {"CREATE TEMP TABLE x AS SELECT 7 AS n", ""},
		{"SELECT n FROM x", "7"}, {"SHOW wal_segment_size", "16MB"}, {"COMMIT", ""}, {"SELECT max(n) FROM x", "7"},
	} {
		if got := value(c.command); got != c.want {
			t.Errorf("%s: %q, want %q", c.command, got, c.want)
		}
		if status := conn.TxStatus(); (status == 'T') != strings.Contains("BEGIN, CREATE TEMP TABLE x AS SELECT 7 AS n, SELECT n FROM x, SHOW wal_segment_size", c.command) {
			t.Errorf("%s: status %c", c.command, status)
		}
	}
	var failure *pgconn.PgError
	if _, err := conn.Exec(ctx, `CREATE_REPLICATION_SLOT l LOGICAL pgoutput`).ReadAll(); !errors.As(err, &failure) || failure.Code != protocol.CodeFeatureNotSupported {
		t.Errorf("a logical slot: %v", err)
	}
}

// TestConformanceSQL: statements 32 and 33.
func TestConformanceSQL(t *testing.T) {
	t.Parallel()
	t.Run("33_pg_rewind", rewinds)
	for _, major := range []int{17, 18} {
		t.Run(fmt.Sprintf("32_slotsync_%d", major), func(t *testing.T) { synchronizesSlots(t, major) })
	}
}

// rewinds: a primary that was left behind by a failover is rewound, and follows again, with nothing but the node's address.
func rewinds(t *testing.T) {
	t.Parallel()
	ctx := setting(t, patience)
	old := startPrimary(ctx, t, pgcluster.Options{Major: 15, NoFsync: true, Conf: append([]string{"wal_log_hints = on"}, fastRetry...)})
	promoted := cloneOf(ctx, t, old)
	must(t, promoted.MakeStandby(old.Conninfo(), ""))
	must(t, promoted.Start(ctx))
	must(t, promoted.WaitReplayed(ctx, write(ctx, t, old, 1000)))
	must(t, promoted.Promote(ctx))
	write(ctx, t, old, 5000) // that nobody else has
	must(t, old.Stop(ctx, pgcluster.Fast))
	write(ctx, t, promoted, 100)
	must(t, promoted.Exec(ctx, "CHECKPOINT"))
	node := sqlNode(ctx, t, promoted.Conninfo(), "")
	rewind, err := old.Install.Tool("pg_rewind")
	must(t, err)
	conf, err := os.ReadFile(filepath.Join(old.DataDir, "postgresql.conf"))
	must(t, err)
	_, err = pgcluster.RunAs(ctx, rewind, "--target-pgdata", old.DataDir, "--source-server", node.Conninfo()+" dbname=postgres", "--no-sync")
	must(t, err)
	must(t, os.WriteFile(filepath.Join(old.DataDir, "postgresql.conf"), conf, 0o600)) // pg_rewind brought the other server's port
	must(t, old.MakeStandby(node.Conninfo(), ""))
	must(t, old.Start(ctx))
	must(t, old.WaitReplayed(ctx, write(ctx, t, promoted, 100)))
	sameRows(ctx, t, promoted, old)
}

// synchronizesSlots: a standby of 17 or 18 synchronizes a logical failover slot of the primary by the node that it streams from.
func synchronizesSlots(t *testing.T, major int) {
	t.Parallel()
	ctx := setting(t, patience)
	primary := startPrimary(ctx, t, pgcluster.Options{Major: major, NoFsync: true, Conf: append([]string{"wal_level = logical"}, fastRetry...)})
	standby := cloneOf(ctx, t, primary)
	config := strings.NewReplacer("  status_interval", "  slot: standby1\n  create_slot: on\n  status_interval", "wal_sender_timeout: 5s", "wal_sender_timeout: 1h").
		Replace(fastNode(primary.Conninfo(), sqlTo(primary.Conninfo())+reporting))
	node := startNode(ctx, t, nodeproc.Options{Config: config})
	conn, err := pgconn.Connect(ctx, node.Conninfo()+" replication=true sslmode=disable")
	must(t, err)
	_, err = conn.Exec(ctx, "CREATE_REPLICATION_SLOT standby1 PHYSICAL RESERVE_WAL").ReadAll()
	must(t, err)
	must(t, conn.Close(ctx))
	must(t, standby.MakeStandby(node.Conninfo()+" dbname=postgres", "standby1"))
	must(t, standby.Configure("hot_standby_feedback = on", "sync_replication_slots = on"))
	must(t, standby.Start(ctx))
	must(t, primary.Exec(ctx, "SELECT pg_create_logical_replication_slot('failover1', 'test_decoding', false, false, true)"))
	must(t, pgcluster.Until(ctx, func() (bool, error) {
		if err := primary.Exec(ctx, "INSERT INTO t (text) VALUES ('x'); SELECT pg_log_standby_snapshot()"); err != nil {
			return false, err
		}
		if err := primary.Exec(ctx, "SELECT pg_replication_slot_advance('failover1', pg_current_wal_flush_lsn())"); err != nil {
			return false, err
		}
		n, err := standby.Value(ctx, "SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'failover1' AND synced AND NOT temporary")
		return n == "1", err
	}))
	t.Run("61_logical_consumer_waits", func(t *testing.T) { logicalWaits(ctx, t, primary, standby) })
}

// logicalWaits: with synchronized_standby_slots a logical consumer gets nothing that the standby behind the node does not have.
func logicalWaits(ctx context.Context, t *testing.T, primary, standby *pgcluster.Cluster) {
	must(t, primary.Configure("synchronized_standby_slots = 'standby1'"))
	must(t, primary.Reload())
	must(t, pgcluster.Until(ctx, func() (bool, error) {
		value, err := primary.Value(ctx, "SHOW synchronized_standby_slots")
		return value == "standby1", err
	}))
	must(t, standby.WaitReplayed(ctx, write(ctx, t, primary, 1)))
	must(t, standby.SignalAll(syscall.SIGSTOP))
	lsn := write(ctx, t, primary, 1)
	got := make(chan error, 1)
	go func() {
		_, err := primary.Query(ctx, "SELECT * FROM pg_logical_slot_get_changes('failover1', NULL, NULL)")
		got <- err
	}()
	must(t, pgcluster.Until(ctx, func() (bool, error) {
		waiting, err := primary.Value(ctx, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'WaitForStandbyConfirmation'")
		return waiting == "1", err
	}))
	now, err := primary.Value(ctx, "SELECT clock_timestamp()")
	must(t, err)
	must(t, pgcluster.Until(ctx, func() (bool, error) { // the node has it and has reported since
		reported, err := primary.Value(ctx, fmt.Sprintf("SELECT count(*) FROM pg_stat_replication WHERE reply_time > '%s' AND sent_lsn >= '%s'", now, lsn))
		return reported == "1", err
	}))
	select {
	case err := <-got:
		t.Errorf("a logical consumer got (%v) what the standby does not have", err)
		got <- err
	default:
	}
	must(t, standby.SignalAll(syscall.SIGCONT))
	must(t, <-got)
}

// TestBarman runs Debian's Barman with the node as its only server: receive-wal, backup by pg_basebackup, check. Barman looks for a
// slot on the server that its SQL goes to, so it uses none here, and for that wants to see archive_command at work as well.
func TestBarman(t *testing.T) {
	t.Parallel()
	ctx := setting(t, patience)
	home, err := pgcluster.TempDir("barman-")
	must(t, err)
	defer func() { must(t, os.RemoveAll(home)) }()
	must(t, os.MkdirAll(filepath.Join(home, "main", "incoming"), 0o700)) // else archive_command fails until Barman makes it
	must(t, pgcluster.Own(home))
	primary := startPrimary(ctx, t, pgcluster.Options{Major: 15, NoFsync: true, Conf: append([]string{
		"archive_mode = on", fmt.Sprintf("archive_command = 'cp %%p %s/main/incoming/%%f'", home),
	}, fastRetry...)})
	node := sqlNode(ctx, t, primary.Conninfo(), "node")
	config := filepath.Join(home, "barman.conf")
	must(t, os.WriteFile(config, fmt.Appendf(nil, `[barman]
barman_user = postgres
barman_home = %[1]s
barman_lock_directory = %[1]s
log_file = %[1]s/log
[main]
description = node
conninfo = %[2]s dbname=postgres
streaming_conninfo = %[2]s
backup_method = postgres
archiver = on
streaming_archiver = on
path_prefix = %[3]s
[slots]
description = the same with a slot
conninfo = %[2]s dbname=postgres
streaming_conninfo = %[2]s
backup_method = postgres
streaming_archiver = on
slot_name = barman
path_prefix = %[3]s
`, home, node.Conninfo(), primary.Install.Bin), 0o644))
	barman := func(args ...string) string {
		t.Helper()
		out, err := pgcluster.RunAs(ctx, "barman", append([]string{"-c", config}, args...)...)
		if err != nil {
			log, _ := os.ReadFile(filepath.Join(home, "log"))
			t.Fatalf("barman %s: %v\n%s\n%s", args, err, out, log)
		}
		return string(out)
	}
	receiving, err := pgcluster.Command(ctx, "barman", "-c", config, "receive-wal", "main")
	must(t, err)
	receiving.SysProcAttr.Setpgid = true // it has children
	must(t, receiving.Start())
	defer func() {
		_ = syscall.Kill(-receiving.Process.Pid, syscall.SIGKILL)
		_ = receiving.Wait()
	}()
	appears := func(pattern string) {
		t.Helper()
		must(t, pgcluster.Until(ctx, func() (bool, error) {
			found, err := filepath.Glob(filepath.Join(home, "main", pattern))
			return len(found) > 0, err
		}))
	}
	appears("streaming/*.partial")
	write(ctx, t, primary, 1000)
	must(t, primary.Exec(ctx, "SELECT pg_switch_wal()"))
	appears("streaming/????????????????????????")
	appears("incoming/????????????????????????")
	barman("archive-wal", "main")
	barman("backup", "main")
	if out := barman("check", "main"); strings.Contains(out, "FAILED") || !strings.Contains(out, "receive-wal running: OK") {
		t.Errorf("barman check:\n%s", out)
	}
	t.Run("62_replication_status", func(t *testing.T) {
		if out := barman("replication-status", "main"); !strings.Contains(out, "WAL streamer") || strings.Contains(out, "standby") {
			t.Errorf("barman replication-status:\n%s", out)
		}
	})
	t.Run("26_barmans_words", func(t *testing.T) { barmansWords(ctx, t, config) })
}

// barmansWords: Barman has a message of its own for each SQLSTATE that a slot command is refused with.
func barmansWords(ctx context.Context, t *testing.T, config string) {
	for _, step := range []struct{ option, says string }{
		{"--create-slot", "Replication slot 'barman' created"}, {"--create-slot", "Replication slot 'barman' already exists"},
		{"--drop-slot", "Replication slot 'barman' dropped"}, {"--drop-slot", "Replication slot 'barman' does not exist"},
	} {
		cmd, err := pgcluster.Command(ctx, "barman", "-c", config, "receive-wal", step.option, "slots")
		must(t, err)
		out, _ := cmd.CombinedOutput() // what it says shows whether it worked
		if !strings.Contains(string(out), step.says) {
			t.Errorf("barman receive-wal %s: %s, want %s", step.option, out, step.says)
		}
	}
}
