package walreceiver_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"walproxy/protocol"
	"walproxy/protocol/walreceiver"
)

// span is the WAL of one timeline.
type span struct {
	timeline protocol.Timeline
	start    protocol.LSN
	wal      []byte
	ended    bool
}

func (s *span) end() protocol.LSN { return s.start + protocol.LSN(len(s.wal)) }

// memSink keeps everything in memory. What it takes is written and flushed at once, unless hold says otherwise.
type memSink struct {
	mu        sync.Mutex
	spans     []*span // of timelines that grow
	histories map[protocol.Timeline][]byte
	identity  protocol.Identity
	status    protocol.Status
	feedback  *protocol.HSFeedback
	compared  int
	released  atomic.Int64 // calls of Release
	noFlush   bool
	changed   chan struct{}
	gate      func(context.Context) error // called in WAL before anything is taken
}

func newMemSink() *memSink {
	return &memSink{histories: map[protocol.Timeline][]byte{}, changed: make(chan struct{})}
}

var _ walreceiver.Sink = (*memSink)(nil)

func (*memSink) Ahead(protocol.LSN) {}

func (s *memSink) Release(context.Context) error { s.released.Add(1); return nil }

func (m *memSink) last() *span {
	if len(m.spans) == 0 {
		return nil
	}
	return m.spans[len(m.spans)-1]
}

func (m *memSink) Resume() (protocol.Timeline, protocol.LSN) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.last(); s != nil {
		return s.timeline, s.end()
	}
	return 0, 0
}

func (m *memSink) Begin() protocol.LSN {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.last(); s != nil {
		return s.start
	}
	return 0
}

func (m *memSink) Identify(i protocol.Identity) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.identity.SystemID != 0 && m.identity.SystemID != i.SystemID {
		return fmt.Errorf("system %s instead of %s", i.SystemID, m.identity.SystemID)
	}
	m.identity = i
	return nil
}

func (m *memSink) History(tli protocol.Timeline) ([]byte, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	content, ok := m.histories[tli]
	return content, ok
}

func (m *memSink) AddHistory(tli protocol.Timeline, content []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.histories[tli] = bytes.Clone(content)
	return nil
}

func (m *memSink) Compare(_ context.Context, tli protocol.Timeline, start protocol.LSN, wal []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.last()
	if s == nil || s.timeline != tli || start < s.start || start+protocol.LSN(len(wal)) > s.end() {
		return fmt.Errorf("asked to compare %d bytes at %s that are not held", len(wal), start)
	}
	held := s.wal[start-s.start:]
	for i := range wal {
		if wal[i] != held[i] {
			return &walreceiver.DivergedError{Timeline: tli, LSN: start + protocol.LSN(i)}
		}
	}
	m.compared += len(wal)
	return nil
}

func (m *memSink) WAL(ctx context.Context, tli protocol.Timeline, start protocol.LSN, wal []byte) error {
	if m.gate != nil {
		if err := m.gate(ctx); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.last()
	if s == nil {
		s = &span{timeline: tli, start: start}
		m.spans = append(m.spans, s)
	}
	if s.timeline != tli || s.end() != start {
		return fmt.Errorf("WAL at %s on timeline %d does not continue %s on %d", start, tli, s.end(), s.timeline)
	}
	s.wal = append(s.wal, wal...)
	m.move()
	return nil
}

// move makes the status say what is held and wakes whoever waits. m.mu is held.
func (m *memSink) move() {
	m.status.Write = m.last().end()
	if !m.noFlush {
		m.status.Flush = m.status.Write
	}
	close(m.changed)
	m.changed = make(chan struct{})
}

func (m *memSink) EndTimeline(_ context.Context, tli protocol.Timeline, end protocol.LSN, next protocol.Timeline, history []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.last()
	if s == nil || s.timeline != tli || end > s.end() || end < s.start || next <= tli {
		return fmt.Errorf("end of timeline %d at %s does not fit", tli, end)
	}
	s.wal, s.ended = s.wal[:end-s.start], true
	m.histories[next] = bytes.Clone(history)
	m.spans = append(m.spans, &span{timeline: next, start: end})
	m.move()
	return nil
}

func (m *memSink) Status() protocol.Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.status
}

func (m *memSink) Feedback() (protocol.HSFeedback, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.feedback == nil {
		return protocol.HSFeedback{}, false
	}
	return *m.feedback, true
}

func (m *memSink) Changed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed
}

// wait returns when holds says so of the sink, which is locked meanwhile.
func (m *memSink) wait(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(60 * time.Second)
	for {
		m.mu.Lock()
		ok, changed := holds(), m.changed
		m.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("timed out waiting for %s", what)
		}
	}
}

// waitFor returns when the sink holds everything before lsn on tli.
func (m *memSink) waitFor(t *testing.T, tli protocol.Timeline, lsn protocol.LSN) {
	t.Helper()
	m.wait(t, fmt.Sprintf("%s on timeline %d", lsn, tli), func() bool {
		s := m.last()
		return s != nil && s.timeline == tli && s.end() >= lsn
	})
}
