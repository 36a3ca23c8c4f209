package ship

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"walproxy/protocol"
	"walproxy/protocol/link"
)

// Outgoing is the upstream end of one stream of frames. It is a walsender.Outgoing: Next is called by one goroutine, Incoming
// by another one, Close when both have ended.
type Outgoing struct {
	source FrameSource
	hello  link.ServerHello
	peer   string

	// Of the goroutine that calls Next.
	greeted bool
	cursor  link.Cursor
	pending *link.Frame // got from source and not yet sent
	sent    protocol.LSN
	after   error // what the next Next returns

	client   atomic.Pointer[link.ClientHello] // nil until it came
	outgone  atomic.Uint64                    // bytes of MessageFrames bodies handed out
	acked    atomic.Uint64
	incoming chan struct{} // a hello or acknowledgement came; capacity 1, never closed
}

// NewOutgoing returns the stream of source's frames, which begin at hello.Start. peer is the downstream node, for errors.
func NewOutgoing(source FrameSource, hello link.ServerHello, peer string) *Outgoing {
	return &Outgoing{source: source, hello: hello, peer: peer, sent: hello.Start, incoming: make(chan struct{}, 1)}
}

// Next appends the body of the next message to dst: the hello, once the downstream node has said its own, and then frames, as
// many as are ready, within the byte window. It waits where there is nothing to send or the window is full. sent is the LSN
// behind the last frame.
//
// Errors: *protocol.TimelineEndError after the frame that says so; *PeerError; the source's; ctx's, after which Next may be
// called again. dst is returned as it was with every error.
func (o *Outgoing) Next(ctx context.Context, dst []byte) (msg []byte, sent protocol.LSN, err error) {
	if o.after != nil {
		return dst, o.sent, o.after
	}
	if !o.greeted {
		if err := o.greet(ctx); err != nil {
			return dst, o.sent, err
		}
		return o.hello.Append(dst), o.sent, nil
	}
	if o.pending == nil {
		if o.pending, err = o.source.Next(ctx); err != nil {
			o.pending = nil
			return dst, o.sent, o.wrap(ctx, err)
		}
	}
	for !o.fits(1 + frameBytes(o.pending)) {
		if err := o.wait(ctx); err != nil {
			return dst, o.sent, err
		}
	}
	from := len(dst)
	dst = o.batch(ctx, append(dst, link.MessageFrames), from)
	o.outgone.Add(uint64(len(dst) - from))
	return dst, o.sent, nil
}

func (o *Outgoing) greet(ctx context.Context) error {
	for o.client.Load() == nil {
		if err := o.wait(ctx); err != nil {
			return err
		}
	}
	client := *o.client.Load()
	if client.ResetDistance < o.hello.ResetDistance {
		o.after = o.fault(fmt.Errorf("the node takes windows of at most %d bytes, these have %d", client.ResetDistance, o.hello.ResetDistance))
		return o.after
	}
	if err := o.source.Begin(client); err != nil {
		o.after = fmt.Errorf("begin frames at %s on timeline %d: %w", o.hello.Start, o.hello.Timeline, err)
		return o.after
	}
	o.cursor.ResetDistance = o.hello.ResetDistance
	o.greeted = true
	return nil
}

// batch appends the pending frame and those that are ready behind it; the message begins at dst[from].
func (o *Outgoing) batch(ctx context.Context, dst []byte, from int) []byte {
	for {
		f := o.pending
		dst = o.cursor.Append(dst, f)
		o.sent, o.pending = f.End(), nil
		if f.Codec == link.CodecTimelineEnd {
			o.after = o.ended(f)
			return dst
		}
		if len(dst)-from >= batchBytes || !o.source.Ready() {
			return dst
		}
		next, err := o.source.Next(ctx)
		if err != nil {
			if ctx.Err() == nil {
				o.after = o.wrap(ctx, err)
			}
			return dst
		}
		o.pending = next
		if total := len(dst) - from + frameBytes(next); total > batchBytes || !o.within(total) {
			return dst
		}
	}
}

// within reports whether the window has room for a message of that many bytes.
func (o *Outgoing) within(bytes int) bool {
	return o.outgone.Load()-o.acked.Load()+uint64(bytes) <= uint64(o.client.Load().WindowBytes)
}

// fits reports whether a message with one frame, of that many bytes, may leave now. One that is larger than what the window
// has left leaves when less than a quarter of the window is unacknowledged: the downstream node acknowledges in quarters.
func (o *Outgoing) fits(bytes int) bool {
	out := o.outgone.Load() - o.acked.Load()
	return o.within(bytes) || out == 0 || out < uint64(o.client.Load().WindowBytes)/4
}

func (o *Outgoing) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-o.incoming:
		return nil
	}
}

func (o *Outgoing) ended(f *link.Frame) error {
	end, err := f.TimelineEnd()
	if err != nil {
		return err
	}
	return &protocol.TimelineEndError{Timeline: f.Timeline, Next: end.Next, At: f.Start}
}

// Incoming takes a message of the downstream node. handled is false if it is none of the link's.
// Errors: *PeerError; the connection is of no more use then.
func (o *Outgoing) Incoming(msg []byte) (handled bool, err error) {
	if len(msg) == 0 {
		return false, nil
	}
	switch msg[0] {
	case link.MessageHello:
		hello, err := link.DecodeClientHello(msg)
		if err == nil && !o.client.CompareAndSwap(nil, &hello) {
			err = errors.New("second hello")
		}
		if err != nil {
			return true, o.fault(err)
		}
	case link.MessageAck:
		consumed, err := link.DecodeAck(msg)
		if err == nil && (consumed < o.acked.Load() || consumed > o.outgone.Load()) {
			err = fmt.Errorf("acknowledgement of %d bytes, between %d and %d are possible", consumed, o.acked.Load(), o.outgone.Load())
		}
		if err != nil {
			return true, o.fault(err)
		}
		o.acked.Store(consumed)
	default:
		return false, nil
	}
	select {
	case o.incoming <- struct{}{}:
	default:
	}
	return true, nil
}

// Close closes the source.
func (o *Outgoing) Close() error { return o.source.Close() }

func (o *Outgoing) wrap(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("read frame at %s on timeline %d: %w", o.sent, o.hello.Timeline, err)
}

func (o *Outgoing) fault(err error) error {
	return &PeerError{Peer: o.peer, Timeline: o.hello.Timeline, LSN: o.hello.Start, Err: err}
}

// frameBytes bounds the encoded length of f.
func frameBytes(f *link.Frame) int { return link.MaxFrameHeaderBytes + len(f.Payload) }
