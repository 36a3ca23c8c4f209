package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"walproxy/integration/nodeproc"
	"walproxy/integration/pgcluster"
	"walproxy/protocol"
)

// Two nodes archive to one place, one with the tail and one without, while the server that they follow fails over twice: once in good order, and once by a
// crash, to a server that had not received the last WAL. The archive has no gap and no conflict, and recovers over both.
func TestArchivingOverPromotions(t *testing.T) {
	t.Parallel()
	t.Run("file", func(t *testing.T) {
		t.Parallel()
		archivingOverPromotions(setting(t, patience), t, 15, fileStore(t))
	})
	t.Run("s3", func(t *testing.T) {
		t.Parallel()
		ctx := setting(t, patience)
		archivingOverPromotions(ctx, t, 18, bucketStore(ctx, t))
	})
}

func TestArchivingOverPromotionsSoak(t *testing.T) {
	if rounds(0, 1) == 0 {
		return
	}
	eachMajor(t, func(ctx context.Context, t *testing.T, major int) {
		archivingOverPromotions(ctx, t, major, bucketStore(ctx, t))
	})
}

func archivingOverPromotions(ctx context.Context, t *testing.T, major int, s walStore) {
	primary := startPrimary(ctx, t, pgcluster.Options{Major: major, SegmentMiB: 1, NoFsync: true, Conf: fastRetry})
	base := cloneOf(ctx, t, primary)
	second := follower(ctx, t, primary, primary.Conninfo())
	third := follower(ctx, t, primary, second.Conninfo())
	config := archivesAnyOf(primary, second, third)
	tailed := startNode(ctx, t, nodeproc.Options{Env: s.env, Config: config + archiveConfig(s.url, "  tail: on\n  tail_interval: 100ms\n")})
	plain := startNode(ctx, t, nodeproc.Options{Env: s.env, Config: config + archiveConfig(s.url, "")})
	lsn := write(ctx, t, primary, 15000)
	must(t, second.WaitReplayed(ctx, lsn))
	must(t, third.WaitReplayed(ctx, lsn))
	s.await(ctx, t, 1, lsn)

	must(t, primary.Stop(ctx, pgcluster.Fast))
	must(t, second.Promote(ctx))
	lsn = write(ctx, t, second, 15000)
	must(t, third.WaitReplayed(ctx, lsn))
	must(t, third.Stop(ctx, pgcluster.Fast))
	lost := write(ctx, t, second, 100) // in the archive, and on no timeline that goes on
	s.await(ctx, t, 2, lost)
	must(t, second.Kill9())
	must(t, third.Start(ctx))
	must(t, third.Promote(ctx))
	lsn = write(ctx, t, third, 15000)
	s.await(ctx, t, 3, lsn)
	must(t, pgcluster.Until(ctx, func() (bool, error) {
		return archiveSlot(ctx, t, plain) >= lsn.Floor(1<<20) && archiveSlot(ctx, t, tailed) >= lsn.Floor(1<<20), nil
	}))
	for _, n := range []*nodeproc.Node{tailed, plain} {
		if all, err := n.Metrics(); err != nil || all["walproxy_archive_refused"] != 0 || all["walproxy_archive_missing_bytes"] != 0 {
			t.Errorf("refused %v, missing %v, %v", all["walproxy_archive_refused"], all["walproxy_archive_missing_bytes"], err)
		}
	}
	must(t, plain.Stop(ctx))
	must(t, tailed.Stop(ctx))
	holdsPromotions(ctx, t, s, third, lsn)

	if dir, inDirectory := strings.CutPrefix(s.url, "file://"); inDirectory {
		must(t, pgcluster.Own(dir))
	}
	want := contents(ctx, t, third)
	recovered := recoverFrom(ctx, t, base, s, "recovery_target_timeline = latest")
	if got := contents(ctx, t, recovered); got != want {
		t.Errorf("recovered over both promotions, the table holds %s, at the source %s", got, want)
	}
	if tli, err := recovered.Timeline(ctx); err != nil || tli != 4 {
		t.Errorf("recovered to timeline %d, %v", tli, err)
	}
}

// archivesAnyOf is the configuration of a node that follows whichever of the servers takes writes.
func archivesAnyOf(servers ...*pgcluster.Cluster) string {
	var hosts, ports []string
	for _, c := range servers {
		hosts, ports = append(hosts, "127.0.0.1"), append(ports, fmt.Sprint(c.Port))
	}
	return fastNode(fmt.Sprintf("host=%s port=%s user=%s target_session_attrs=read-write", strings.Join(hosts, ","), strings.Join(ports, ","), pgcluster.User), smallWindows)
}

// holdsPromotions fails unless the archive holds three timelines without a gap up to lsn, their histories, and the WAL of the server that
// is on the third one.
func holdsPromotions(ctx context.Context, t *testing.T, s walStore, c *pgcluster.Cluster, lsn protocol.LSN) {
	t.Helper()
	l := s.list(ctx, t)
	if len(l.Timelines) != 3 {
		t.Fatalf("the archive holds %+v", l)
	}
	content, err := os.ReadFile(filepath.Join(c.WALDir(), protocol.HistoryName(3)))
	must(t, err)
	h, err := protocol.ParseHistory(3, content)
	must(t, err)
	for i, line := range l.Timelines {
		if line.Timeline != protocol.Timeline(i+1) || len(line.Ranges) != 1 || len(line.Gaps) != 0 {
			t.Errorf("timeline %d: %+v", i+1, line)
			continue
		}
		if i > 0 && line.Ranges[0].From != h.Entries[i-1].End.String() {
			t.Errorf("timeline %d begins at %s, its WAL in the archive at %s", i+1, h.Entries[i-1].End, line.Ranges[0].From)
		}
		if i < 2 && l.end(line.Timeline) < h.Entries[i].End {
			t.Errorf("timeline %d ends at %s, its WAL in the archive at %s", i+1, h.Entries[i].End, l.end(line.Timeline))
		}
	}
	for tli := protocol.Timeline(2); tli <= 3; tli++ {
		s.hasFile(ctx, t, c, protocol.HistoryName(tli))
	}
	for _, against := range []string{c.DataDir, c.Conninfo()} {
		if out, code := s.run(ctx, t, "verify", "--against", against); code != 0 {
			t.Errorf("archive verify --against %s: exit %d\n%s", against, code, out)
		}
	}
	compared := map[protocol.Timeline]int{}
	for _, name := range segments(t, c) {
		tli, start, err := protocol.ParseSegmentName(name, c.Options.SegmentBytes())
		must(t, err)
		end := start.Next(c.Options.SegmentBytes())
		if fork, _, ended := h.End(tli); end > lsn || ended && end > fork {
			continue // not all of it is WAL
		}
		s.hasFile(ctx, t, c, name)
		compared[tli]++
	}
	if compared[1] == 0 || compared[2] == 0 || compared[3] == 0 {
		t.Errorf("segments compared by timeline: %v", compared)
	}
}
