package walreceiver

import (
	"context"
	"fmt"
	"sync/atomic"

	"walproxy/protocol"
)

// gatherBytes bounds the WAL of messages that are handed on as one: two of the largest that servers send.
const gatherBytes = 256 << 10

// plain is the stream of a stock server: XLogData messages. Up to held it compares, from there on it hands on: as one what has
// arrived already, since whatever comes behind takes time for each piece.
type plain struct {
	sink     Sink
	metrics  *Metrics
	peer     string
	timeline protocol.Timeline
	next     protocol.LSN  // where the next message must start
	arrived  func() []byte // the body of the next CopyData message if it has arrived
	gathered []byte        // WAL before next that has not been handed on
	held     protocol.LSN  // end of what the sink holds already
	received atomic.Uint64
}

func newPlain(sink Sink, metrics *Metrics, peer string, tli protocol.Timeline, start, held protocol.LSN, arrived func() []byte) *plain {
	p := &plain{sink: sink, metrics: metrics, peer: peer, timeline: tli, next: start, held: held, arrived: arrived}
	p.received.Store(uint64(start))
	return p
}

func (p *plain) MaxMessageBytes() int { return maxPlainBytes }

func (p *plain) Replies(func([]byte) error) error { return nil }

func (p *plain) Wake() <-chan struct{} { return nil }

func (p *plain) Received() protocol.LSN { return protocol.LSN(p.received.Load()) }

func (p *plain) Message(ctx context.Context, body []byte) error {
	message, err := protocol.ParseXLogData(body)
	if err != nil {
		return err
	}
	if message.Start != p.next {
		return &GapError{Timeline: p.timeline, Want: p.next, Got: message.Start, Peer: p.peer}
	}
	p.metrics.upstream(message.WALEnd)
	p.sink.Ahead(message.WALEnd)
	wal := message.Data
	if p.next < p.held {
		n := min(len(wal), int(min(p.held-p.next, maxPlainBytes)))
		if err := p.compare(ctx, wal[:n]); err != nil {
			return err
		}
		wal = wal[n:]
	}
	start := p.next - protocol.LSN(len(p.gathered))
	p.next += protocol.LSN(len(wal))
	if len(p.gathered) > 0 || p.more(len(wal)) {
		p.gathered = append(p.gathered, wal...)
		if wal = p.gathered; p.more(len(wal)) {
			return nil
		}
		p.gathered = p.gathered[:0]
	}
	if len(wal) == 0 {
		return nil
	}
	if err := p.sink.WAL(ctx, p.timeline, start, wal); err != nil {
		return p.fatal(ctx, "take WAL", err)
	}
	p.received.Store(uint64(p.next))
	return nil
}

// more reports whether WAL has arrived that goes with that many bytes before it.
func (p *plain) more(bytes int) bool {
	body := p.arrived()
	return len(body) > 0 && body[0] == protocol.MessageXLogData && bytes+len(body)-protocol.XLogDataHeaderBytes <= gatherBytes
}

func (p *plain) compare(ctx context.Context, wal []byte) error {
	if err := p.sink.Compare(ctx, p.timeline, p.next, wal); err != nil {
		if diverged, ok := err.(*DivergedError); ok {
			diverged.Peer = p.peer
		}
		return p.fatal(ctx, "compare WAL", err)
	}
	p.metrics.overlap.Add(float64(len(wal)))
	p.next += protocol.LSN(len(wal))
	p.received.Store(uint64(p.next))
	return nil
}

func (p *plain) fatal(ctx context.Context, op string, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return &FatalError{Op: fmt.Sprintf("%s at %s on timeline %d", op, p.next, p.timeline), Err: err}
}
