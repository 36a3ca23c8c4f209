package slots

import (
	"fmt"

	"walproxy/protocol"
)

// Acquire gives the slot to the session pid, until Release. The session may hold it already.
//
// Errors: protocol.ErrSlotMissing, *protocol.SlotInUseError.
func (s *Store) Acquire(name string, pid int32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	slot := s.slots[name]
	switch {
	case slot == nil:
		return fmt.Errorf("acquire slot %q: %w", name, protocol.ErrSlotMissing)
	case slot.PID != 0 && slot.PID != pid:
		return &protocol.SlotInUseError{Name: name, PID: slot.PID}
	}
	slot.PID = pid
	s.changed.Notify()
	return nil
}

// Release ends the hold of the session pid; a temporary slot stays its own. Others' slots and missing ones are left alone.
func (s *Store) Release(name string, pid int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slot := s.slots[name]; slot != nil && slot.PID == pid && !slot.Temporary {
		slot.PID = 0
		s.changed.Notify()
	}
}

// DropTemporary drops the temporary slots of the session pid: it ended, or one of its commands failed.
func (s *Store) DropTemporary(pid int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, slot := range s.slots {
		if slot.Temporary && slot.PID == pid {
			delete(s.slots, name)
			s.changed.Notify()
		}
	}
}

// Advance sets the slot's restart_lsn, forwards or backwards, as each flush position that a consumer reports does. It is
// saved later. A position of 0 changes nothing, as on a server. With revive, a slot that was invalidated is a good one again,
// as on servers up to 15; newer ones move its restart_lsn, and it still holds nothing.
//
// Source: PostgreSQL src/backend/replication/walsender.c, PhysicalConfirmReceivedLocation (13-18).
func (s *Store) Advance(name string, lsn protocol.LSN, revive bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	slot := s.slots[name]
	if slot == nil {
		return fmt.Errorf("advance slot %q: %w", name, protocol.ErrSlotMissing)
	}
	revive = revive && slot.Invalidated != ""
	if lsn == 0 || lsn == slot.RestartLSN && !revive {
		return nil
	}
	if revive {
		slot.Invalidated, slot.SavedLSN = "", 0 // a crash brings back a slot that holds nothing
	}
	slot.RestartLSN = lsn
	if !slot.Temporary {
		s.dirty = true
	}
	s.changed.Notify()
	return nil
}

// Invalidate makes the slot hold no WAL back any more, for a reason in PostgreSQL's words ("wal_removed"), and forgets its
// restart_lsn. That is durable on return, so the WAL may go then; after an error it may not.
//
// Source: PostgreSQL src/backend/replication/slot.c, InvalidatePossiblyObsoleteSlot (13-18).
func (s *Store) Invalidate(name, reason string) error {
	s.saveMu.Lock()
	defer s.saveMu.Unlock()
	slot, ok := s.Get(name)
	if !ok {
		return fmt.Errorf("invalidate slot %q: %w", name, protocol.ErrSlotMissing)
	}
	if !slot.Temporary {
		err := s.save(func(all []Slot) []Slot {
			for i := range all {
				if all[i].Name == name {
					all[i].Invalidated, all[i].RestartLSN = reason, 0
				}
			}
			return all
		})
		if err != nil {
			return fmt.Errorf("invalidate slot %q: %w", name, err)
		}
	}
	s.mu.Lock()
	if slot := s.slots[name]; slot != nil {
		slot.Invalidated, slot.RestartLSN, slot.SavedLSN = reason, 0, 0
	}
	s.mu.Unlock()
	s.changed.Notify()
	return nil
}
