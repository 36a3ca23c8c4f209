package catalog

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"walproxy/archive"
	"walproxy/archive/file"
	"walproxy/protocol"
	"walproxy/protocol/link"
)

const mib = protocol.LSN(1 << 20)

var cluster = archive.Identity{SystemID: 7, Major: 15, SegmentSize: 1 << 20, WALBlockSize: 8192}

// fixture is an archive in a directory whose WAL differs by timeline and place.
type fixture struct {
	t   *testing.T
	ctx context.Context
	dir string
	a   *archive.Archive
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	dir := t.TempDir()
	a, err := archive.Create(context.Background(), file.New(dir), cluster)
	if err != nil {
		t.Fatal(err)
	}
	return &fixture{t: t, ctx: context.Background(), dir: dir, a: a}
}

// walOf returns the WAL of a mebibyte of a timeline.
func walOf(tli protocol.Timeline, at protocol.LSN) []byte {
	b := make([]byte, mib)
	_, _ = rand.NewChaCha8([32]byte{byte(tli), byte(at >> 20), byte(at >> 28)}).Read(b) // never fails
	return b
}

// put stores the WAL of a timeline between two LSNs, given in mebibytes, in one object for each mebibyte.
func (f *fixture) put(tli protocol.Timeline, from, to float64) {
	f.t.Helper()
	for start := protocol.LSN(from * float64(mib)); start < protocol.LSN(to*float64(mib)); {
		end := min(start.Next(uint64(mib)), protocol.LSN(to*float64(mib)))
		var w link.WindowBuilder
		w.Begin(nil, link.WindowHeader{SystemID: cluster.SystemID, Timeline: tli, SegmentSize: cluster.SegmentSize,
			WALBlockSize: cluster.WALBlockSize, ResetDistance: link.MinResetDistance, Start: start})
		wal := walOf(tli, start.Floor(uint64(mib)))[start%mib:][:end-start]
		fr := link.Frame{Timeline: tli, Start: start, RawLen: uint32(len(wal)), RawSum: link.Checksum(wal), Payload: wal}
		fr.Seal()
		f.must(w.Add(&fr))
		window, err := w.Finish()
		f.must(err)
		var b archive.Builder
		b.Begin(cluster)
		f.must(b.Add(window))
		o, err := b.Finish()
		f.must(err)
		_, err = f.a.Put(f.ctx, o)
		f.must(err)
		start = end
	}
}

func (f *fixture) history(tli protocol.Timeline, lines ...string) {
	f.t.Helper()
	_, err := f.a.PutFile(f.ctx, archive.BytesFile(protocol.HistoryName(tli), []byte(strings.Join(lines, "\n")+"\n")))
	f.must(err)
}

func (f *fixture) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) load() *Catalog {
	f.t.Helper()
	c, err := Load(f.ctx, f.a)
	f.must(err)
	return c
}

// text shows ranges in mebibytes.
func text(ranges []Range) string {
	var parts []string
	for _, r := range ranges {
		parts = append(parts, fmt.Sprintf("%g-%g", float64(r.From)/float64(mib), float64(r.To)/float64(mib)))
	}
	return strings.Join(parts, " ")
}

func TestRangesAndGaps(t *testing.T) {
	f := newFixture(t)
	f.put(1, 1, 3)
	f.put(1, 5, 6.5)
	f.history(2, "1\t0/700000\tno recovery target specified") // at 7 MiB
	f.put(2, 8, 9)
	f.history(3, "1\t0/700000\tx", "2\t0/980000\ty") // at 9.5 MiB
	f.put(3, 9, 11)                                  // pushed: the first half of its first segment is timeline 2's
	c := f.load()
	for _, want := range []struct {
		tli          protocol.Timeline
		ranges, gaps string
	}{{1, "1-3 5-6.5", "3-5 6.5-7"}, {2, "8-9.5", "7-8"}, {3, "9.5-11", ""}} {
		l := c.Of(want.tli)
		if got := text(l.Ranges); got != want.ranges {
			t.Errorf("timeline %d holds %s, want %s", want.tli, got, want.ranges)
		}
		if got := text(l.Gaps); got != want.gaps {
			t.Errorf("timeline %d lacks %s, want %s", want.tli, got, want.gaps)
		}
	}
}

func TestVerifyNamesWhatIsWrong(t *testing.T) {
	f := newFixture(t)
	f.put(1, 1, 4)
	f.history(2, "1\t0/400000\tx")
	f.put(2, 4, 6)
	found, err := Verify(f.ctx, f.a, f.load(), VerifyOptions{})
	if err != nil || len(found) > 0 {
		t.Fatalf("a good archive: %v, %v", found, err)
	}
	f.must(os.Remove(filepath.Join(f.dir, "wal/00000001", "0000000000200000-0000000000300000.wal")))
	f.must(os.Remove(filepath.Join(f.dir, "file", "00000002.history")))
	f.must(os.WriteFile(filepath.Join(f.dir, "wal/00000002", "0000000000480000-0000000000500000.wal"), []byte("WALPROXA"), 0o600))
	found, err = Verify(f.ctx, f.a, f.load(), VerifyOptions{})
	f.must(err)
	var all []string
	for _, finding := range found {
		all = append(all, finding.String())
	}
	got := strings.Join(all, "\n")
	for _, want := range []string{
		"timeline 1, 0/200000 to 0/300000: missing", "file/00000002.history: missing, though there is WAL of the timeline",
		"timeline 2, 0/480000 to 0/500000: wal/00000002/0000000000480000-0000000000500000.wal: ",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if len(found) != 3 {
		t.Errorf("%d findings:\n%s", len(found), got)
	}
}

// TestPruneKeepsWhatAnchorsNeed has four timelines: 2 from 1 at 4, 3 from 2 at 7, 4 from 1 at 3 (all in MiB).
func TestPruneKeepsWhatAnchorsNeed(t *testing.T) {
	f := newFixture(t)
	f.put(1, 1, 6)
	f.history(2, "1\t0/400000\tx")
	f.put(2, 4, 9)
	f.history(3, "1\t0/400000\tx", "2\t0/700000\tx")
	f.put(3, 7, 10)
	f.history(4, "1\t0/300000\tx")
	f.put(4, 3, 6)
	c := f.load()
	for _, test := range []struct {
		name    string
		anchors []Anchor
		goes    string
	}{
		{"on the newest timeline", []Anchor{{Timeline: 3, LSN: 8 * mib}}, "1:1-6 2:4-9 3:7-8 4:3-6"},
		{"on a parent, behind all other forks", []Anchor{{Timeline: 2, LSN: 5 * mib}}, "1:1-6 2:4-5 4:3-6"},
		{"on a parent, by the name of the child", []Anchor{{Timeline: 3, LSN: 5 * mib}}, "1:1-6 2:4-5 4:3-6"},
		{"within a segment", []Anchor{{Timeline: 3, LSN: 5*mib + 5}}, "1:1-6 2:4-5 4:3-6"},
		{"before a fork", []Anchor{{Timeline: 1, LSN: 2 * mib}}, "1:1-2"},
		{"on the branch", []Anchor{{Timeline: 4, LSN: 4 * mib}}, "1:1-6 2:4-9 3:7-10 4:3-4"},
		{"two", []Anchor{{Timeline: 4, LSN: 4 * mib}, {Timeline: 3, LSN: 8 * mib}}, "1:1-6 2:4-9 3:7-8 4:3-4"},
		{"behind everything", []Anchor{{Timeline: 3, LSN: 20 * mib}}, "1:1-6 2:4-9 3:7-10 4:3-6"},
	} {
		plan, err := c.Prune(test.anchors)
		f.must(err)
		var goes []string
		for _, r := range plan.Ranges() {
			goes = append(goes, fmt.Sprintf("%d:%s", r.Timeline, text([]Range{r.Range})))
		}
		if got := strings.Join(goes, " "); got != test.goes {
			t.Errorf("%s: %s goes, want %s", test.name, got, test.goes)
		}
		if !slices.IsSorted(plan.Names()) {
			t.Errorf("%s: not in order: %v", test.name, plan.Names())
		}
	}
	if _, err := c.Prune([]Anchor{{Timeline: 9, LSN: mib}}); err == nil {
		t.Error("an anchor on an unknown timeline")
	}
}

// Whatever is pruned, recovery from an anchor to any timeline that can be reached finds all of its WAL.
func TestPruneNeverCutsAChain(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		c := &Catalog{Identity: cluster}
		histories := []protocol.History{{Timeline: 1}}
		for tli := protocol.Timeline(2); tli < 7; tli++ {
			parent := histories[r.IntN(len(histories))]
			fork := parent.Begin() + protocol.LSN(1+r.IntN(5))*mib
			h := protocol.History{Timeline: tli, Entries: append(slices.Clone(parent.Entries), protocol.HistoryEntry{Timeline: parent.Timeline, End: fork})}
			histories = append(histories, h)
		}
		for _, h := range histories {
			l := &Timeline{Timeline: h.Timeline, History: h, Known: true}
			for at := h.Begin(); at < h.Begin()+8*mib; at += mib {
				l.Objects = append(l.Objects, Object{Span: archive.Span{Timeline: h.Timeline, Start: at, End: at + mib}, Bytes: 1})
			}
			c.Timelines = append(c.Timelines, l)
		}
		h := histories[r.IntN(len(histories))]
		anchor := Anchor{Timeline: h.Timeline, LSN: h.Begin() + protocol.LSN(r.IntN(int(6*mib)))}
		plan, err := c.Prune([]Anchor{anchor})
		if err != nil {
			t.Fatal(err)
		}
		gone := map[archive.Span]bool{}
		for _, o := range plan.Objects {
			gone[o.Span] = true
		}
		for _, to := range histories {
			if to.Timeline != h.Timeline {
				if end, _, descends := to.End(h.Timeline); !descends || end < anchor.LSN {
					continue // cannot be reached from there
				}
			}
			for at := anchor.LSN.Floor(uint64(mib)); at < to.Begin()+8*mib; at += mib {
				owner := to.At(max(at, anchor.LSN))
				if gone[archive.Span{Timeline: owner, Start: at, End: at + mib}] {
					t.Fatalf("anchor %s: the way to timeline %d lacks %s on timeline %d", anchor, to.Timeline, at, owner)
				}
			}
		}
	}
}

func TestKeepSince(t *testing.T) {
	f := newFixture(t)
	f.put(1, 1, 9)
	now := time.Now()
	for i := 1; i < 9; i++ { // one a day; today's is the last
		name := filepath.Join(f.dir, archive.WALName(1, protocol.LSN(i)*mib, protocol.LSN(i+1)*mib))
		at := now.AddDate(0, 0, i-8)
		f.must(os.Chtimes(name, at, at))
	}
	for lsn, days := range map[string]int{"000000010000000000000002.00000028.backup": -6, "000000010000000000000005.00001000.backup": -3} {
		_, err := f.a.PutFile(f.ctx, archive.BytesFile(lsn, []byte("x")))
		f.must(err)
		at := now.AddDate(0, 0, days).Add(time.Hour)
		f.must(os.Chtimes(filepath.Join(f.dir, "file", lsn), at, at))
	}
	c := f.load()
	for days, want := range map[int]protocol.LSN{1: 5*mib + 0x1000, 2: 5*mib + 0x1000, 3: 2*mib + 0x28, 5: 2*mib + 0x28} {
		got, err := c.KeepSince(now.AddDate(0, 0, -days), nil)
		if err != nil || got.LSN != want {
			t.Errorf("%d days: %s, %v, want %s", days, got, err, want)
		}
	}
	if _, err := c.KeepSince(now.AddDate(0, 0, -30), nil); err == nil {
		t.Error("a month, for which there is no backup")
	}
	if got, err := c.KeepSince(now.AddDate(0, 0, -30), []Anchor{{Timeline: 1, LSN: mib / 2, Why: "known"}}); err != nil || got.Why != "known" {
		t.Errorf("a month, with an older backup: %v, %v", got, err)
	}
}

func TestParseBackup(t *testing.T) {
	for content, want := range map[string]string{
		"START WAL LOCATION: 0/2000028 (file 000000010000000000000002)\nCHECKPOINT LOCATION: 0/2000060\nSTART TIMELINE: 1\n": "1 0/2000028",
		"START WAL LOCATION: 16/B3000028 (file 00000003000000160000000B)\nLABEL: x\n":                                        "3 16/B3000028",
		`{"PostgreSQL-Backup-Manifest-Version": 1, "WAL-Ranges": [{"Timeline": 2, "Start-LSN": "0/5000000", "End-LSN": "0/6000000"},
		{"Timeline": 1, "Start-LSN": "0/4000028", "End-LSN": "0/5000000"}]}`: "1 0/4000028",
		"": "", "{}": "", "{": "", "hello": "", `{"WAL-Ranges": [{"Timeline": 1, "Start-LSN": "x"}]}`: "",
	} {
		tli, lsn, err := ParseBackup([]byte(content))
		if got := fmt.Sprintf("%d %s", tli, lsn); (err != nil) != (want == "") || err == nil && got != want {
			t.Errorf("%q: %s, %v, want %s", content, got, err, want)
		}
	}
}

func FuzzParseBackup(f *testing.F) {
	f.Add([]byte("START WAL LOCATION: 0/2000028 (file 000000010000000000000002)\nSTART TIMELINE: 1\n"))
	f.Add([]byte(`{"WAL-Ranges": [{"Timeline": 1, "Start-LSN": "0/1"}]}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		if tli, _, err := ParseBackup(content); err == nil && tli == 0 {
			t.Error("timeline 0")
		}
	})
}
