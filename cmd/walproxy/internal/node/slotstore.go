package node

import (
	"context"
	"errors"

	"walproxy/protocol"
	"walproxy/protocol/walsender"
)

// slotStore lets the server's sessions use the node's slots. It implements walsender.Slots.
type slotStore struct{ node *Node }

// Versions whose invalidated slots differ from those of the version before.
//
// Source: PostgreSQL src/backend/replication/slot.c, ReplicationSlotAcquire (18), InvalidatePossiblyObsoleteSlot (16).
const (
	refusesInvalidSlots  = 18 // before, START_REPLICATION works as long as there is WAL
	invalidSlotsStayThat = 16 // before, the next report makes a good slot of it
)

// Create makes a slot. One that reserves WAL begins at the redo position of the last checkpoint that passed, as a server's
// does. A node that has not seen a checkpoint since it started, or no longer has WAL from there, takes the segment of its
// position, or the oldest WAL that it has.
func (s *slotStore) Create(name string, pid int32, options walsender.SlotOptions) error {
	restart := protocol.LSN(0)
	if options.ReserveWAL {
		s.node.reserving.Lock() // until retention knows of the slot
		defer s.node.reserving.Unlock()
		restart = s.node.reservable()
	}
	return s.node.store.Create(name, options.Temporary, restart, pid)
}

func (s *slotStore) Read(name string) (protocol.LSN, error) {
	slot, ok := s.node.store.Get(name)
	if !ok {
		return 0, protocol.ErrSlotMissing
	}
	return slot.RestartLSN, nil
}

func (s *slotStore) Drop(ctx context.Context, name string, pid int32, wait bool) error {
	for {
		changed := s.node.store.Changed()
		err := s.node.store.Drop(name, pid)
		var held *protocol.SlotInUseError
		if !wait || !errors.As(err, &held) {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *slotStore) Acquire(name string, pid int32) (walsender.Slot, error) {
	if err := s.node.store.Acquire(name, pid); err != nil {
		return nil, err
	}
	held := &heldSlot{node: s.node, name: name, pid: pid}
	id, _ := s.node.log.Identity()
	held.revive = id.Major() < invalidSlotsStayThat
	if slot, _ := s.node.store.Get(name); slot.Invalidated != "" && id.Major() >= refusesInvalidSlots {
		held.Release()
		return nil, &protocol.SlotInvalidatedError{Name: name, Reason: slot.Invalidated}
	}
	return held, nil
}

func (s *slotStore) DropTemporary(pid int32) { s.node.store.DropTemporary(pid) }

// heldSlot is a slot in the hands of a session. It implements walsender.Slot.
type heldSlot struct {
	node   *Node
	name   string
	pid    int32
	revive bool // a report makes a good slot of an invalidated one
}

// Confirm moves the slot. A slot that was dropped under the session has nothing to move.
func (h *heldSlot) Confirm(flush protocol.LSN) { _ = h.node.store.Advance(h.name, flush, h.revive) }

func (h *heldSlot) Release() { h.node.store.Release(h.name, h.pid) }
