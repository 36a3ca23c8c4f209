package walsender_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"walproxy/protocol"
	"walproxy/protocol/walsender"
)

const pageBytes = 8192

// node is a Backend with all its WAL in memory, Slots and Consumers. It grows and changes timeline by its methods.
type node struct {
	mu        sync.Mutex
	known     bool
	identity  protocol.Identity
	tli       protocol.Timeline
	wal       map[protocol.Timeline]*memory
	histories map[protocol.Timeline][]byte
	changed   chan struct{}
	slots     map[string]*memorySlot
	maxSlots  int
	consumers []*consumer
	link      func(tli protocol.Timeline, start protocol.LSN) walsender.Outgoing
}

// memory is the WAL of one timeline.
type memory struct {
	begin protocol.LSN
	data  []byte
	end   *protocol.TimelineEndError
}

func (m *memory) endLSN() protocol.LSN { return m.begin + protocol.LSN(len(m.data)) }

type memorySlot struct {
	temporary bool
	restart   protocol.LSN
	pid       int32 // of the holder; 0 is free
	owner     int32 // of a temporary slot
	invalid   string
}

func newNode(version string, begin protocol.LSN, wal []byte) *node {
	return &node{
		known: true,
		identity: protocol.Identity{
			SystemID: 7302451234567890123, SegmentSize: 1 << 20, WALBlockSize: pageBytes, ServerVersion: version,
			Settings: map[string]string{"wal_segment_size": "1MB", "data_directory_mode": "0700", "wal_block_size": "8192"},
		},
		tli: 1, wal: map[protocol.Timeline]*memory{1: {begin: begin, data: wal}}, histories: map[protocol.Timeline][]byte{},
		changed: make(chan struct{}), slots: map[string]*memorySlot{}, maxSlots: 4,
	}
}

func (n *node) change(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
	close(n.changed)
	n.changed = make(chan struct{})
}

// until waits for a condition, which is looked at under the lock.
func (n *node) until(ctx context.Context, condition func() bool) error {
	for {
		n.mu.Lock()
		ok, changed := condition(), n.changed
		n.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (n *node) grow(wal []byte) {
	n.change(func() { n.wal[n.tli].data = append(n.wal[n.tli].data, wal...) })
}

// fork ends the current timeline at end and goes on with the next, whose WAL begins with its segment's first byte.
func (n *node) fork(next protocol.Timeline, end protocol.LSN) {
	n.forkBy(next, end, fmt.Appendf(bytes.Clone(n.histories[n.tli]), "%d\t%s\ttest\n", n.tli, end))
}

// forkBy is fork with a history file that a server wrote.
func (n *node) forkBy(next protocol.Timeline, end protocol.LSN, history []byte) {
	n.change(func() {
		old := n.wal[n.tli]
		old.end = &protocol.TimelineEndError{Timeline: n.tli, Next: next, At: end}
		begin := max(end.Floor(uint64(n.identity.SegmentSize)), old.begin)
		shared := bytes.Clone(old.data[begin-old.begin : end-old.begin])
		old.data = old.data[:end-old.begin]
		n.wal[next] = &memory{begin: begin, data: shared}
		n.histories[next] = history
		n.tli = next
	})
}

func (n *node) Identity() (protocol.Identity, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.identity, n.known
}

func (n *node) Position() (protocol.Timeline, protocol.LSN) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.tli, n.wal[n.tli].endLSN()
}

func (n *node) History(tli protocol.Timeline) ([]byte, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	content, ok := n.histories[tli]
	return content, ok
}

func (n *node) Open(_ context.Context, tli protocol.Timeline, start protocol.LSN, link bool) (walsender.Outgoing, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	m := n.wal[tli]
	if m == nil || start < m.begin {
		return nil, protocol.Errorf(protocol.CodeUndefinedFile, "requested WAL segment %s has already been removed",
			protocol.SegmentName(tli, start, uint64(n.identity.SegmentSize)))
	}
	if link {
		return n.link(tli, start), nil
	}
	end := func() protocol.LSN {
		n.mu.Lock()
		defer n.mu.Unlock()
		return m.endLSN()
	}
	return walsender.NewPlain(&memoryReader{n: n, m: m, next: start}, start, n.identity.WALBlockSize, end)
}

type memoryReader struct {
	n    *node
	m    *memory
	next protocol.LSN
}

func (r *memoryReader) Append(ctx context.Context, dst []byte, limit int) (start protocol.LSN, out []byte, err error) {
	err = r.n.until(ctx, func() bool { return r.m.endLSN() > r.next || r.m.end != nil })
	if err != nil {
		return 0, nil, err
	}
	r.n.mu.Lock()
	defer r.n.mu.Unlock()
	if r.m.endLSN() <= r.next {
		return 0, nil, r.m.end
	}
	wal := r.m.data[r.next-r.m.begin:]
	wal = wal[:min(len(wal), limit)]
	start, r.next = r.next, r.next+protocol.LSN(len(wal))
	return start, append(dst, wal...), nil
}

func (r *memoryReader) Close() error { return nil }

func (n *node) Create(name string, pid int32, o walsender.SlotOptions) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.slots[name] != nil:
		return protocol.ErrSlotExists
	case len(n.slots) >= n.maxSlots:
		return protocol.ErrSlotsFull
	}
	slot := &memorySlot{temporary: o.Temporary}
	if o.Temporary {
		slot.owner = pid
	}
	if o.ReserveWAL {
		slot.restart = n.wal[n.tli].begin
	}
	n.slots[name] = slot
	return nil
}

func (n *node) Read(name string) (protocol.LSN, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if slot := n.slots[name]; slot != nil {
		return slot.restart, nil
	}
	return 0, protocol.ErrSlotMissing
}

func (n *node) holder(name string, pid int32) error {
	slot := n.slots[name]
	switch {
	case slot == nil:
		return protocol.ErrSlotMissing
	case slot.owner != 0 && slot.owner != pid:
		return &protocol.SlotInUseError{Name: name, PID: slot.owner}
	case slot.pid != 0:
		return &protocol.SlotInUseError{Name: name, PID: slot.pid}
	}
	return nil
}

func (n *node) Drop(ctx context.Context, name string, pid int32, wait bool) error {
	err := n.until(ctx, func() bool {
		return !wait || n.slots[name] == nil || n.holder(name, pid) == nil
	})
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.holder(name, pid); err != nil {
		return err
	}
	delete(n.slots, name)
	return nil
}

func (n *node) Acquire(name string, pid int32) (walsender.Slot, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.holder(name, pid); err != nil {
		return nil, err
	}
	if reason := n.slots[name].invalid; reason != "" {
		return nil, &protocol.SlotInvalidatedError{Name: name, Reason: reason}
	}
	n.slots[name].pid = pid
	return &heldSlot{n: n, slot: n.slots[name]}, nil
}

func (n *node) DropTemporary(pid int32) {
	n.change(func() {
		maps.DeleteFunc(n.slots, func(_ string, s *memorySlot) bool { return s.owner == pid })
	})
}

type heldSlot struct {
	n    *node
	slot *memorySlot
}

func (h *heldSlot) Confirm(flush protocol.LSN) { h.n.change(func() { h.slot.restart = flush }) }
func (h *heldSlot) Release()                   { h.n.change(func() { h.slot.pid = 0 }) }

// consumer records what it is told. Its fields are guarded by the node.
type consumer struct {
	n        *node
	info     walsender.Info
	states   []walsender.State
	sent     protocol.LSN
	reports  []protocol.Status
	feedback []protocol.HSFeedback
	closed   bool
}

func (n *node) Register(info walsender.Info) walsender.Consumer {
	c := &consumer{n: n, info: info}
	n.change(func() { n.consumers = append(n.consumers, c) })
	return c
}

func (c *consumer) State(s walsender.State)  { c.n.change(func() { c.states = append(c.states, s) }) }
func (c *consumer) Sent(lsn protocol.LSN)    { c.n.change(func() { c.sent = lsn }) }
func (c *consumer) Report(s protocol.Status) { c.n.change(func() { c.reports = append(c.reports, s) }) }
func (c *consumer) Feedback(h protocol.HSFeedback) {
	c.n.change(func() { c.feedback = append(c.feedback, h) })
}
func (c *consumer) Close()                        { c.n.change(func() { c.closed = true }) }
func (c *consumer) is(state walsender.State) bool { return slices.Contains(c.states, state) }
