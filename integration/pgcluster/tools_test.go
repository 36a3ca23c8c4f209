package pgcluster_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"walproxy/integration/pgcluster"
)

// TestToolsWithEachMajor runs pgbench on every server, and pg_receivewal where it is not older than the server.
func TestToolsWithEachMajor(t *testing.T) {
	_, toolMajor, err := pgcluster.FindTool("pg_receivewal")
	must(t, err)
	eachMajor(t, func(ctx context.Context, t *testing.T, major int) {
		c := create(ctx, t, pgcluster.Options{Major: major, SegmentMiB: 1, Checksums: true, NoFsync: true})
		must(t, c.Start(ctx))
		if got := value(ctx, t, c, "SHOW data_checksums") + value(ctx, t, c, "SHOW wal_segment_size"); got != "on1MB" {
			t.Fatalf("checksums and segment size are %s, want on and 1MB", got)
		}
		start, err := c.SwitchWAL(ctx)
		must(t, err)
		start = start.Next(c.Options.SegmentBytes())
		must(t, c.Exec(ctx, "SELECT pg_create_physical_replication_slot('r', true)"))
		receiver, err := pgcluster.PgReceivewal(filepath.Join(t.TempDir(), "wal"), c.Conninfo(), "--slot=r", "--status-interval=1")
		must(t, err)
		defer receiver.Kill()
		if major <= toolMajor { // where it cannot ask for the slot's position, it begins at the server's
			must(t, pgcluster.Until(ctx, func() (bool, error) {
				n, err := c.Value(ctx, "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'")
				return n == "1", err
			}))
		}

		if _, err := c.Pgbench(ctx, "-i", "-q"); err != nil {
			t.Fatal(err)
		}
		out, err := c.Pgbench(ctx, "-c", "2", "-t", "100")
		must(t, err)
		if !strings.Contains(string(out), "200/200") {
			t.Fatalf("pgbench did not run 200 transactions:\n%s", out)
		}
		if major > toolMajor {
			if err := receiver.Wait(ctx); err == nil || !strings.Contains(receiver.Log(4096), "incompatible server version") {
				t.Fatalf("pg_receivewal %d with a newer server: %v\n%s", toolMajor, err, receiver.Log(4096))
			}
			return
		}
		end, err := c.FlushLSN(ctx)
		must(t, err)
		received := pgcluster.Source{Dir: receiver.Dir, SegmentBytes: c.Options.SegmentBytes()}
		must(t, pgcluster.AwaitWAL(ctx, c.WAL(), received, 1, start, end))
		must(t, receiver.Stop(ctx))
	})
}

func TestBaseBackup(t *testing.T) {
	install, err := pgcluster.FindAny()
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	primary := create(ctx, t, pgcluster.Options{Major: install.Major})
	must(t, primary.Start(ctx))
	must(t, primary.Exec(ctx, "CREATE TABLE t AS SELECT 42 AS answer"))
	standby, err := primary.BaseBackup(ctx, "", primary.Conninfo())
	must(t, err)
	closeAtEnd(t, standby)
	must(t, standby.MakeStandby(primary.Conninfo(), ""))
	must(t, standby.Start(ctx))
	must(t, primary.Exec(ctx, "INSERT INTO t VALUES (43)"))
	lsn, err := primary.FlushLSN(ctx)
	must(t, err)
	must(t, standby.WaitReplayed(ctx, lsn))
	if got := value(ctx, t, standby, "SELECT string_agg(answer::text, ' ') FROM t"); got != "42 43" {
		t.Fatalf("standby has %q", got)
	}
	a, err := primary.SystemIdentifier(ctx)
	must(t, err)
	b, err := standby.SystemIdentifier(ctx)
	must(t, err)
	if a != b || a == 0 {
		t.Fatalf("system identifiers %d and %d", a, b)
	}
}

func TestKillIsClean(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c := create(ctx, t, pgcluster.Options{Major: 18, NoFsync: true})
	for range 3 {
		must(t, c.Start(ctx))
		// A session that does not notice by itself that its postmaster is gone.
		session, err := c.Connect(ctx)
		must(t, err)
		busy := session.Exec(ctx, "SELECT count(*) FROM generate_series(1, 1000000000)")
		must(t, c.Kill9())
		if err := busy.Close(); err == nil {
			t.Fatal("the session outlived its server")
		}
		_ = session.Close(ctx)
	}
}

// A server that is killed, as Close does, leaves no shared memory behind: a machine has few thousand segments.
func TestCloseRemovesSharedMemory(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c := create(ctx, t, pgcluster.Options{Major: 15, NoFsync: true})
	must(t, c.Start(ctx))
	pidFile, err := os.ReadFile(filepath.Join(c.DataDir, "postmaster.pid"))
	must(t, err)
	var key, id int
	if _, err := fmt.Sscan(strings.Split(string(pidFile), "\n")[6], &key, &id); err != nil {
		t.Fatalf("postmaster.pid %q: %v", pidFile, err)
	}
	var segment unix.SysvShmDesc
	if _, err := unix.SysvShmCtl(id, unix.IPC_STAT, &segment); err != nil {
		t.Fatalf("a running server has no shared memory %d: %v", id, err)
	}
	must(t, c.Close())
	if _, err := unix.SysvShmCtl(id, unix.IPC_STAT, &segment); err == nil && int(segment.Perm.Key) == key {
		t.Errorf("shared memory %d with key %d is still there", id, key)
	}
}

func TestStartFailureShowsTheLog(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c := create(ctx, t, pgcluster.Options{Major: 17, Conf: []string{"no_such_setting = 1"}})
	err := c.Start(ctx)
	if !errors.Is(err, pgcluster.ErrStopped) || !strings.Contains(err.Error(), "no_such_setting") {
		t.Fatalf("error is %v", err)
	}
	if err := c.Stop(ctx, pgcluster.Fast); !errors.Is(err, pgcluster.ErrStopped) {
		t.Fatalf("stopping a stopped server: %v", err)
	}
}

func TestMissingServerNamesTheCommand(t *testing.T) {
	_, err := pgcluster.Find(19)
	if !errors.Is(err, pgcluster.ErrMissing) || !strings.Contains(err.Error(), "integration/fetch-postgres.sh 19") {
		t.Fatalf("error is %v", err)
	}
	if _, err := pgcluster.Create(t.Context(), pgcluster.Options{Major: 12, SegmentMiB: 3}); err == nil {
		t.Fatal("a cluster of version 12 with segments of 3 MiB")
	}
}

func TestUntilGivesUp(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	calls := 0
	err := pgcluster.Until(ctx, func() (bool, error) { calls++; return false, nil })
	if !errors.Is(err, context.DeadlineExceeded) || calls == 0 {
		t.Fatalf("error %v after %d calls", err, calls)
	}
	own := errors.New("own")
	if err := pgcluster.Until(t.Context(), func() (bool, error) { return false, own }); !errors.Is(err, own) {
		t.Fatalf("error %v", err)
	}
}

// TestFreePortIsKept: nobody else is given a port of ours while no server listens on it, and a server can.
func TestFreePortIsKept(t *testing.T) {
	port, err := pgcluster.FreePort()
	must(t, err)
	address := fmt.Sprintf("127.0.0.1:%d", port)
	for _, when := range []string{"before a server", "after a server"} {
		exclusive := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error { // as FreePort looks
			var err error
			return errors.Join(c.Control(func(fd uintptr) {
				err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 0)
			}), err)
		}}
		if l, err := exclusive.Listen(t.Context(), "tcp4", address); !errors.Is(err, unix.EADDRINUSE) {
			t.Fatalf("%s: port %d was given away: %v, %v", when, port, l, err)
		}
		if conn, err := net.Dial("tcp4", address); !errors.Is(err, unix.ECONNREFUSED) {
			t.Fatalf("%s: somebody listens on port %d: %v, %v", when, port, conn, err)
		}
		server, err := net.Listen("tcp4", address)
		must(t, err)
		must(t, server.Close())
	}
}
