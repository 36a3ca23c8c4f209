package slots

import (
	"errors"
	"fmt"
	"syscall"

	"walproxy/slots/fs"
)

// The file <data>/slots.reserve holds nothing but room for one save of the slots. On a full disk it is given up for the save, and
// made again of what the replaced file took: positions move on, and a slot can be invalidated or dropped, which is what makes
// room for WAL again.
const (
	reserveSuffix = ".reserve"
	reserveUnit   = 4 << 10 // a block of the usual file systems
)

// write replaces the file of the slots. saveMu is held.
func (s *Store) write(content []byte) error {
	err := fs.WriteFile(s.fs, s.file, content)
	if isFull(err) && s.reserved > 0 {
		s.reserved = 0
		if errRemove := s.fs.Remove(s.file + reserveSuffix); errRemove != nil {
			return fmt.Errorf("%w; %w", err, errRemove)
		}
		err = fs.WriteFile(s.fs, s.file, content)
	}
	if err != nil {
		return err
	}
	s.metrics.saved()
	s.reserve(int64(len(content)))
	return nil
}

// reserve sees to it that the next save has room. Without it a save may fail on a full disk, as it would anyway.
func (s *Store) reserve(saved int64) {
	want := (saved/reserveUnit + 2) * reserveUnit // room for more slots, too
	if s.reserved >= want {
		return
	}
	name := s.file + reserveSuffix
	file, err := s.fs.Create(name)
	if err == nil {
		_, err = file.WriteAt(make([]byte, want), 0)
		err = errors.Join(err, file.Close())
	}
	if err != nil { // nobody else may have use for half of it
		s.reserved = 0
		_ = s.fs.Remove(name)
		return
	}
	s.reserved = want
}

// findReserve looks for the reserve that is there already.
func (s *Store) findReserve() {
	file, err := s.fs.Open(s.file + reserveSuffix)
	if err != nil {
		return
	}
	if size, err := file.Size(); err == nil {
		s.reserved = size
	}
	_ = file.Close()
}

// isFull tells whether an error says that there is no room on the disk.
func isFull(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }
