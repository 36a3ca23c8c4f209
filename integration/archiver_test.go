package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"

	"walproxy/archive"
	"walproxy/archive/file"
	"walproxy/integration/nodeproc"
	"walproxy/integration/pgcluster"
	"walproxy/protocol"
)

// archiving is a node that archives into a directory.
type archiving struct {
	walStore
	dir  string
	node *nodeproc.Node
}

// archiveConfig is what a node's configuration says of an archive.
func archiveConfig(store, more string) string {
	return fmt.Sprintf("archive:\n  store: %q\n%s", store, more)
}

// startArchiving starts a node behind a primary. more is configuration of the archive.
func startArchiving(ctx context.Context, t *testing.T, primary *pgcluster.Cluster, more string) *archiving {
	t.Helper()
	return startArchivingTo(ctx, t, primary, fileStore(t), more)
}

// encryptedStore is a fileStore with a key.
func encryptedStore(t *testing.T) walStore {
	t.Helper()
	s := fileStore(t)
	key, err := age.GenerateX25519Identity()
	must(t, err)
	file := filepath.Join(t.TempDir(), "key")
	must(t, os.WriteFile(file, []byte(key.String()+"\n"), 0o600))
	s.url += "?key_file=" + file
	return s
}

func startArchivingTo(ctx context.Context, t *testing.T, primary *pgcluster.Cluster, s walStore, more string) *archiving {
	t.Helper()
	a := &archiving{walStore: s}
	a.dir, _, _ = strings.Cut(strings.TrimPrefix(a.url, "file://"), "?")
	a.node = startNode(ctx, t, nodeproc.Options{Config: archivingNode(primary, archiveConfig(a.url, more))})
	return a
}

// archivingNode is the configuration of a node with a slot on a server and small windows.
func archivingNode(primary *pgcluster.Cluster, more string) string {
	config := fastNode(primary.Conninfo(), "recompress:\n  codec: zstd\n  reset_distance: 1MiB\n"+more)
	return strings.Replace(config, "upstream:\n", "upstream:\n  slot: node\n  create_slot: on\n", 1)
}

// listed is what walproxy archive list --json says, as far as tests look at it.
type listed struct {
	Timelines []struct {
		Timeline     protocol.Timeline
		Ranges, Gaps []struct{ From, To string }
		Objects      int
	}
}

// end returns how far the archive reaches on a timeline.
func (l listed) end(tli protocol.Timeline) (end protocol.LSN) {
	for _, t := range l.Timelines {
		for _, r := range t.Ranges {
			if lsn, err := protocol.ParseLSN(r.To); err == nil && t.Timeline == tli {
				end = max(end, lsn)
			}
		}
	}
	return end
}

// list returns what is in the archive; nothing if it is empty.
func (s walStore) list(ctx context.Context, t *testing.T) (l listed) {
	t.Helper()
	out, code := s.run(ctx, t, "list", "--json")
	if code == 0 {
		must(t, json.Unmarshal([]byte(out), &l))
	}
	return l
}

// await returns when the archive holds the WAL of a timeline up to lsn.
func (s walStore) await(ctx context.Context, t *testing.T, tli protocol.Timeline, lsn protocol.LSN) {
	t.Helper()
	var l listed
	err := pgcluster.Until(ctx, func() (bool, error) {
		l = s.list(ctx, t)
		return l.end(tli) >= lsn, nil
	})
	if err != nil {
		t.Fatalf("%v: the archive holds %+v, want WAL up to %s on timeline %d", err, l, lsn, tli)
	}
}

// sameSegments compares each whole segment of a server with what archive get hands out, from from on, as far as there are.
func (s walStore) sameSegments(ctx context.Context, t *testing.T, c *pgcluster.Cluster, tli protocol.Timeline, from, to protocol.LSN) {
	t.Helper()
	size := c.Options.SegmentBytes()
	for lsn := from.Floor(size); lsn.Next(size) <= to; lsn = lsn.Next(size) {
		s.hasFile(ctx, t, c, protocol.SegmentName(tli, lsn, size))
	}
}

// hasFile fails unless archive get hands out a file of a server's pg_wal as it is there.
func (s walStore) hasFile(ctx context.Context, t *testing.T, c *pgcluster.Cluster, name string) {
	t.Helper()
	target := filepath.Join(t.TempDir(), name)
	if out, code := s.run(ctx, t, "get", name, target); code != 0 {
		t.Fatalf("archive get %s: exit %d\n%s", name, code, out)
	}
	got, err := os.ReadFile(target)
	must(t, err)
	want, err := os.ReadFile(filepath.Join(c.WALDir(), name))
	must(t, err)
	if !bytes.Equal(got, want) {
		t.Fatalf("%s is not the server's", name)
	}
}

// objects returns the names of what is in the archive.
func (a *archiving) objects(ctx context.Context, t *testing.T) (names []string) {
	t.Helper()
	for info, err := range file.New(a.dir).List(ctx, "", "") {
		must(t, err)
		names = append(names, info.Name)
	}
	return names
}

// TestArchiving archives, encrypted, over kills of the node and a node that is replaced by one with an empty data directory. The archive has
// neither holes nor two objects for the same WAL.
func TestArchiving(t *testing.T) {
	t.Parallel()
	ctx := setting(t, patience)
	primary := startPrimary(ctx, t, pgcluster.Options{Major: 15, SegmentMiB: 1, Conf: fastRetry})
	a := startArchivingTo(ctx, t, primary, encryptedStore(t), "")
	from := write(ctx, t, primary, 20000).Next(1 << 20)
	for range 3 {
		write(ctx, t, primary, 10000)
		a.node.Kill()
		write(ctx, t, primary, 10000)
		must(t, a.node.StartReady(ctx))
	}
	lsn := write(ctx, t, primary, 1)
	a.await(ctx, t, 1, lsn.Floor(1<<20))

	a.node.Kill()
	must(t, os.RemoveAll(a.node.DataDir()))
	write(ctx, t, primary, 20000)
	must(t, a.node.StartReady(ctx))
	lsn = write(ctx, t, primary, 20000)
	a.await(ctx, t, 1, lsn.Floor(1<<20))
	a.sameSegments(ctx, t, primary, 1, from, lsn)
	if strings.Contains(a.node.Log(), "missing") {
		t.Errorf("the node speaks of missing WAL:\n%s", a.node.Log())
	}
	var last archive.Span
	for _, name := range a.objects(ctx, t) {
		s, ok := archive.ParseWALName(name)
		if !ok {
			continue
		}
		if last.End != 0 && s.Start != last.End {
			t.Errorf("%s follows %s", name, last.Name())
		}
		last = s
	}
}

// TestArchiveTail loses the primary, the node and both disks. What was in the archive with the tail is enough.
func TestArchiveTail(t *testing.T) {
	t.Parallel()
	ctx := setting(t, patience)
	primary := startPrimary(ctx, t, pgcluster.Options{Major: 15, Conf: fastRetry})
	backup := cloneOf(ctx, t, primary)
	a := startArchiving(ctx, t, primary, "  tail: on\n  tail_interval: 200ms\n")
	write(ctx, t, primary, 20000)
	for range 5 {
		a.await(ctx, t, 1, write(ctx, t, primary, 500))
	}
	lsn := write(ctx, t, primary, 1)
	a.await(ctx, t, 1, lsn)
	rows, err := primary.Value(ctx, "SELECT count(*) || md5(string_agg(t::text, ',' ORDER BY id)) FROM t")
	must(t, err)
	must(t, primary.Kill9())
	a.node.Kill()
	must(t, os.RemoveAll(a.node.DataDir()))

	must(t, pgcluster.Own(a.dir))
	recovered := recoverFrom(ctx, t, backup, a.walStore)
	got, err := recovered.Value(ctx, "SELECT count(*) || md5(string_agg(t::text, ',' ORDER BY id)) FROM t")
	must(t, err)
	if got != rows {
		t.Fatalf("table t is %s, was %s\n%s", got, rows, strings.Join(a.objects(ctx, t), "\n"))
	}
}
