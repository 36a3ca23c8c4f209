package spool

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"walproxy/protocol"
	"walproxy/slots/fs/memfs"
)

// TestRetainAfterFailures: a window that cannot be removed, or whose removal cannot be made durable, stays the first to go, so that
// what is on disk is contiguous after any failure. A window that is gone already is no failure.
func TestRetainAfterFailures(t *testing.T) {
	broken := errors.New("input/output error")
	for _, kind := range []string{"remove", "syncdir"} {
		for fails := 1; fails <= 3; fails++ {
			t.Run(fmt.Sprint(kind, fails), func(t *testing.T) {
				disk := memfs.New()
				l := openLog(t, "data", Options{FS: disk})
				for at := protocol.LSN(0x100000); at < 0x800000; at += distance {
					mustAppend(t, l, filling(at, 40))
				}
				if err := l.Sync(); err != nil {
					t.Fatal(err)
				}
				left := fails
				disk.Inject(func(op memfs.Op) error {
					if op.Kind == kind && left > 0 && strings.Contains(op.Name, "00000001") {
						left--
						return broken
					}
					return nil
				})
				for range fails {
					if err := l.Retain(0x400000); !errors.Is(err, broken) {
						t.Fatalf("retain: %v", err)
					}
					contiguous(t, disk)
				}
				if err := l.Retain(0x400000); err != nil {
					t.Fatal(err)
				}
				contiguous(t, disk)
				names, err := disk.ReadDir("data/spool/00000001")
				if err != nil || len(names) != 4 || names[0] != "0000000000400000.win" || l.State().Begin != 0x400000 {
					t.Fatalf("left are %v, %v, state %+v", names, err, l.State())
				}
			})
		}
	}
}

// contiguous opens what the death of the process and losses of power leave of disk.
func contiguous(t *testing.T, disk *memfs.FS) {
	t.Helper()
	left := []*memfs.FS{disk.Kill()}
	for seed := range uint64(20) {
		left = append(left, disk.Crash(rand.New(rand.NewPCG(seed, 1))))
	}
	for _, d := range left {
		l, err := Open("data", Options{FS: d, ResetDistance: distance})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestRetainOfTheMissing: a window that somebody took away is passed over.
func TestRetainOfTheMissing(t *testing.T) {
	disk := memfs.New()
	l := openLog(t, "data", Options{FS: disk})
	for at := protocol.LSN(0x100000); at < 0x500000; at += distance {
		mustAppend(t, l, filling(at, 40))
	}
	if err := errors.Join(l.Sync(), disk.Remove("data/spool/00000001/0000000000100000.win"), l.Retain(0x300000)); err != nil {
		t.Fatal(err)
	}
	if names, err := disk.ReadDir("data/spool/00000001"); err != nil || !slices.Equal(names, []string{"0000000000300000.win", "0000000000400000.win"}) {
		t.Fatalf("left are %v, %v", names, err)
	}
}

// TestRetainAfterAKill: the removal of a window that the process did not live to make durable comes before the next one, also if the
// power fails then.
func TestRetainAfterAKill(t *testing.T) {
	disk := memfs.New()
	l := openLog(t, "data", Options{FS: disk})
	for at := protocol.LSN(0x100000); at < 0x800000; at += distance {
		mustAppend(t, l, filling(at, 40))
	}
	mustAppend(t, l, endFrame(t, 1, 0x800000, 2))
	mustAppend(t, l, raw(2, 0x800000, 100))
	if err := l.Sync(); err != nil {
		t.Fatal(err)
	}
	for i := range protocol.LSN(6) {
		disk.Inject(func(op memfs.Op) error {
			if op.Kind == "syncdir" && strings.HasSuffix(op.Name, "00000001") {
				return errCrash
			}
			return nil
		})
		if err := l.Retain(0x200000 + i*distance); !errors.Is(err, errCrash) {
			t.Fatalf("retain: %v", err)
		}
		contiguous(t, disk)
		disk = disk.Kill()
		l = openLog(t, "data", Options{FS: disk})
	}
}
