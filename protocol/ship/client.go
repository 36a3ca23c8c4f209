package ship

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"walproxy/protocol"
	"walproxy/protocol/link"
)

// Stream says which stream a Client has asked for by START_REPLICATION.
type Stream struct {
	Peer     string // the upstream node, for errors
	SystemID protocol.SystemID
	Timeline protocol.Timeline
	Start    protocol.LSN
}

// Client is the downstream end of one stream of frames. It is a walreceiver.LinkStream: Message is called by one goroutine,
// Replies by another one.
type Client struct {
	sink   FrameSink
	stream Stream
	hello  link.ClientHello

	// Of the goroutine that calls Message.
	greeted, ended bool
	cursor         link.Cursor
	frame          link.Frame // what the sink gets, so that a frame costs no allocation
	wokenAt        uint64     // consumed when wake was last signalled

	received atomic.Uint64
	consumed atomic.Uint64 // bytes of MessageFrames bodies taken in
	wake     chan struct{}

	// Of the goroutine that calls Replies.
	said  bool
	acked uint64
	out   []byte
}

// NewClient returns the downstream end of stream, whose frames go to sink.
func NewClient(sink FrameSink, stream Stream) *Client {
	c := &Client{sink: sink, stream: stream, hello: sink.Hello(), wake: make(chan struct{}, 1)}
	if c.hello.WindowBytes == 0 {
		c.hello.WindowBytes = DefaultWindowBytes
	}
	c.received.Store(uint64(stream.Start))
	return c
}

// MaxMessageBytes bounds the body of a message: a batch, and one frame that is larger.
func (c *Client) MaxMessageBytes() int {
	return 1 + batchBytes + link.MaxFrameHeaderBytes + max(int(c.hello.ResetDistance), 4+protocol.MaxHistoryBytes)
}

// Received returns the LSN behind the last frame taken in.
func (c *Client) Received() protocol.LSN { return protocol.LSN(c.received.Load()) }

// Wake gets a value when Replies has an acknowledgement to send.
func (c *Client) Wake() <-chan struct{} { return c.wake }

// Replies calls add with the hello at first, and then with the acknowledgement of what Message has taken in meanwhile.
func (c *Client) Replies(add func(body []byte) error) error {
	if !c.said {
		c.said = true
		return add(c.hello.Append(nil))
	}
	consumed := c.consumed.Load()
	if consumed == c.acked {
		return nil
	}
	c.acked = consumed
	c.out = link.AppendAck(c.out[:0], consumed)
	return add(c.out)
}

// Message takes one message of the upstream: its hello, then frames. Errors: *PeerError, *SinkError, ctx's.
func (c *Client) Message(ctx context.Context, body []byte) error {
	switch {
	case len(body) == 0:
		return c.fault(errors.New("empty message"))
	case body[0] == link.MessageHello && !c.greeted:
		return c.greet(body)
	case body[0] == link.MessageFrames && c.greeted && !c.ended:
		return c.frames(ctx, body)
	}
	return c.fault(fmt.Errorf("unexpected message %q of %d bytes", body[0], len(body)))
}

func (c *Client) greet(body []byte) error {
	hello, err := link.DecodeServerHello(body)
	switch {
	case err != nil:
		return c.fault(err)
	case hello.SystemID != c.stream.SystemID:
		return c.fault(fmt.Errorf("frames of system %s, expected %s", hello.SystemID, c.stream.SystemID))
	case hello.Timeline != c.stream.Timeline || hello.Start != c.stream.Start:
		return c.fault(fmt.Errorf("frames from %s on timeline %d instead", hello.Start, hello.Timeline))
	case hello.ResetDistance > c.hello.ResetDistance:
		return c.fault(fmt.Errorf("windows of %d bytes, this node takes at most %d", hello.ResetDistance, c.hello.ResetDistance))
	}
	if err := c.sink.Accept(hello); err != nil {
		return &SinkError{Timeline: hello.Timeline, LSN: hello.Start, Err: err}
	}
	c.greeted = true
	c.cursor.ResetDistance = hello.ResetDistance
	return nil
}

func (c *Client) frames(ctx context.Context, body []byte) error {
	rest := body[1:]
	if len(rest) == 0 {
		return c.fault(errors.New("message without frames"))
	}
	for len(rest) > 0 {
		var n int
		var err error
		if c.frame, n, err = c.cursor.Decode(rest); err != nil {
			return c.fault(err)
		}
		rest = rest[n:]
		if err := c.take(ctx, &c.frame, len(rest) == 0); err != nil {
			return err
		}
	}
	if consumed := c.consumed.Add(uint64(len(body))); consumed-c.wokenAt >= uint64(c.hello.WindowBytes)/4 {
		c.wokenAt = consumed
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}
	return nil
}

// take hands one frame on; last tells whether its message ends with it.
func (c *Client) take(ctx context.Context, f *link.Frame, last bool) error {
	ends := f.Codec == link.CodecTimelineEnd // its place may lie in front of what was sent before the end was known
	if f.Timeline != c.stream.Timeline || f.Start > c.Received() || f.Start < c.Received() && !ends {
		return c.fault(fmt.Errorf("frame at %s on timeline %d does not follow", f.Start, f.Timeline))
	}
	if ends {
		if _, err := f.TimelineEnd(); err != nil || !last {
			return c.fault(errors.Join(errors.New("bad end of timeline"), err))
		}
		c.ended = true
	}
	if err := c.sink.Frame(ctx, f); err != nil {
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case peersFault(err):
			return c.fault(err)
		}
		return &SinkError{Timeline: f.Timeline, LSN: f.Start, Err: err}
	}
	c.received.Store(uint64(f.End()))
	return nil
}

func (c *Client) fault(err error) error {
	return &PeerError{Peer: c.stream.Peer, Timeline: c.stream.Timeline, LSN: c.Received(), Err: err}
}
