package slots

import (
	"fmt"

	"walproxy/protocol"
)

// RetentionOptions are what retention depends on beside consumers.
type RetentionOptions struct {
	SegmentSize   uint32       // wal_segment_size in bytes
	ResetDistance uint32       // bytes
	KeepBytes     uint64       // kept behind the end whether anybody wants it or not
	Redo          protocol.LSN // where recovery from the newest checkpoint begins, kept as a server does; 0: not kept
}

// RetainedFrom returns the oldest byte that must be kept for a consumer that needs WAL from restart on: a standby asks for
// the segment's start, and a stream can only be read from a reset boundary.
func RetainedFrom(restart protocol.LSN, segmentSize, resetDistance uint32) protocol.LSN {
	return min(restart.Floor(uint64(segmentSize)), restart.Floor(uint64(resetDistance)))
}

// Hold is one reason to keep WAL.
type Hold struct {
	Slot         string       // set for a slot
	Consumer     string       // set for a live consumer: its name, or its address
	PID          int32        // of a live consumer's session
	Needs        protocol.LSN // 0: nothing
	RetainedFrom protocol.LSN // Needs widened; 0 if nothing is needed
	Reason       string       // in words
}

// Retention returns the LSN below which nothing is needed any more, and every reason there is to keep WAL, slots first. end is
// the end of the WAL held. The segment that the end lies in is kept always: consumers begin, and begin again, at its start.
func Retention(slots []Slot, consumers []ConsumerState, end protocol.LSN, o RetentionOptions) (keep protocol.LSN, holds []Hold) {
	keep = min(end-min(end, protocol.LSN(o.KeepBytes)), RetainedFrom(end, o.SegmentSize, o.ResetDistance))
	if o.Redo != 0 {
		keep = min(keep, RetainedFrom(o.Redo, o.SegmentSize, o.ResetDistance))
	}
	add := func(h Hold) {
		if h.Needs != 0 {
			h.RetainedFrom = RetainedFrom(h.Needs, o.SegmentSize, o.ResetDistance)
			h.Reason += o.widening(h.Needs)
			keep = min(keep, h.RetainedFrom)
		}
		holds = append(holds, h)
	}
	for _, s := range slots {
		add(Hold{Slot: s.Name, Needs: s.HoldsFrom(), Reason: slotReason(s)})
	}
	for _, c := range consumers {
		name := c.Name
		if name == "" {
			name = c.Peer
		}
		needs, reason := consumerNeeds(c)
		add(Hold{Consumer: name, PID: c.PID, Needs: needs, Reason: reason})
	}
	return keep, holds
}

func slotReason(s Slot) string {
	from := s.HoldsFrom()
	switch {
	case s.Invalidated != "":
		return "invalidated (" + s.Invalidated + "): keeps nothing"
	case from == 0:
		return "no restart_lsn yet: keeps nothing"
	case from != s.RestartLSN:
		return fmt.Sprintf("restart_lsn is %s, but %s is what was saved last", s.RestartLSN, from)
	}
	return fmt.Sprintf("restart_lsn is %s", from)
}

// consumerNeeds returns what a live consumer may ask for: what it was not sent yet, and after a reconnect what it has not
// flushed (or written, if it reports no flush).
func consumerNeeds(c ConsumerState) (protocol.LSN, string) {
	has, what := c.Flush, "has flushed"
	if has == 0 {
		has, what = c.Write, "has written"
	}
	if has == 0 || c.Sent < has {
		return c.Sent, fmt.Sprintf("was sent WAL up to %s", c.Sent)
	}
	return has, fmt.Sprintf("%s WAL up to %s", what, has)
}

func (o RetentionOptions) widening(needs protocol.LSN) string {
	segment, boundary := needs.Floor(uint64(o.SegmentSize)), needs.Floor(uint64(o.ResetDistance))
	switch {
	case needs == min(segment, boundary):
		return ""
	case segment <= boundary:
		return fmt.Sprintf("; kept from %s, where its segment begins", segment)
	}
	return fmt.Sprintf("; kept from %s, the reset boundary below it", boundary)
}
