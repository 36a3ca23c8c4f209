package node

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"walproxy/cmd/walproxy/internal/config"
	"walproxy/protocol"
	"walproxy/slots"
)

// retainInterval is how often WAL that nobody needs is looked for.
const retainInterval = time.Second

// retain removes WAL that nobody needs until ctx ends.
func (n *Node) retain(ctx context.Context) error {
	tick := time.NewTicker(retainInterval)
	defer tick.Stop()
	for {
		if err := n.removeUnneeded(uint64(n.config.Spool.Keep), n.redo.position()); err != nil {
			n.logger.Error("cannot remove old WAL", zap.Error(err))
		}
		n.checkRoom(time.Now())
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// removeUnneeded removes WAL below the oldest LSN that holds returns. That takes its time: a slot that is made meanwhile does not
// begin below.
func (n *Node) removeUnneeded(keep uint64, redo protocol.LSN) error {
	n.reserving.Lock()
	oldest, _ := n.holds(keep, redo)
	n.going = oldest
	n.reserving.Unlock()
	before := n.log.State().Bytes
	if err := n.log.Retain(oldest); err != nil {
		return err
	}
	if n.log.State().Bytes < before {
		n.room.send()
	}
	return nil
}

// holds returns the oldest LSN that is needed, and who needs what. keep bytes behind the end are needed by nobody in particular,
// and so is WAL from redo on, if that is not 0.
func (n *Node) holds(keep uint64, redo protocol.LSN) (protocol.LSN, []slots.Hold) {
	return slots.Retention(n.store.List(), n.registry.Consumers(), n.log.State().End, n.retention(keep, redo))
}

func (n *Node) retention(keep uint64, redo protocol.LSN) slots.RetentionOptions {
	id, _ := n.log.Identity()
	return slots.RetentionOptions{
		SegmentSize: max(id.SegmentSize, protocol.MinSegmentSize), ResetDistance: n.log.ResetDistance(), KeepBytes: keep, Redo: redo,
	}
}

// makeRoom is called by the receiver when the spool is full. It removes what nobody needs, what is kept for nobody in
// particular included, and then follows the policy: wait until there is room, or let go of the slot furthest behind.
func (n *Node) makeRoom(ctx context.Context, full error) error {
	if err := n.log.Sync(); err != nil { // only what is durable is removed, and nobody is to lose a slot for what is not yet
		return err
	}
	if n.unsaved() {
		_ = n.store.Flush() // Store.Run tries again, and says so in the log
	}
	before := n.log.State().Bytes
	if err := n.removeUnneeded(0, 0); err != nil {
		return err
	}
	if n.log.State().Bytes < before {
		return nil
	}
	if n.config.Spool.WhenFull == config.WhenFullShed {
		if shed, err := n.shed(); shed || err != nil {
			return err
		}
	}
	n.blocks(full, time.Now())
	slotsChanged, room := n.store.Changed(), n.room.wait()
	retry := time.NewTimer(retainInterval)
	defer retry.Stop()
	select {
	case <-room:
	case <-slotsChanged:
	case <-retry.C: // the disk may have room again for reasons of its own
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// unsaved reports whether a slot holds WAL only because its position was not saved yet.
func (n *Node) unsaved() bool {
	o := n.retention(0, 0)
	for _, s := range n.store.List() {
		from := s.HoldsFrom()
		if from != 0 && slots.RetainedFrom(from, o.SegmentSize, o.ResetDistance) < slots.RetainedFrom(s.RestartLSN, o.SegmentSize, o.ResetDistance) {
			return true
		}
	}
	return false
}

// shed invalidates the slot, or ends the stream without slot, that keeps most WAL from being removed.
func (n *Node) shed() (bool, error) {
	_, holds := n.holds(0, 0)
	anyway, _ := slots.Retention(nil, nil, n.log.State().End, n.retention(0, 0)) // from here on WAL is kept for everybody
	var worst slots.Hold
	for _, h := range holds {
		if h.RetainedFrom != 0 && h.RetainedFrom < anyway && (worst.RetainedFrom == 0 || h.RetainedFrom < worst.RetainedFrom) {
			worst = h
		}
	}
	if worst.RetainedFrom == 0 {
		return false, nil
	}
	if worst.Slot != "" {
		slot, _ := n.store.Get(worst.Slot)
		n.logger.Error("the spool is full; a slot is invalidated", zap.String("slot", worst.Slot), zap.Stringer("lsn", worst.RetainedFrom))
		if err := n.store.Invalidate(worst.Slot, "wal_removed"); err != nil {
			return false, fmt.Errorf("shed slot %s: %w", worst.Slot, err)
		}
		n.server.Terminate(slot.PID)
		return true, nil
	}
	for _, c := range n.registry.Consumers() {
		if c.PID == worst.PID { // several may have the same name
			n.logger.Error("the spool is full; a stream is ended", zap.String("peer", c.Peer), zap.Stringer("lsn", worst.RetainedFrom))
			n.server.Terminate(c.PID)
			return true, nil
		}
	}
	return false, nil
}

// furthestHold returns what holds back most; the zero Hold if nothing does.
func furthestHold(holds []slots.Hold) slots.Hold {
	var worst slots.Hold
	for _, h := range holds {
		if h.RetainedFrom != 0 && (worst.RetainedFrom == 0 || h.RetainedFrom < worst.RetainedFrom) {
			worst = h
		}
	}
	return worst
}

// furthestBehind names who holds back most, and why.
func furthestBehind(holds []slots.Hold) string {
	switch worst := furthestHold(holds); {
	case worst.RetainedFrom == 0:
		return "nobody"
	case worst.Slot != "":
		return "slot " + worst.Slot + ": " + worst.Reason
	default:
		return "consumer " + worst.Consumer + ": " + worst.Reason
	}
}

// reservable returns the position at which a new slot begins that reserves WAL. WAL from its segment on is there, and stays as long as
// n.reserving is held, which it is.
func (n *Node) reservable() protocol.LSN {
	id, _ := n.log.Identity()
	segment := uint64(max(id.SegmentSize, protocol.MinSegmentSize))
	begin := n.log.State().Begin
	if redo := n.redo.position(); redo != 0 && redo.Floor(segment) >= max(begin, n.going) {
		return redo
	}
	_, end := n.feed.Position()
	return max(end.Floor(segment), begin) // the newest segment is kept always
}
