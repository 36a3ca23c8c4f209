// Package ship carries frames from node to node inside a replication connection: Outgoing is the upstream node's end of a
// stream, Client the downstream node's. The connection itself, its commands, keepalives and status messages belong to
// walsender and walreceiver; this package fills and reads the CopyData messages of one START_REPLICATION.
package ship

import (
	"context"
	"fmt"

	"walproxy/protocol"
	"walproxy/protocol/link"
)

// FrameSource gives the frames of one stream, contiguous from the requested start.
type FrameSource interface {
	// Next waits for a frame. The frame and its payload are valid until the next call. At the end of the timeline it returns
	// the frame of CodecTimelineEnd, and is not called again. It must return when ctx ends.
	Next(ctx context.Context) (*link.Frame, error)
	// Ready reports whether Next would return without waiting.
	Ready() bool
	Close() error
}

// FrameSink is where a Client's frames go.
type FrameSink interface {
	// Hello returns what to tell the upstream before frames flow.
	Hello() link.ClientHello
	// Frame takes the next frame. It may block; it must return when ctx ends. The payload is valid during the call.
	Frame(ctx context.Context, f *link.Frame) error
}

// PeerError says that the other end broke the rules of the link, or speaks a version that this node does not know.
type PeerError struct {
	Peer     string
	Timeline protocol.Timeline
	LSN      protocol.LSN // how far the stream had come
	Err      error
}

func (e *PeerError) Error() string {
	return fmt.Sprintf("link with %s at %s on timeline %d: %v", e.Peer, e.LSN, e.Timeline, e.Err)
}

func (e *PeerError) Unwrap() error { return e.Err }
