package walsender

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"walproxy/protocol"
)

// copyHeaderBytes precede the body of a CopyData message: kind and length.
const copyHeaderBytes = 1 + 4

// lastWordTimeout bounds what is still written to a client when the time of a shutdown is over.
const lastWordTimeout = time.Second

var (
	errDrained = errors.New("the node shut down; everything was sent")
	errOver    = errors.New("stream over")
	errCut     = errors.New("a message could not be sent to its end")
)

// stream is one START_REPLICATION between CopyBothResponse and its end. Three goroutines work for it: receive, the
// session's own, reads what the client says and never waits for anything else; send waits for WAL and writes it; keep
// writes keepalives. Whoever has a reason to end it cancels the context with that reason.
type stream struct {
	session  *session
	target   target // of a timeline that ends meanwhile: set by send, read after it has returned
	slot     Slot   // nil without
	out      Outgoing
	consumer Consumer
	timeout  time.Duration // wal_sender_timeout; 0 is none
	began    time.Time
	cancel   context.CancelCauseFunc

	sent      atomic.Uint64 // LSN behind what was sent
	confirmed atomic.Uint64 // LSN flushed, or else written, by the client's last report
	state     atomic.Int32
	lastReply atomic.Int64 // since began, of the last message of the client
	pinged    atomic.Bool  // a reply was asked for and did not come yet
	answer    atomic.Bool  // the client asks for a reply
	draining  atomic.Bool
	wake      chan struct{}                 // of keep; room for one; sent to by send, receive and probes, never closed
	probing   atomic.Pointer[chan struct{}] // closed by the next message of the client; nil if nobody waits for one

	turn     chan struct{} // taken by sending, given back by receiving: who may write; room for one
	copyDone atomic.Bool   // set by who has the turn: nothing may follow but the end
	broken   atomic.Bool   // a write failed, perhaps in the middle of a message: nothing may follow at all
	ping     []byte        // buffer of keep
}

func newStream(s *session, t target, start protocol.LSN, slot Slot, out Outgoing, consumer Consumer) *stream {
	st := &stream{
		session: s, target: t, slot: slot, out: out, consumer: consumer, timeout: s.settings.walSenderTimeout(), began: time.Now(),
		wake: make(chan struct{}, 1), turn: make(chan struct{}, 1),
	}
	st.sent.Store(uint64(start))
	return st
}

// run streams until both sides have said CopyDone (nil), or something ends it: a *protocol.Error to be sent, errClosed.
// All its goroutines have returned then.
func (st *stream) run(ctx, shutdown context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(errOver)
	st.cancel = cancel
	wire := st.session.wire
	stop := after(ctx, wire.interrupt)
	if err := wire.raw.SetWriteDeadline(time.Time{}); err != nil {
		return closed(err)
	}
	var g sync.WaitGroup
	g.Go(func() { st.send(ctx) })
	g.Go(func() { st.keep(ctx, shutdown) })

	err := st.receive()
	if ctx.Err() != nil { // then reading failed because of that
		err = context.Cause(ctx)
	}
	stop()
	cancel(errOver)
	// A message that is half sent must end before anything else can be said; a client that does not read ends here.
	grace := writeTimeout
	switch {
	case errors.Is(err, errClosed):
		grace = 0
	case errors.Is(err, errDrained):
		grace = lastWordTimeout
	}
	if errDeadline := wire.raw.SetWriteDeadline(time.Now().Add(grace)); err == nil && errDeadline != nil {
		err = closed(errDeadline)
	}
	g.Wait()
	if errResume := wire.resume(); err == nil && errResume != nil {
		err = closed(errResume)
	}
	return st.finish(err)
}

// finish says the last words of a copy. It runs alone.
func (st *stream) finish(err error) error {
	wire := st.session.wire
	switch {
	case st.broken.Load() && !errors.Is(err, errClosed):
		return closed(errors.Join(err, errCut))
	case err == nil && !st.copyDone.Load():
		wire.out = append(wire.out, 'c', 0, 0, 0, 4)
	case errors.Is(err, errDrained):
		// As a stock server in its clean shutdown: no CopyDone, no ReadyForQuery.
		wire.out = protocol.AppendCommandComplete(wire.out, "COPY 0")
		return closed(errors.Join(err, wire.flush()))
	}
	return err
}

func (st *stream) sentLSN() protocol.LSN { return protocol.LSN(st.sent.Load()) }

// send writes what out produces, until the timeline ends or the stream does.
func (st *stream) send(ctx context.Context) {
	st.enter(StateStartup, StateCatchup)
	st.noteCaughtUp()
	buffer := make([]byte, copyHeaderBytes)
	for {
		message, sent, err := st.out.Next(ctx, buffer[:copyHeaderBytes])
		if err != nil {
			st.sendFailed(ctx, err)
			return
		}
		if err := st.writeWAL(ctx, message, sent); err != nil {
			st.cancel(closed(err))
			return
		}
		buffer = message
		st.consumer.Sent(sent)
		st.noteCaughtUp()
		if st.draining.Load() {
			st.wakeKeeper()
		}
	}
}

func (st *stream) sendFailed(ctx context.Context, err error) {
	var end *protocol.TimelineEndError
	if !errors.As(err, &end) {
		st.cancel(err)
		return
	}
	st.target.historic, st.target.end, st.target.next = true, end.At, end.Next
	if !st.take(ctx) {
		return
	}
	defer st.give()
	st.copyDone.Store(true)
	if err := st.write([]byte{'c', 0, 0, 0, 4}); err != nil {
		st.cancel(closed(err))
	}
}

// writeWAL sends a message and notes sent, the LSN behind it. The header of the message is still empty.
func (st *stream) writeWAL(ctx context.Context, message []byte, sent protocol.LSN) error {
	if !st.take(ctx) {
		return context.Cause(ctx)
	}
	defer st.give()
	st.sent.Store(uint64(sent)) // before a client that has it can ask
	return st.writeCopy(message)
}

// writeCopy sends a CopyData message whose header is still empty. Behind CopyDone it sends nothing. The caller has the turn.
func (st *stream) writeCopy(message []byte) error {
	message[0] = 'd'
	be.PutUint32(message[1:], uint32(len(message)-1))
	if st.copyDone.Load() {
		return nil
	}
	return st.write(message)
}

// write sends bytes. The caller has the turn.
func (st *stream) write(b []byte) error {
	_, err := st.session.wire.conn.Write(b)
	if err != nil {
		st.broken.Store(true)
	}
	return err
}

// take waits for the turn to write. False means that the stream is over.
func (st *stream) take(ctx context.Context) bool {
	select {
	case st.turn <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (st *stream) give() { <-st.turn }

// noteCaughtUp makes a stream that has sent everything once a streaming one.
func (st *stream) noteCaughtUp() {
	if State(st.state.Load()) == StateCatchup && st.isCaughtUp() {
		st.enter(StateCatchup, StateStreaming)
	}
}

func (st *stream) isCaughtUp() bool {
	tli, end := st.session.server.backend.Position()
	return tli == st.target.tli && st.sentLSN() >= end
}

// enter goes from one state to the next unless the stream is in another one already.
func (st *stream) enter(from, to State) {
	if st.state.CompareAndSwap(int32(from), int32(to)) {
		st.consumer.State(to)
	}
}

func (st *stream) wakeKeeper() {
	select {
	case st.wake <- struct{}{}:
	default: // it is awake
	}
}
