package walsender

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"walproxy/protocol"
)

// acquire holds a slot for this session. A stream that holds it already is asked for a sign of life: if it gives one, this
// session is refused (55006) as a stock server does; if not, its connection is taken for half-open and ended, and the slot is
// ours. A stock server refuses until wal_sender_timeout has ended the old session, a minute by default.
//
// A session that holds a slot without streaming (one with a temporary slot) cannot be asked, and keeps it.
func (s *session) acquire(ctx, shutdown context.Context, name string) (Slot, error) {
	slot, err := s.server.slots.Acquire(name, s.pid)
	var busy *protocol.SlotInUseError
	if !errors.As(err, &busy) || s.server.options.ProbeTimeout < 0 {
		return slot, s.slotError(name, err)
	}
	holder := s.server.session(busy.PID)
	if holder == nil {
		return nil, s.slotError(name, err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer after(shutdown, func() { cancel(errTerminated()) })()
	began := time.Now()
	alive := holder.probe(ctx, s.server.options.ProbeTimeout)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case alive:
		return nil, s.slotError(name, err)
	}
	s.log.Warn("a consumer does not answer and is ended: another one wants its slot", zap.String("slot", name),
		zap.String("holder", holder.peer), zap.Int32("holder_pid", holder.pid), zap.Duration("dur", time.Since(began)))
	holder.kill(fmt.Errorf("%w: silent for %s while %s wants slot %q", errClosed, s.server.options.ProbeTimeout, s.peer, name))
	select {
	case <-holder.ended:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	slot, err = s.server.slots.Acquire(name, s.pid) // a third session may have been faster
	return slot, s.slotError(name, err)
}

// probe asks the session's consumer for a reply and waits for it up to timeout. It returns false if nothing came, true if
// anything did, or if there is no stream to ask. Called by other sessions.
func (s *session) probe(ctx context.Context, timeout time.Duration) bool {
	s.mu.Lock()
	st := s.live
	s.mu.Unlock()
	if st == nil {
		return true
	}
	ask := make(chan struct{})
	heard := &ask
	if !st.probing.CompareAndSwap(nil, heard) { // one question is enough for all who ask
		if heard = st.probing.Load(); heard == nil {
			return true // the answer has just come
		}
	}
	st.wakeKeeper()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-*heard:
		return true
	case <-s.ended:
		return false // whoever kills it does no harm
	case <-timer.C:
		return false
	case <-ctx.Done():
		return true
	}
}

// answerProbe tells whoever waits for a sign of life that there is one.
func (st *stream) answerProbe() {
	if heard := st.probing.Load(); heard != nil && st.probing.CompareAndSwap(heard, nil) {
		close(*heard)
	}
}
