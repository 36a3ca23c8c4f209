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
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"walproxy/integration/nodeproc"
	"walproxy/integration/pgcluster"
	"walproxy/protocol"
)

// smallDisk is a file system of its own in a mount namespace of its own, which a process holds. Nodes inside of it come and go.
type smallDisk struct {
	dir    string // where it is mounted, inside
	seen   string // the same from outside
	binary string // runs walproxy inside
}

const tmpfsMagic = 0x01021994 // TMPFS_MAGIC of statfs(2)

// newSmallDisk makes a disk of so many MiB that is the data directory of a node in dir.
func newSmallDisk(ctx context.Context, t *testing.T, dir string, mib int) *smallDisk {
	t.Helper()
	d := &smallDisk{dir: filepath.Join(dir, "data"), binary: filepath.Join(dir, "walproxy")}
	must(t, os.MkdirAll(d.dir, 0o700))
	unshare, nsenter := "--mount", "--mount"
	if os.Getuid() != 0 { // then in a user namespace too
		unshare, nsenter = "--mount --map-root-user", "--mount --user --preserve-credentials"
	}
	mount := fmt.Sprintf("mount -t tmpfs -o size=%dm walproxy '%s' && exec sleep 1000000", mib, d.dir)
	holder, err := pgcluster.StartProcess(exec.Command("unshare", append(strings.Fields(unshare), "sh", "-c", mount)...),
		filepath.Join(dir, "holder.log"), syscall.SIGKILL)
	must(t, err)
	t.Cleanup(holder.Kill)
	d.seen = fmt.Sprintf("/proc/%d/root%s", holder.PID(), d.dir)
	must(t, pgcluster.Until(ctx, func() (bool, error) {
		if !holder.Running() {
			return false, fmt.Errorf("mount: %s", holder.Log(1000))
		}
		var s syscall.Statfs_t
		err := syscall.Statfs(d.seen, &s)
		return err == nil && s.Type == tmpfsMagic, nil
	}))
	script := fmt.Sprintf("#!/bin/sh\nexec nsenter --target %d %s -- '%s' \"$@\"\n", holder.PID(), nsenter, binary(t))
	must(t, os.WriteFile(d.binary, []byte(script), 0o700))
	return d
}

// fill takes all room but for so many bytes, empty gives it back.
func (d *smallDisk) fill(t *testing.T, name string, leave int64) {
	t.Helper()
	var s syscall.Statfs_t
	must(t, syscall.Statfs(d.seen, &s))
	must(t, os.WriteFile(filepath.Join(d.seen, name), make([]byte, int64(s.Bavail)*s.Bsize-leave), 0o600))
}

func (d *smallDisk) empty(t *testing.T, name string) {
	t.Helper()
	must(t, os.Remove(filepath.Join(d.seen, name)))
}

// TestFullDisk fills the disk under a node without a cap. The node stops reading the upstream and says so; upstream and consumers
// have its answers all the while; slots move on and are saved; a kill changes nothing; and with room it goes on.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	ctx := setting(t, patience)
	dir := t.TempDir()
	disk := newSmallDisk(ctx, t, dir, 40)
	primary := startPrimary(ctx, t, pgcluster.Options{Major: 15, Conf: append(fastRetry, "wal_sender_timeout = 2s")})
	node := startNode(ctx, t, nodeproc.Options{Binary: disk.binary, Dir: dir, Config: fastNode(primary.Conninfo(), "recompress:\n  codec: none\nspool:\n  cap: 0\n  keep: 0\n")})
	if out, err := tool(t, node, "slots", "create", "s"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	from := write(ctx, t, primary, 1).Floor(primary.Options.SegmentBytes())
	receiver := receive(t, node.Conninfo(), "--slot=s", "--synchronous")
	r := &relay{ctx: ctx, t: t, primary: primary}
	r.waitReceived(receiver, write(ctx, t, primary, 100))

	disk.fill(t, "filler", 3<<20)
	var end protocol.LSN
	for range 6 {
		end = write(ctx, t, primary, 20000) // some 1.5 MiB each
	}
	blocked := func(want float64) {
		t.Helper()
		must(t, pgcluster.Until(ctx, func() (bool, error) {
			m, err := node.Metrics()
			return m["walproxy_spool_blocked"] == want, err
		}))
	}
	blocked(1)
	if !strings.Contains(node.Log(), "the spool is full; the upstream is not read until there is room") {
		t.Error("nothing in the log about the full disk")
	}
	answeredWithinASecond(ctx, t, node)
	keptUpstream(ctx, t, primary)
	slotIsSaved(ctx, t, node, disk)
	noRoomForSlots(ctx, t, node, disk)

	node.Kill()
	must(t, node.StartReady(ctx))
	blocked(1)
	disk.empty(t, "filler")
	r.waitReceived(receiver, end)
	blocked(0)
	sameWAL(t, 1, from, end, primary.WAL(), r.source(receiver.Dir))
	must(t, pgcluster.Until(ctx, func() (bool, error) { return strings.Contains(node.Log(), "there is room in the spool again"), nil }))
}

// TestFullDiskSheds fills the disk by WAL that a slot holds back which may be given up. There is room to write that down.
func TestFullDiskSheds(t *testing.T) {
	t.Parallel()
	ctx := setting(t, patience)
	dir := t.TempDir()
	disk := newSmallDisk(ctx, t, dir, 24)
	primary := startPrimary(ctx, t, pgcluster.Options{Major: 15, Conf: fastRetry})
	node := startNode(ctx, t, nodeproc.Options{Binary: disk.binary, Dir: dir, Config: fastNode(primary.Conninfo(), "recompress:\n  codec: none\nspool:\n  cap: 0\n  keep: 0\n  when_full: shed\n")})
	if out, err := tool(t, node, "slots", "create", "laggard"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for range 25 {
		write(ctx, t, primary, 20000) // some 1.5 MiB each
	}
	follows(ctx, t, primary, node)
	if slot := jsonOf[[]slotJSON](t, node, "slots", "list")[0]; slot.Status != "invalidated" {
		t.Errorf("the slot that was given up: %+v", slot)
	}
}

// answeredWithinASecond pings a node as a consumer.
func answeredWithinASecond(ctx context.Context, t *testing.T, node *nodeproc.Node) {
	t.Helper()
	conn := replicate(ctx, t, node.Conninfo())
	at := parseLSN(t, jsonOf[statusJSON](t, node, "status").Position.Written)
	conn.Frontend().SendQuery(&pgproto3.Query{String: "START_REPLICATION " + at.String() + " TIMELINE 1"})
	must(t, conn.Frontend().Flush())
	for range 3 {
		if took := reportFlush(ctx, t, conn, at); took > time.Second {
			t.Errorf("an answer took %s", took)
		}
	}
}

// keptUpstream checks that the primary keeps its connection to the node for longer than its wal_sender_timeout of 2 s, and hears of
// the node at least once a second.
func keptUpstream(ctx context.Context, t *testing.T, primary *pgcluster.Cluster) {
	t.Helper()
	began, before := time.Now(), ""
	must(t, pgcluster.Until(ctx, func() (bool, error) {
		rows, err := primary.Query(ctx, "SELECT pid, clock_timestamp() - reply_time < '1500 ms' FROM pg_stat_replication")
		must(t, err)
		if len(rows) != 1 || before != "" && rows[0][0] != before || rows[0][1] != "t" {
			return false, fmt.Errorf("the primary's connections (pid, heard of lately): %v, before %s", rows, before)
		}
		before = rows[0][0]
		return time.Since(began) > 3*time.Second, nil
	}))
}

// noRoomForSlots takes the last byte and makes slots until there is no room to write them down: refused as by a server, and the
// session goes on.
func noRoomForSlots(ctx context.Context, t *testing.T, node *nodeproc.Node, disk *smallDisk) {
	t.Helper()
	disk.fill(t, "rest", 0)
	conn := replicate(ctx, t, node.Conninfo())
	made := 0
	for ; ; made++ {
		_, err := conn.Exec(ctx, fmt.Sprintf("CREATE_REPLICATION_SLOT x%d PHYSICAL", made)).ReadAll()
		if err == nil && made < 250 {
			continue
		}
		if got := inWords(err); !strings.HasPrefix(got, "ERROR 53100: ") || !strings.Contains(got, "No space left on device") {
			t.Errorf("the slot for which there is no room: %s", got)
		}
		break
	}
	disk.empty(t, "rest")
	for n := range made {
		_, err := conn.Exec(ctx, fmt.Sprintf("DROP_REPLICATION_SLOT x%d", n)).ReadAll()
		must(t, err)
	}
}

// slotIsSaved waits until the file of the slots says what the slot's position is.
func slotIsSaved(ctx context.Context, t *testing.T, node *nodeproc.Node, disk *smallDisk) {
	t.Helper()
	must(t, pgcluster.Until(ctx, func() (bool, error) {
		slot := jsonOf[[]slotJSON](t, node, "slots", "list")[0]
		content, err := os.ReadFile(filepath.Join(disk.seen, "slots"))
		return err == nil && strings.Contains(string(content), `"`+slot.RestartLSN+`"`), nil
	}))
	if strings.Contains(node.Log(), "save slots; WAL is kept") {
		t.Error("the slots could not be saved")
	}
}
