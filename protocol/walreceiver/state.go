package walreceiver

import (
	"sync"
	"time"

	"walproxy/protocol"
)

// Phase says what a Receiver is doing.
type Phase string

// The phases. A Receiver that does not run is PhaseStopped.
const (
	PhaseStopped    Phase = "stopped"
	PhaseConnecting Phase = "connecting" // up to the first stream
	PhaseStreaming  Phase = "streaming"
	PhaseWaiting    Phase = "waiting" // to try again
)

// State is a snapshot of a Receiver.
type State struct {
	Phase       Phase
	Since       time.Time    // begin of the phase
	Peer        string       // host:port or socket; empty while there is no connection
	Link        bool         // frames are received
	End         protocol.LSN // the position that the upstream reported last; on a link what it has sent; 0 if none
	LastMessage time.Time    // of the upstream; zero if none
	LastError   string       // that ended the last connection; empty if none did
}

// tracker keeps the State. Safe for concurrent use.
type tracker struct {
	mu    sync.Mutex
	state State
}

// State returns where the receiver stands. Safe for concurrent use.
func (r *Receiver) State() State {
	r.tracker.mu.Lock()
	s := r.tracker.state
	r.tracker.mu.Unlock()
	if s.Phase == "" {
		s.Phase = PhaseStopped
	}
	s.End = protocol.LSN(r.options.Metrics.end.Load())
	if at := r.options.Metrics.heard.Load(); at != 0 {
		s.LastMessage = time.Unix(0, at)
	}
	return s
}

func (t *tracker) enter(phase Phase, peer string, asLink bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.set(phase, peer, asLink)
}

// set does enter's work. t.mu is held.
func (t *tracker) set(phase Phase, peer string, asLink bool) {
	t.state.Phase, t.state.Since, t.state.Peer, t.state.Link = phase, time.Now(), peer, asLink
}

func (t *tracker) failed(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.set(PhaseWaiting, "", false)
	t.state.LastError = err.Error()
}
