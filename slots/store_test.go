package slots

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"walproxy/protocol"
	"walproxy/slots/fs"
	"walproxy/slots/fs/memfs"
	"walproxy/slots/statefile"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func openStore(t testing.TB, disk fs.FS) *Store {
	t.Helper()
	s, err := OpenStore("data", StoreOptions{FS: disk, Max: 5})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// newDisk returns a disk with a durable data directory.
func newDisk(t testing.TB) *memfs.FS {
	t.Helper()
	disk := memfs.New()
	if err := errors.Join(disk.MkdirAll("data"), disk.SyncDir("/")); err != nil {
		t.Fatal(err)
	}
	return disk
}

func TestStore(t *testing.T) {
	disk := newDisk(t)
	s := openStore(t, disk)
	check := func(what string, got, want error) {
		t.Helper()
		if !errors.Is(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	held := func(what string, err error, pid int32) {
		t.Helper()
		var inUse *protocol.SlotInUseError
		if !errors.As(err, &inUse) || inUse.PID != pid {
			t.Errorf("%s: %v, want it to be held by %d", what, err, pid)
		}
	}
	check("create", s.Create("one", false, 0x5000028, 0), nil)
	check("create again", s.Create("one", true, 0, 7), protocol.ErrSlotExists)
	var refused *protocol.Error
	if err := s.Create("One", false, 0, 0); !errors.As(err, &refused) || refused.Code != protocol.CodeInvalidName {
		t.Errorf("create badly: %v", err)
	}
	check("temporary", s.Create("temp", true, 0, 7), nil)
	held("acquire another's temporary slot", s.Acquire("temp", 8), 7)
	check("acquire the own one", s.Acquire("temp", 7), nil)
	s.Release("temp", 7)
	held("acquire it after its release", s.Acquire("temp", 8), 7)
	check("acquire", s.Acquire("one", 8), nil)
	held("acquire a held one", s.Acquire("one", 9), 8)
	held("drop a held one", s.Drop("one", 0), 8)
	s.Release("one", 9)
	held("acquire after another's release", s.Acquire("one", 9), 8)
	s.Release("one", 8)
	check("acquire after release", s.Acquire("one", 9), nil)
	check("acquire a missing one", s.Acquire("two", 9), protocol.ErrSlotMissing)
	check("advance a missing one", s.Advance("two", 1, false), protocol.ErrSlotMissing)
	check("drop a missing one", s.Drop("two", 9), protocol.ErrSlotMissing)
	for i := range 3 {
		check("create", s.Create(fmt.Sprintf("more_%d", i), false, 0, 0), nil)
	}
	check("create too many", s.Create("toomany", false, 0, 0), protocol.ErrSlotsFull)
	s.DropTemporary(8)
	s.DropTemporary(7)
	if _, ok := s.Get("temp"); ok || len(s.List()) != 4 {
		t.Errorf("slots after the session's end: %+v", s.List())
	}
	check("drop the own one", s.Drop("one", 9), nil)
	check("invalidate", s.Invalidate("more_1", "wal_removed"), nil)
	again := openStore(t, disk.Kill())
	want := []Slot{{Name: "more_0"}, {Name: "more_1", Invalidated: "wal_removed"}, {Name: "more_2"}}
	if got := again.List(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("slots after a restart: %+v, want %+v", got, want)
	}
}

func TestAdvanceHoldsWhatACrashBringsBack(t *testing.T) {
	disk := newDisk(t)
	s := openStore(t, disk)
	if err := errors.Join(s.Create("a", false, 0x5000000, 0), s.Advance("a", 0x9000000, false), s.Advance("a", 0, false)); err != nil {
		t.Fatal(err)
	}
	expect := func(restart, from protocol.LSN) {
		t.Helper()
		if slot, _ := s.Get("a"); slot.RestartLSN != restart || slot.HoldsFrom() != from {
			t.Fatalf("slot %+v holds from %s, want restart_lsn %s and to hold from %s", slot, slot.HoldsFrom(), restart, from)
		}
	}
	steps := disk.Steps()
	expect(0x9000000, 0x5000000)
	if disk.Steps() != steps {
		t.Fatal("an advance went to the disk")
	}
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	expect(0x9000000, 0x9000000)
	if err := s.Advance("a", 0x3000000, false); err != nil { // backwards, at once
		t.Fatal(err)
	}
	expect(0x3000000, 0x3000000)
	broken := errors.New("disk failed")
	disk.Inject(func(op memfs.Op) error {
		if op.Kind == "syncdir" {
			return broken
		}
		return nil
	})
	if err := s.Flush(); !errors.Is(err, broken) {
		t.Fatalf("flush: %v", err)
	}
	disk.Inject(nil)
	if err := s.Advance("a", 0xA000000, false); err != nil {
		t.Fatal(err)
	}
	expect(0xA000000, 0x3000000) // the failed save may have reached the disk
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	expect(0xA000000, 0xA000000)
}

// A position that is about to be saved holds WAL as long as the save may have reached the disk.
func TestFirstPositionHoldsWhileItIsSaved(t *testing.T) {
	disk := newDisk(t)
	s := openStore(t, disk)
	if err := errors.Join(s.Create("a", false, 0, 0), s.Advance("a", 0x5000000, false)); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("disk failed")
	disk.Inject(func(op memfs.Op) error {
		if op.Kind == "syncdir" {
			return broken
		}
		return nil
	})
	if err := s.Flush(); !errors.Is(err, broken) {
		t.Fatalf("flush: %v", err)
	}
	if err := s.Advance("a", 0x9000000, false); err != nil {
		t.Fatal(err)
	}
	if slot, _ := s.Get("a"); slot.HoldsFrom() != 0x5000000 {
		t.Errorf("%+v holds from %s", slot, slot.HoldsFrom())
	}
}

// Up to version 15 a report of the consumer makes a good slot of an invalidated one; later the slot moves and stays invalid.
func TestRevive(t *testing.T) {
	disk := newDisk(t)
	s := openStore(t, disk)
	if err := errors.Join(s.Create("a", false, 0x5000000, 0), s.Invalidate("a", "wal_removed"), s.Advance("a", 0x6000000, false)); err != nil {
		t.Fatal(err)
	}
	if slot, _ := s.Get("a"); slot.Invalidated == "" || slot.RestartLSN != 0x6000000 || slot.HoldsFrom() != 0 {
		t.Errorf("not revived: %+v", slot)
	}
	if err := s.Advance("a", 0x6000000, true); err != nil {
		t.Fatal(err)
	}
	if slot, _ := s.Get("a"); slot.Invalidated != "" || slot.HoldsFrom() != 0x6000000 {
		t.Errorf("revived: %+v", slot)
	}
	if slot, _ := openStore(t, disk.Kill()).Get("a"); slot.Invalidated == "" || slot.HoldsFrom() != 0 {
		t.Errorf("after a crash before it was saved: %+v", slot)
	}
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	if slot, _ := openStore(t, disk.Kill()).Get("a"); slot.Invalidated != "" || slot.HoldsFrom() != 0x6000000 {
		t.Errorf("after a crash: %+v", slot)
	}
}

func TestRunSaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := newDisk(t)
		s := openStore(t, disk)
		if err := s.Create("a", false, 0x1000000, 0); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wait sync.WaitGroup
		wait.Go(func() {
			if err := s.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		for i := range 1000 {
			if err := s.Advance("a", protocol.LSN(0x1000001+i), false); err != nil {
				t.Fatal(err)
			}
		}
		before := disk.Steps()
		time.Sleep(DefaultSaveInterval + time.Millisecond) // fake time
		synctest.Wait()
		if slot, _ := s.Get("a"); slot.SavedLSN != slot.RestartLSN || disk.Steps()-before > 6 {
			t.Errorf("slot %+v after the save interval, %d changes to the disk", slot, disk.Steps()-before)
		}
		if err := s.Advance("a", 0x2000000, false); err != nil {
			t.Fatal(err)
		}
		cancel()
		wait.Wait()
		if slot, _ := openStore(t, disk.Kill()).Get("a"); slot.RestartLSN != 0x2000000 {
			t.Errorf("slot after shutdown: %+v", slot)
		}
	})
}

func TestCorruptFileIsRefused(t *testing.T) {
	disk := newDisk(t)
	if err := openStore(t, disk).Create("a", false, 1, 0); err != nil {
		t.Fatal(err)
	}
	content, err := fs.ReadFile(disk, "data/slots", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for at := range content {
		damaged := []byte(string(content))
		damaged[at] ^= 0x20
		if err := fs.WriteFile(disk, "data/slots", damaged); err != nil {
			t.Fatal(err)
		}
		var corrupt *CorruptError
		var version *statefile.VersionError
		if _, err := OpenStore("data", StoreOptions{FS: disk}); !errors.As(err, &corrupt) && !errors.As(err, &version) {
			t.Fatalf("byte %d flipped: %v", at, err)
		}
	}
	if err := fs.WriteFile(disk, "data/slots", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenStore("data", StoreOptions{FS: disk}); !errors.Is(err, statefile.ErrCorrupt) {
		t.Fatalf("empty file: %v", err)
	}
}

// TestCrashAtEveryChange loses the power at each change to the disk. What was confirmed is there, and no slot claims WAL
// below what it held while it was alive.
func TestCrashAtEveryChange(t *testing.T) {
	lost := errors.New("power lost")
	for at := 0; ; at++ {
		disk := newDisk(t)
		s := openStore(t, disk)
		start := disk.Steps()
		disk.Inject(func(op memfs.Op) error {
			if op.Step >= start+at {
				return lost
			}
			return nil
		})
		kept := map[string]bool{}          // confirmed to exist
		gone := map[string]bool{}          // confirmed not to exist
		unsure := map[string]bool{}        // in between
		holds := map[string]protocol.LSN{} // what is held now
		rng := rand.New(rand.NewPCG(uint64(at), 3))
		do := func(err error, name string, to, from map[string]bool) {
			delete(from, name)
			delete(to, name)
			if err == nil {
				to[name] = true
				delete(unsure, name)
			} else {
				unsure[name] = true
			}
		}
		do(s.Create("a", false, 0x5000000, 0), "a", kept, gone)
		do(s.Create("b", false, 0, 0), "b", kept, gone)
		for i := range 6 {
			_ = s.Advance("a", protocol.LSN(rng.Uint64N(1<<30)), false)
			_ = s.Advance("b", protocol.LSN(rng.Uint64N(1<<30)), false)
			if i%2 == 1 {
				_ = s.Flush()
			}
		}
		do(s.Drop("a", 0), "a", gone, kept)
		do(s.Create("c", false, 0x7000000, 0), "c", kept, gone)
		for _, slot := range s.List() {
			holds[slot.Name] = slot.HoldsFrom()
		}
		for variant := range uint64(8) {
			left := openStore(t, disk.Crash(rand.New(rand.NewPCG(uint64(at), variant))))
			for name := range kept {
				slot, ok := left.Get(name)
				if !ok {
					t.Fatalf("crash at change %d: slot %s is gone", at, name)
				}
				if slot.RestartLSN != 0 && slot.RestartLSN < holds[name] {
					t.Fatalf("crash at change %d: slot %+v claims WAL below %s, which was not held", at, slot, holds[name])
				}
			}
			for name := range gone {
				if slot, ok := left.Get(name); ok {
					t.Fatalf("crash at change %d: slot %+v is back", at, slot)
				}
			}
		}
		if disk.Steps() <= start+at {
			return
		}
	}
}

func FuzzDecodeStore(f *testing.F) {
	content, err := encodeStore([]Slot{{Name: "a", RestartLSN: 0x5000028}, {Name: "b", Invalidated: "wal_removed"}, {Name: "t", Temporary: true}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(content)
	f.Fuzz(func(t *testing.T, b []byte) {
		slots, err := decodeStore(b)
		if err != nil {
			return
		}
		again, err := encodeStore(slots)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := decodeStore(again); err != nil || fmt.Sprint(back) != fmt.Sprint(slots) {
			t.Fatalf("%+v comes back as %+v, %v", slots, back, err)
		}
	})
}

// TestDropExcludesAcquire: while a slot is being dropped nobody gets it; if that fails it is there as before.
func TestDropExcludesAcquire(t *testing.T) {
	for _, fails := range []bool{false, true} {
		disk := memfs.New()
		if err := disk.MkdirAll("data"); err != nil {
			t.Fatal(err)
		}
		s, err := OpenStore("data", StoreOptions{FS: disk})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Create("a", false, 0x1000000, 0); err != nil {
			t.Fatal(err)
		}
		var acquired error
		broken := errors.New("input/output error")
		disk.Inject(func(op memfs.Op) error {
			if op.Kind != "rename" {
				return nil
			}
			acquired = s.Acquire("a", 7)
			if fails {
				return broken
			}
			return nil
		})
		err = s.Drop("a", 8)
		disk.Inject(nil)
		var used *protocol.SlotInUseError
		if !errors.As(acquired, &used) || used.PID != 8 {
			t.Errorf("acquired while it is dropped: %v", acquired)
		}
		if _, there := s.Get("a"); there != fails || errors.Is(err, broken) != fails {
			t.Errorf("dropped: there %t, %v", there, err)
		}
		if fails {
			if err := errors.Join(s.Acquire("a", 7), s.Advance("a", 0x2000000, false)); err != nil {
				t.Errorf("after a drop that failed: %v", err)
			}
		}
	}
}

// TestCreateExcludesAcquire: a slot that may not come to be is nobody else's.
func TestCreateExcludesAcquire(t *testing.T) {
	disk := memfs.New()
	if err := disk.MkdirAll("data"); err != nil {
		t.Fatal(err)
	}
	s, err := OpenStore("data", StoreOptions{FS: disk})
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("input/output error")
	for _, fault := range []error{broken, nil} {
		var acquired error
		disk.Inject(func(op memfs.Op) error {
			if op.Kind != "rename" {
				return nil
			}
			acquired = s.Acquire("a", 7)
			return fault
		})
		err = s.Create("a", false, 0x1000000, 8)
		disk.Inject(nil)
		var used *protocol.SlotInUseError
		if !errors.As(acquired, &used) || used.PID != 8 || !errors.Is(err, fault) {
			t.Errorf("acquired while it is created: %v; created: %v", acquired, err)
		}
	}
	if slot, _ := s.Get("a"); slot.PID != 0 {
		t.Errorf("slot %+v", slot)
	}
}
