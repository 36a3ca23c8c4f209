package walreceiver

import (
	"context"

	"walproxy/protocol"
)

// Sink is where received WAL goes and where everything that the receiver tells the upstream comes from.
//
// The receiver calls Resume, Begin, Identify, History, AddHistory, Compare, WAL, Release and EndTimeline from one goroutine at a time;
// Status, Feedback and Changed from another one, at the same time. Any error is fatal: Run returns it, but for an error that
// is ctx's own end.
type Sink interface {
	// Resume returns where to go on. Timeline 0 means that nothing is held: the receiver chooses. Dial calls it too, at any time.
	Resume() (protocol.Timeline, protocol.LSN)
	// Begin returns the first byte of Resume's timeline that Compare can look at; Resume's LSN if there is none.
	Begin() protocol.LSN
	// Identify is called after each connect, before any WAL. It refuses another cluster.
	Identify(protocol.Identity) error
	// History returns the content of a timeline's history file; AddHistory keeps one for good.
	History(tli protocol.Timeline) ([]byte, bool)
	AddHistory(tli protocol.Timeline, content []byte) error
	// Compare is given WAL that the sink holds already, as the upstream has it now. It returns nil if both are equal and a
	// *DivergedError with the LSN of the first difference if not. Not called on a link.
	Compare(ctx context.Context, tli protocol.Timeline, start protocol.LSN, wal []byte) error
	// WAL takes the bytes that follow Resume's LSN. It may block; it must return when ctx ends. wal is valid during the call.
	// Not called on a link, where the frames go to the link's own sink.
	WAL(ctx context.Context, tli protocol.Timeline, start protocol.LSN, wal []byte) error
	// Ahead is told, before the WAL of a message comes, up to where the upstream could send: how much of a backlog there is.
	// Not called on a link.
	Ahead(upstream protocol.LSN)
	// Release has the sink take in what it keeps back of the WAL it was given, because the upstream wants to know how far it is,
	// or because the stream has ended. On a link there is nothing.
	Release(ctx context.Context) error
	// EndTimeline says that tli ended at end and goes on as next, whose history file is history. Afterwards Resume returns
	// next and end. end may lie below what the sink took: those bytes belong to no timeline.
	EndTimeline(ctx context.Context, tli protocol.Timeline, end protocol.LSN, next protocol.Timeline, history []byte) error
	// Status returns what to report upstream now. SendTime and ReplyRequested are the receiver's business.
	Status() protocol.Status
	// Feedback returns the hot standby feedback to send; false for none.
	Feedback() (protocol.HSFeedback, bool)
	// Changed returns a channel that is closed when Status may differ from what it said when Changed was called.
	Changed() <-chan struct{}
}

// LinkRequest says which stream of frames a START_REPLICATION on a link has begun.
type LinkRequest struct {
	Peer     string // the upstream, for errors
	SystemID protocol.SystemID
	Timeline protocol.Timeline
	Start    protocol.LSN // the position asked for
}

// LinkStream takes the messages of one stream of frames. ship.Client is one.
type LinkStream interface {
	// MaxMessageBytes bounds the body of a message that the upstream may send.
	MaxMessageBytes() int
	// Message takes the body of one CopyData message that is no keepalive. body is valid during the call. It may block; it
	// must return when ctx ends. An error ends the connection; one with a method Fatal that returns true ends Run.
	Message(ctx context.Context, body []byte) error
	// Replies appends to dst the bodies of the messages that are to be sent now, calling add for each. It is called once
	// before the first Message, and after that from another goroutine, while Message may run.
	Replies(add func(body []byte) error) error
	// Wake returns a channel of capacity 1 that gets a value when Replies has something to say.
	Wake() <-chan struct{}
	// Received returns the LSN behind the last frame taken in. Safe for concurrent use.
	Received() protocol.LSN
}
