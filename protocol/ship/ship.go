// Package ship carries frames from node to node inside a replication connection: Outgoing is the upstream node's end of a
// stream, Client the downstream node's. The connection itself, its commands, keepalives and status messages belong to
// walsender and walreceiver; this package fills and reads the CopyData messages of one START_REPLICATION.
//
// The messages are those of protocol/link, whose FORMAT.md describes them.
package ship

import (
	"context"
	"errors"
	"fmt"

	"walproxy/protocol"
	"walproxy/protocol/link"
)

// DefaultWindowBytes is a byte window that keeps a link of 1 Gbit/s and 100 ms busy.
const DefaultWindowBytes = 16 << 20

// batchBytes is how much Outgoing gathers into one message when frames are ready. A larger frame travels alone.
const batchBytes = 256 << 10

// FrameSource gives the frames of one stream, contiguous from the requested start.
type FrameSource interface {
	// Begin is called once, before the first Next, with what the downstream node said: whether it can continue the stream
	// that its last frame belongs to.
	Begin(link.ClientHello) error
	// Next waits for a frame. The frame and its payload are valid until the next call. At the end of the timeline it returns
	// the frame of CodecTimelineEnd and is not called again. When ctx ends it returns ctx's error and may be called again.
	Next(ctx context.Context) (*link.Frame, error)
	// Ready reports whether Next would return without waiting.
	Ready() bool
	Close() error
}

// FrameSink is where a Client's frames go.
type FrameSink interface {
	// Hello returns what to tell the upstream before frames flow. A WindowBytes of 0 means DefaultWindowBytes.
	Hello() link.ClientHello
	// Accept is called once, before the first Frame, with the upstream's answer; everything in it has been checked.
	Accept(link.ServerHello) error
	// Frame takes the next frame. It may block; it must return when ctx ends. The frame is valid during the call.
	Frame(ctx context.Context, f *link.Frame) error
}

// PeerError says that the other end broke the rules of the link, or speaks a version that this node does not know. errors.As
// also finds a *protocol.Error in it, to answer a client with.
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

// As offers the error in the form of an ErrorResponse.
func (e *PeerError) As(target any) bool {
	if t, ok := target.(**protocol.Error); ok {
		*t = protocol.Fatalf(protocol.CodeProtocolViolation, "link at %s on timeline %d: %v", e.LSN, e.Timeline, e.Err)
		return true
	}
	return false
}

// SinkError is an error of a FrameSink that is none of the peer's. Trying again does not help.
type SinkError struct {
	Timeline protocol.Timeline
	LSN      protocol.LSN
	Err      error
}

func (e *SinkError) Error() string {
	return fmt.Sprintf("take frame at %s on timeline %d: %v", e.LSN, e.Timeline, e.Err)
}

func (e *SinkError) Unwrap() error { return e.Err }

// Fatal reports that trying again does not help.
func (e *SinkError) Fatal() bool { return true }

// peersFault reports whether a sink's error says that the frame itself is bad: another connection may bring a good one.
func peersFault(err error) bool {
	var unseen *link.UnseenStreamError
	var version *link.VersionError
	return errors.Is(err, link.ErrCorrupt) || errors.As(err, &unseen) || errors.As(err, &version)
}
