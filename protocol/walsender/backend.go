package walsender

import (
	"context"

	"walproxy/protocol"
)

// Backend is the node behind the server: whose WAL it carries and how to read it. Safe for concurrent use.
type Backend interface {
	// Identity describes the cluster. False means that the upstream was never seen; clients are sent away (57P03).
	Identity() (protocol.Identity, bool)
	// Position returns the current timeline and the end of the WAL that can be served at once.
	Position() (protocol.Timeline, protocol.LSN)
	// History returns the content of a timeline's history file, as the upstream has it. The slice is not changed later.
	History(protocol.Timeline) ([]byte, bool)
	// Open begins a stream at start on tli, which Position and History have allowed. link tells that the client is a node
	// that takes frames. An error of type *protocol.Error is what the client sees (58P01: the WAL is gone).
	Open(ctx context.Context, tli protocol.Timeline, start protocol.LSN, link bool) (Outgoing, error)
}

// Outgoing produces what one stream sends, as bodies of CopyData messages. Next and Incoming are called by two goroutines;
// Close comes after both have returned.
type Outgoing interface {
	// Next appends one complete message to dst: 'w' with at most 16 WAL pages, or what a link carries. It waits for WAL.
	// sent is the LSN behind what the message holds. The message is sent before Next is called again.
	//
	// Errors: *protocol.TimelineEndError behind the last byte of the timeline; *protocol.Error is passed to the client; the
	// context's error when it ends; anything else reaches the client as XX000.
	Next(ctx context.Context, dst []byte) (msg []byte, sent protocol.LSN, err error)
	// Incoming takes a message of the client other than 'r' and 'h'. It must not wait. handled is false for a message that
	// is not known. msg is valid during the call.
	Incoming(msg []byte) (handled bool, err error)
	Close() error
}

// Slots keeps named physical slots. Errors are protocol.ErrSlotExists and its neighbours, or a *protocol.Error that
// goes to the client as it is. Safe for concurrent use.
type Slots interface {
	// Create makes a slot for the session pid. The name has been checked.
	Create(name string, pid int32, options SlotOptions) error
	// Read returns the slot's restart_lsn; zero means that it reserves no WAL yet.
	Read(name string) (protocol.LSN, error)
	// Drop removes a slot that no other session holds. With wait it waits until the holder lets go.
	Drop(ctx context.Context, name string, pid int32, wait bool) error
	// Acquire holds the slot for the session pid until Slot.Release. A temporary slot belongs to the session that made it:
	// others get *protocol.SlotInUseError, the session itself gets the slot.
	Acquire(name string, pid int32) (Slot, error)
	// DropTemporary removes all temporary slots of a session.
	DropTemporary(pid int32)
}

// SlotOptions are the options of CREATE_REPLICATION_SLOT.
type SlotOptions struct {
	Temporary  bool // lives in memory, until its session ends or has an error
	ReserveWAL bool // WAL is kept from now on, not only from the first report on
}

// Slot is a slot held by a session.
type Slot interface {
	// Confirm moves restart_lsn to what the consumer reports as flushed, forwards or backwards.
	Confirm(flush protocol.LSN)
	// Release lets go of the slot. It is called once.
	Release()
}

// Consumers is told of every stream. Safe for concurrent use.
type Consumers interface {
	Register(Info) Consumer
}

// Info describes a consumer at the start of its stream.
type Info struct {
	PID             int32  // process-wide unique, as the client was told
	User            string // as authenticated
	ApplicationName string
	Peer            string // remote address; "unix" for a unix socket
	Slot            string // "" without
	Timeline        protocol.Timeline
	Start           protocol.LSN
	Link            bool // another node, which takes frames
}

// State is how far a stream has come, by the words of pg_stat_replication.
type State int

// The states of a stream.
const (
	StateStartup   State = iota // nothing sent yet
	StateCatchup                // sends WAL that was there before
	StateStreaming              // has sent everything there is at least once
	StateStopping               // the node shuts down
)

func (s State) String() string {
	return [...]string{"startup", "catchup", "streaming", "stopping"}[s]
}

// Consumer takes what is learnt of one stream. Calls may come from several goroutines; none may wait for long.
type Consumer interface {
	State(State)
	Sent(protocol.LSN)            // behind what was sent last
	Report(protocol.Status)       // the client's own report
	Feedback(protocol.HSFeedback) // of a hot standby
	Close()                       // the stream is over; called once, last
}
