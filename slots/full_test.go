package slots

import (
	"errors"
	"syscall"
	"testing"

	"walproxy/protocol"
	"walproxy/slots/fs"
	"walproxy/slots/fs/memfs"
)

// crowded makes a disk refuse to grow, but for as many bytes as were given back by removing or replacing files named in sizes.
type crowded struct {
	free  int
	sizes map[string]int
}

func (c *crowded) fault(op memfs.Op) error {
	switch op.Kind {
	case "write":
		if op.Bytes > c.free {
			return syscall.ENOSPC
		}
		c.free -= op.Bytes
		c.sizes[op.Name] += op.Bytes
	case "remove":
		c.free += c.sizes[op.Name]
		delete(c.sizes, op.Name)
	case "rename": // over the old file
		c.free += c.sizes[op.Name]
		c.sizes[op.Name] = c.sizes[op.Name+fs.TempSuffix]
		delete(c.sizes, op.Name+fs.TempSuffix)
	}
	return nil
}

// On a full disk positions are saved, and slots invalidated and dropped, again and again, in the room that was set aside for it.
func TestFullDisk(t *testing.T) {
	disk := newDisk(t)
	c := &crowded{free: 1 << 20, sizes: map[string]int{}}
	disk.Inject(c.fault)
	s := openStore(t, disk)
	if err := errors.Join(s.Create("a", false, 0x1000000, 0), s.Create("b", false, 0x2000000, 0), s.Create("c", false, 0, 0)); err != nil {
		t.Fatal(err)
	}
	c.free = 0
	for i := range 10 {
		if err := errors.Join(s.Advance("a", protocol.LSN(0x3000000+i), false), s.Flush()); err != nil {
			t.Fatalf("save %d on a full disk: %v", i, err)
		}
	}
	if i := errors.Join(s.Invalidate("b", "wal_removed"), s.Drop("c", 0)); i != nil {
		t.Fatal(i)
	}
	s = openStore(t, disk.Kill())
	a, _ := s.Get("a")
	b, _ := s.Get("b")
	if a.RestartLSN != 0x3000009 || b.Invalidated == "" || len(s.List()) != 2 {
		t.Errorf("slots after the restart: %+v", s.List())
	}
}

// When even that is gone, because others have taken it, saves fail and the old positions hold, until there is room again.
func TestFullDiskWithoutReserve(t *testing.T) {
	disk := newDisk(t)
	c := &crowded{free: 1 << 20, sizes: map[string]int{}}
	disk.Inject(c.fault)
	s := openStore(t, disk)
	if err := s.Create("a", false, 0x1000000, 0); err != nil {
		t.Fatal(err)
	}
	c.free = 0
	delete(c.sizes, "data/slots.reserve") // what it gives back, others take
	if err := errors.Join(s.Advance("a", 0x3000000, false), s.Flush()); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("save on a full disk: %v", err)
	}
	if err := s.Create("b", false, 0, 0); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("create on a full disk: %v", err)
	}
	if slot, _ := s.Get("a"); slot.HoldsFrom() != 0x1000000 || len(s.List()) != 1 {
		t.Errorf("slots: %+v", s.List())
	}
	c.free = 1 << 20
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	if slot, _ := openStore(t, disk.Kill()).Get("a"); slot.RestartLSN != 0x3000000 {
		t.Errorf("slot after the restart: %+v", slot)
	}
	c.free = 0
	if err := errors.Join(s.Advance("a", 0x4000000, false), s.Flush()); err != nil {
		t.Errorf("the reserve was not made again: %v", err)
	}
}
