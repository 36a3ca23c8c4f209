package node

import (
	"context"
	"errors"

	"walproxy/protocol"
	"walproxy/protocol/walsender"
)

// slotStore lets the server's sessions use the node's slots. It implements walsender.Slots.
type slotStore struct{ node *Node }

// Create makes a slot. One that reserves WAL begins at the segment of the node's position: a server's begins at its last
// checkpoint, which a node does not know.
func (s *slotStore) Create(name string, pid int32, options walsender.SlotOptions) error {
	restart := protocol.LSN(0)
	if options.ReserveWAL {
		id, _ := s.node.log.Identity()
		_, end := s.node.feed.Position()
		restart = max(end.Floor(uint64(id.SegmentSize)), s.node.log.State().Begin)
	}
	return s.node.store.Create(name, options.Temporary, restart, pid)
}

func (s *slotStore) Read(name string) (protocol.LSN, error) {
	slot, ok := s.node.store.Get(name)
	switch {
	case !ok:
		return 0, protocol.ErrSlotMissing
	case slot.Invalidated != "":
		return 0, nil
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
	return &heldSlot{node: s.node, name: name, pid: pid}, nil
}

func (s *slotStore) DropTemporary(pid int32) { s.node.store.DropTemporary(pid) }

// heldSlot is a slot in the hands of a session. It implements walsender.Slot.
type heldSlot struct {
	node *Node
	name string
	pid  int32
}

// Confirm moves the slot. A slot that was dropped under the session has nothing to move.
func (h *heldSlot) Confirm(flush protocol.LSN) { _ = h.node.store.Advance(h.name, flush) }

func (h *heldSlot) Release() { h.node.store.Release(h.name, h.pid) }
