package node

import (
	"context"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/protocol/ship"
	"walproxy/protocol/walsender"
	"walproxy/slots"
)

// backend shows the node's WAL to the server. It implements walsender.Backend.
type backend struct{ node *Node }

// Identity is known when there is WAL too: before that there is no position to tell anybody.
func (b *backend) Identity() (protocol.Identity, bool) {
	id, known := b.node.log.Identity()
	tli, _ := b.Position()
	return id, known && tli != 0
}

func (b *backend) Position() (protocol.Timeline, protocol.LSN) { return b.node.feed.Position() }

func (b *backend) History(tli protocol.Timeline) ([]byte, bool) { return b.node.log.History(tli) }

func (b *backend) Open(ctx context.Context, tli protocol.Timeline, start protocol.LSN, asLink bool) (walsender.Outgoing, error) {
	id, _ := b.node.log.Identity()
	if asLink {
		frames, err := b.node.feed.OpenFrames(tli, start)
		if err != nil {
			return nil, err
		}
		hello := link.ServerHello{SystemID: id.SystemID, Timeline: tli, Start: start, ResetDistance: b.node.log.ResetDistance()}
		return &metered{Outgoing: ship.NewOutgoing(frames, hello, "downstream node"), sent: start, counters: &b.node.metrics.link}, nil
	}
	wal, err := b.openWAL(ctx, tli, start)
	if err != nil {
		return nil, err
	}
	plain, err := walsender.NewPlain(wal, start, id.WALBlockSize, b.upTo(tli))
	if err != nil {
		return nil, err
	}
	return &metered{Outgoing: plain, sent: start, counters: &b.node.metrics.plain}, nil
}

// upTo tells how far the WAL of a timeline could be sent now: to the end of the node's WAL, or to where the timeline ended.
// What it returns is for one goroutine.
//
// Source: PostgreSQL src/backend/replication/walsender.c, XLogSendPhysical (13-18).
func (b *backend) upTo(tli protocol.Timeline) func() protocol.LSN {
	var ended protocol.LSN // which does not change; 0 is: not yet
	return func() protocol.LSN {
		current, end := b.Position()
		if current == tli {
			return end
		}
		if ended == 0 {
			content, _ := b.History(current)
			if history, err := protocol.ParseHistory(current, content); err == nil {
				ended, _, _ = history.End(tli)
			}
		}
		return ended
	}
}

// consumers enters streams into the registry. It implements walsender.Consumers.
type consumers struct{ node *Node }

func (c *consumers) Register(info walsender.Info) walsender.Consumer {
	return consumer{c.node.registry.Register(slots.Info{
		Name: info.ApplicationName, Peer: info.Peer, PID: info.PID, Slot: info.Slot,
		Timeline: info.Timeline, Start: info.Start, Link: info.Link,
	})}
}

// consumer is one stream's entry. It implements walsender.Consumer.
type consumer struct{ *slots.Consumer }

func (c consumer) State(s walsender.State) { c.SetState(s.String()) }

func (c consumer) Sent(lsn protocol.LSN) { c.SetSent(lsn) }
