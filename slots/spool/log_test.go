package spool

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"

	"golang.org/x/sync/errgroup"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/slots/fs"
	"walproxy/slots/fs/memfs"
)

func TestRefusals(t *testing.T) {
	l, err := Open(t.TempDir(), Options{ResetDistance: distance, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	check := func(what string, f *link.Frame, want error) {
		t.Helper()
		before := l.State()
		if err := l.Append(f); !errors.Is(err, want) {
			t.Errorf("%s: got error %v, want %v", what, err, want)
		}
		if l.State() != before {
			t.Errorf("%s: state %+v, before %+v", what, l.State(), before)
		}
	}
	check("no identity", raw(1, 0x100000, 10), ErrNoIdentity)
	if err := l.SetIdentity(identity); err != nil {
		t.Fatal(err)
	}
	a := mustAppend(t, l, coded(1, 0x100000, 1000, 0))
	check("gap", raw(1, a.End()+1, 10), ErrGap)
	check("overlap", raw(1, a.End()-1, 10), ErrGap)
	check("other timeline", raw(2, a.End(), 10), ErrGap)
	check("end above the end", endFrame(t, 1, a.End()+1, 2), ErrGap)
	check("end below the beginning", endFrame(t, 1, a.Start-1, 2), ErrGap)
	check("over the boundary", raw(1, a.End(), distance), link.ErrCorrupt)
	broken := raw(1, a.End(), 10)
	broken.Sum++
	check("not sealed", broken, link.ErrCorrupt)
	var unseen *link.UnseenStreamError
	if err := l.Append(coded(1, a.End(), 100, a.Sum+1)); !errors.As(err, &unseen) {
		t.Errorf("foreign stream: %v", err)
	}
	b := mustAppend(t, l, coded(1, a.End(), distance-1000, a.Sum))
	if err := l.Append(coded(1, b.End(), 100, a.Sum)); !errors.As(err, &unseen) {
		t.Errorf("stream over a boundary: %v", err)
	}
	other := identity
	other.SystemID++
	var mismatch *IdentityError
	if err := l.SetIdentity(other); !errors.As(err, &mismatch) {
		t.Errorf("other system: %v", err)
	}
	newer := identity
	newer.ServerVersion = "15.19"
	if err := l.SetIdentity(newer); err != nil {
		t.Errorf("newer version: %v", err)
	}
	if err := l.AddHistory(2, []byte("1\t0/100010\tx\n")); err != nil {
		t.Error(err)
	}
	if err := l.AddHistory(2, []byte("1\t0/100020\tx\n")); !errors.Is(err, ErrHistoryDiffers) {
		t.Errorf("other history: %v", err)
	}
}

func TestOneProcessPerDirectory(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir, Options{NoSync: true})
	if _, err := Open(dir, Options{}); !errors.Is(err, fs.ErrLocked) {
		t.Fatalf("second Open: %v", err)
	}
	if err := errors.Join(l.Close(), l.Close()); err != nil {
		t.Fatal(err)
	}
	if err := l.Append(raw(1, 1, 1)); !errors.Is(err, ErrClosed) {
		t.Fatalf("append after Close: %v", err)
	}
	openLog(t, dir, Options{NoSync: true})
}

func TestReaderPositions(t *testing.T) {
	l := openLog(t, t.TempDir(), Options{NoSync: true})
	if _, err := l.OpenReader(1, 0); !errors.Is(err, ErrNotYet) {
		t.Fatalf("empty log: %v", err)
	}
	a := mustAppend(t, l, raw(2, 0x200010, 100))
	mustAppend(t, l, endFrame(t, 2, a.End(), 5))
	for _, c := range []struct {
		tli  protocol.Timeline
		lsn  protocol.LSN
		want error
	}{{2, a.End() + 1, ErrNotYet}, {5, a.End(), nil},
		{5, a.End() + 1, ErrNotYet}, {6, a.End(), ErrNotYet}, {4, a.End(), ErrNoTimeline}, {2, a.End(), nil}} {
		r, err := l.OpenReader(c.tli, c.lsn)
		if !errors.Is(err, c.want) {
			t.Errorf("timeline %d at %s: %v, want %v", c.tli, c.lsn, err, c.want)
		}
		if r != nil {
			_ = r.Close()
		}
	}
	for tli, lsn := range map[protocol.Timeline]protocol.LSN{2: a.Start - 1, 1: a.Start, 5: a.End() - 1} {
		var removed *RemovedError
		if _, err := l.OpenReader(tli, lsn); !errors.As(err, &removed) || removed.Oldest != a.Start {
			t.Errorf("timeline %d at %s: %v", tli, lsn, err)
		}
	}
}

func TestRetain(t *testing.T) {
	l := openLog(t, t.TempDir(), Options{})
	var all []*link.Frame
	for at := protocol.LSN(0x300000); at < 0x800000; at += distance / 2 {
		all = append(all, mustAppend(t, l, coded(1, at, distance/2, 0)))
	}
	slow := openReader(t, l, 1, 0x300000)
	expect(t, slow, all[0])
	if err := l.Retain(0x4fffff); err != nil || l.State().Begin != 0x300000 { // only the first window is durable
		t.Fatalf("state after Retain of what is not durable: %+v, %v", l.State(), err)
	}
	if err := errors.Join(l.Sync(), l.Retain(0x4fffff)); err != nil {
		t.Fatal(err)
	}
	before := l.State()
	if before.Begin != 0x400000 {
		t.Fatalf("state after Retain: %+v", before)
	}
	all = append(all, mustAppend(t, l, coded(1, 0x800000, 1000, 0)))
	expect(t, slow, all[1]) // its file is open
	var removed *RemovedError
	if err := l.Retain(0x1000000); err != nil {
		t.Fatal(err)
	}
	if _, err := slow.Next(t.Context()); !errors.As(err, &removed) {
		t.Fatalf("reader behind retention: %v", err)
	}
	if _, err := l.OpenReader(1, 0x400000); !errors.As(err, &removed) {
		t.Fatalf("removed WAL: %v", err)
	}
	if s := l.State(); s.Begin != 0x700000 { // the newest durable window; the newest one is not
		t.Fatalf("state after Retain of everything: %+v", s)
	}
	if err := errors.Join(l.Sync(), l.Retain(0x1000000)); err != nil {
		t.Fatal(err)
	}
	s := l.State()
	files, err := filepath.Glob(l.root + "/*/*.win")
	if err != nil || len(files) != 1 || s.Begin != 0x800000 || s.Bytes >= before.Bytes {
		t.Fatalf("%d files, state %+v, %v", len(files), s, err)
	}
	expect(t, openReader(t, l, 1, 0x800000), all[10:]...)
}

func TestCap(t *testing.T) {
	l := openLog(t, t.TempDir(), Options{CapBytes: 700 << 10})
	a := mustAppend(t, l, coded(1, 0x100000, distance, 0)) // half of it in bytes
	big := coded(1, a.End(), distance/2, 0)
	before := l.State()
	if err := l.Append(big); !errors.Is(err, ErrFull) || l.State() != before && l.State().Flushed == before.Flushed {
		t.Fatalf("append beyond the cap: %v", err)
	}
	small := mustAppend(t, l, coded(1, a.End(), 100<<10, 0)) // room for less remains
	changed := l.Changed()
	if err := errors.Join(l.Sync(), l.Retain(small.Start)); err != nil {
		t.Fatal(err)
	}
	<-changed
	mustAppend(t, l, coded(1, small.End(), distance/2, 0))
}

func TestResetDistanceChanges(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir, Options{})
	a := mustAppend(t, l, coded(1, 0x100000, 1000, 0))
	if err := l.SetResetDistance(4 << 20); err != nil {
		t.Fatal(err)
	}
	b := mustAppend(t, l, coded(1, a.End(), 2<<20, 0)) // crosses the old boundaries
	if err := errors.Join(l.SetResetDistance(3), l.Close()); err == nil {
		t.Fatal("a reset distance of 3 was accepted")
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = openLog(t, dir, Options{ResetDistance: 4 << 20})
	c := mustAppend(t, l, coded(1, b.End(), 100, b.Sum))
	expect(t, openReader(t, l, 1, a.Start), a, b, c)
}

func TestWaitingReaderIsWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := openLog(t, "data", Options{FS: memfs.New()})
		a := mustAppend(t, l, raw(1, 0x100000, 100))
		r := openReader(t, l, 1, a.End())
		var group errgroup.Group
		b := raw(1, a.End(), 50)
		group.Go(func() error {
			f, err := r.Next(context.Background())
			if err != nil {
				return err
			}
			return sameFrame(f, b)
		})
		synctest.Wait() // the reader waits
		mustAppend(t, l, b)
		if err := group.Wait(); err != nil {
			t.Fatal(err)
		}
		group.Go(func() error {
			_, err := r.Next(context.Background())
			if !errors.Is(err, ErrClosed) {
				return fmt.Errorf("reader of a closed log: %w", err)
			}
			return nil
		})
		synctest.Wait()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if err := group.Wait(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestFailedSyncEndsTheLog(t *testing.T) {
	disk := memfs.New()
	l := openLog(t, "data", Options{FS: disk})
	a := mustAppend(t, l, raw(1, 0x100000, 100))
	broken := errors.New("input/output error")
	disk.Inject(func(op memfs.Op) error {
		if op.Kind == "sync" {
			return broken
		}
		return nil
	})
	if err := l.Sync(); !errors.Is(err, broken) {
		t.Fatalf("sync: %v", err)
	}
	disk.Inject(nil)
	if err := l.Sync(); !errors.Is(err, broken) {
		t.Fatalf("sync after a failed one: %v", err)
	}
	if err := l.Append(raw(1, a.End(), 10)); !errors.Is(err, broken) {
		t.Fatalf("append after a failed sync: %v", err)
	}
	if s := l.State(); s.Flushed != a.Start {
		t.Fatalf("state: %+v", s)
	}
}
