package node

import (
	"strconv"
	"time"

	"walproxy/cmd/walproxy/internal/status"
	"walproxy/protocol"
	"walproxy/slots"
)

// Status describes the node at this moment. version is the program's. It waits for nothing.
func (n *Node) Status(version string) status.Node {
	now, state := time.Now(), n.log.State()
	id, known := n.log.Identity()
	s := status.Node{Time: now, Version: version, Upstream: n.upstreamStatus(), Spool: n.spoolStatus(now), Consumers: n.consumerStatus(now)}
	s.Slots = n.slotStatus(now, s.Upstream)
	s.Position = status.Position{Timeline: state.Timeline, Oldest: status.LSN(state.Begin), Written: status.LSN(state.End),
		Flushed: status.LSN(state.Flushed), Redo: status.LSN(n.redo.position()), Rate: n.pulse.end.Rate(now, rateWindow)}
	if known {
		s.Cluster = status.Cluster{SystemID: strconv.FormatUint(uint64(id.SystemID), 10), ServerVersion: id.ServerVersion, SegmentBytes: id.SegmentSize}
	}
	return s
}

// Slots describes the node's slots at this moment.
func (n *Node) Slots() []status.Slot { return n.slotStatus(time.Now(), n.upstreamStatus()) }

func (n *Node) upstreamStatus() status.Upstream {
	r, own, reported := n.receiver.State(), n.log.State(), (&sink{Feed: n.feed, node: n}).Status()
	u := status.Upstream{State: string(r.Phase), Since: r.Since, Peer: r.Peer, Link: r.Link, Slot: n.config.Upstream.Slot,
		LastError: r.LastError, End: status.LSN(r.End),
		Write: status.LSN(reported.Write), Flush: status.LSN(reported.Flush), Apply: status.LSN(reported.Apply)}
	if !r.LastMessage.IsZero() {
		u.LastMessage = &r.LastMessage
	}
	u.End = max(u.End, status.LSN(own.End)) // what came from there
	u.LagBytes = uint64(u.End) - uint64(own.End)
	if u.Slot != "" && reported.Flush != 0 {
		u.RetainedBytes = above(protocol.LSN(u.End), n.keptUpstream(reported.Flush))
	}
	return u
}

// keptUpstream returns where the WAL begins that the upstream keeps for a slot whose consumer has reported flush.
func (n *Node) keptUpstream(flush protocol.LSN) protocol.LSN {
	id, _ := n.log.Identity()
	return flush.Floor(uint64(max(id.SegmentSize, protocol.MinSegmentSize)))
}

func (n *Node) spoolStatus(now time.Time) status.Spool {
	s := status.Spool{Bytes: n.log.State().Bytes, CapBytes: int64(n.config.Spool.Cap), Fill: n.fill(),
		Alarm: n.alarm.near.Load(), Blocked: n.alarm.blocked.Load(), Rate: n.pulse.spool.Rate(now, rateWindow)}
	if d, growing := n.untilCap(now); growing {
		seconds := d.Seconds()
		s.SecondsCap = &seconds
	}
	_, holds := n.holds(0, 0)
	if worst := furthestHold(holds); worst.RetainedFrom != 0 {
		s.HeldBy = furthestBehind(holds)
	}
	return s
}

func (n *Node) consumerStatus(now time.Time) []status.Consumer {
	end, rate := n.log.State().End, n.pulse.end.Rate(now, rateWindow)
	live := n.registry.Consumers()
	_, holds := slots.Retention(nil, live, end, n.retention(0, 0))
	list := make([]status.Consumer, 0, len(live))
	for i, c := range live {
		s := status.Consumer{Name: c.Name, Peer: c.Peer, PID: c.PID, Slot: c.Slot, Link: c.Link, State: c.State, Since: c.Since,
			Timeline: c.Timeline, Sent: status.LSN(c.Sent), Write: status.LSN(c.Write), Flush: status.LSN(c.Flush), Apply: status.LSN(c.Apply),
			LagBytes: above(end, c.Has()), LagSeconds: n.pulse.end.Behind(now, uint64(c.Has())).Seconds(), Rate: n.pulse.rateOf(c.PID, now),
			RetainedFrom: status.LSN(holds[i].RetainedFrom), Reason: holds[i].Reason}
		if !c.LastReply.IsZero() {
			s.LastReply = &c.LastReply
		}
		s.CatchUp = s.Rate - rate
		if s.LagBytes > 0 && s.CatchUp > 0 {
			seconds := min(float64(s.LagBytes)/s.CatchUp, maxForecast.Seconds())
			s.SecondsCaughtUp = &seconds
		}
		list = append(list, s)
	}
	return list
}

func (n *Node) slotStatus(now time.Time, up status.Upstream) []status.Slot {
	state, all := n.log.State(), n.store.List()
	_, holds := slots.Retention(all, nil, state.End, n.retention(0, 0))
	streams := map[int32]slots.ConsumerState{}
	for _, c := range n.registry.Consumers() {
		streams[c.PID] = c
	}
	list := make([]status.Slot, 0, len(all))
	for i, slot := range all {
		s := status.Slot{Name: slot.Name, Temporary: slot.Temporary, Active: slot.Active(), PID: slot.PID, RestartLSN: status.LSN(slot.RestartLSN),
			Invalidated: slot.Invalidated, RetainedFrom: status.LSN(holds[i].RetainedFrom), Reason: holds[i].Reason, Status: "reserved"}
		if c, ok := streams[slot.PID]; ok && c.Slot == slot.Name {
			s.Consumer, s.Peer = c.Name, c.Peer
		}
		if slot.RestartLSN != 0 {
			s.LagBytes, s.LagSeconds = above(state.End, slot.RestartLSN), n.pulse.end.Behind(now, uint64(slot.RestartLSN)).Seconds()
		}
		switch from := holds[i].RetainedFrom; {
		case slot.Invalidated != "":
			s.Status = "invalidated"
		case from == 0:
			s.Status = "unreserved"
		default:
			if slot.RestartLSN < state.Begin {
				s.Status = "lost"
				s.Reason += "; WAL below " + state.Begin.String() + " is gone"
			}
			s.RetainedBytes = above(state.End, max(from, state.Begin))
			if up.RetainedBytes != 0 {
				s.RetainedUpstreamBytes = above(protocol.LSN(up.End), max(from, n.keptUpstream(protocol.LSN(up.Flush))))
			}
		}
		list = append(list, s)
	}
	return list
}

// above returns how many bytes of WAL lie between a position and a higher one.
func above(end, lsn protocol.LSN) uint64 { return uint64(max(end, lsn) - lsn) }
