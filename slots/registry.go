package slots

import (
	"slices"
	"sync"
	"time"

	"walproxy/protocol"
	"walproxy/slots/notify"
)

// Info says who a consumer is. It does not change while the consumer streams.
type Info struct {
	Name     string            // application_name
	Peer     string            // network address
	PID      int32             // of the session, as its client was told
	Slot     string            // name of its slot, empty without one
	Timeline protocol.Timeline // of the WAL that is sent; 0 counts as older than any
	Start    protocol.LSN      // first byte sent
	Link     bool              // a node that takes frames
}

// ConsumerState is a snapshot of one live consumer.
type ConsumerState struct {
	Info
	State               string       // "catchup", "streaming", "stopping" as in pg_stat_replication
	Sent                protocol.LSN // behind the last byte sent
	Write, Flush, Apply protocol.LSN // as reported last; 0 if not reported
	Since               time.Time    // start of the stream
	LastReply           time.Time    // of the last report or feedback; zero before the first
}

// Has returns the position up to which the consumer has WAL for good, as far as it says: flushed, or written if it reports no
// flush; where its stream began while it has not reported anything.
func (c ConsumerState) Has() protocol.LSN {
	switch {
	case c.Flush != 0:
		return c.Flush
	case c.Write != 0:
		return c.Write
	}
	return c.Start
}

// Registry knows the live consumers of a node: one entry for each stream. Safe for concurrent use.
type Registry struct {
	mu        sync.Mutex
	consumers []*Consumer // in the order of arrival
	ends      map[protocol.Timeline]protocol.LSN
	endings   []protocol.LSN // the same in the order of the calls
	heard     bool           // some consumer has sent feedback

	changed notify.Notifier
}

// NewRegistry returns an empty registry.
func NewRegistry() *Registry {
	return &Registry{ends: map[protocol.Timeline]protocol.LSN{}}
}

// Consumer is the entry of one stream. Its methods are safe for concurrent use.
type Consumer struct {
	registry *Registry
	state    ConsumerState       // guarded by registry.mu, as all of the below
	feedback protocol.HSFeedback // zero: none
}

// Register adds a consumer. The caller closes it when the stream ends.
func (r *Registry) Register(info Info) *Consumer {
	c := &Consumer{registry: r, state: ConsumerState{Info: info, State: "startup", Sent: info.Start, Since: time.Now()}}
	r.mu.Lock()
	r.consumers = append(r.consumers, c)
	r.mu.Unlock()
	r.changed.Notify()
	return c
}

// Changed returns a channel that is closed when a consumer comes, goes, reports another position or other feedback.
func (r *Registry) Changed() <-chan struct{} { return r.changed.Wait() }

// Consumers returns the live consumers in the order of their arrival.
func (r *Registry) Consumers() []ConsumerState {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]ConsumerState, len(r.consumers))
	for i, c := range r.consumers {
		list[i] = c.state
	}
	return list
}

// EndTimeline tells that tli ended at end. What consumers of tli (or of older timelines) report beyond end is not part of the
// node's WAL: it does not count for the acknowledgement. Call it before WAL of the next timeline is taken in, and at start for
// the timelines that ended before. Repeating a call changes nothing.
func (r *Registry) EndTimeline(tli protocol.Timeline, end protocol.LSN) {
	r.mu.Lock()
	if known, ok := r.ends[tli]; !ok || known != end {
		r.ends[tli] = end
		r.endings = append(r.endings, end)
	}
	r.mu.Unlock()
	r.changed.Notify()
}

// counted returns a reported position as far as it lies on the node's own history. r.mu is held.
func (r *Registry) counted(tli protocol.Timeline, reported protocol.LSN) protocol.LSN {
	for ended, end := range r.ends {
		if tli <= ended {
			reported = min(reported, end)
		}
	}
	return reported
}

// SetState sets the consumer's state as pg_stat_replication words it.
func (c *Consumer) SetState(state string) {
	c.registry.mu.Lock()
	c.state.State = state
	c.registry.mu.Unlock()
}

// SetSent tells how far WAL was sent.
func (c *Consumer) SetSent(lsn protocol.LSN) {
	c.registry.mu.Lock()
	c.state.Sent = lsn
	c.registry.mu.Unlock()
}

// Report takes a status message of the consumer.
func (c *Consumer) Report(s protocol.Status) {
	r := c.registry
	r.mu.Lock()
	moved := s.Write != c.state.Write || s.Flush != c.state.Flush || s.Apply != c.state.Apply
	c.state.Write, c.state.Flush, c.state.Apply, c.state.LastReply = s.Write, s.Flush, s.Apply, time.Now()
	r.mu.Unlock()
	if moved {
		r.changed.Notify()
	}
}

// Feedback takes a feedback message of the consumer.
func (c *Consumer) Feedback(h protocol.HSFeedback) {
	r := c.registry
	h.SendTime = time.Time{}
	r.mu.Lock()
	changed := !r.heard || h != c.feedback
	c.feedback, r.heard, c.state.LastReply = h, true, time.Now()
	r.mu.Unlock()
	if changed {
		r.changed.Notify()
	}
}

// Close removes the consumer, and with it its hold on WAL and row versions. It is idempotent.
func (c *Consumer) Close() {
	r := c.registry
	r.mu.Lock()
	r.consumers = slices.DeleteFunc(r.consumers, func(other *Consumer) bool { return other == c })
	r.mu.Unlock()
	r.changed.Notify()
}
