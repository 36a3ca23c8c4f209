package walreceiver

import (
	"context"
	"sync/atomic"
	"time"

	"walproxy/protocol"
)

// reporter writes everything that goes up during one stream: status, feedback, and what the stream itself wants to say. It
// runs in a goroutine of its own, so that the upstream hears of us also while the sink blocks.
type reporter struct {
	wire    *wire
	sink    Sink
	stream  LinkStream
	every   time.Duration // longest time between two reports
	timeout time.Duration // silence of the upstream that ends the connection

	asked   chan struct{} // the upstream wants a report; capacity 1, never closed
	heard   atomic.Int64  // when the upstream was last heard of, as time since begun
	waiting atomic.Bool   // the reader waits for the upstream, not for the sink
	begun   time.Time

	// Of the running goroutine.
	last                  protocol.Status
	reported, fed, pinged time.Duration
	reportedOnce, fedOnce bool
}

func newReporter(c *wire, sink Sink, stream LinkStream, o *Options, senderTimeout time.Duration) *reporter {
	r := &reporter{
		wire: c, sink: sink, stream: stream, every: o.StatusInterval, timeout: o.ReceiverTimeout,
		asked: make(chan struct{}, 1), begun: time.Now(),
	}
	if third := senderTimeout / 3; third > 0 {
		// While the sink blocks nobody reads the upstream's pings: the timer alone has to keep the connection.
		r.every = min(r.every, third)
	}
	return r
}

// hear notes a sign of life; waiting tells whether the reader goes on to wait for the next one.
func (r *reporter) hear(waiting bool) {
	r.heard.Store(int64(time.Since(r.begun)))
	r.waiting.Store(waiting)
}

// ask makes the next report leave at once.
func (r *reporter) ask() {
	select {
	case r.asked <- struct{}{}:
	default:
	}
}

// run writes until ctx ends, which is no error. Errors: *TimeoutError, or that of a write.
func (r *reporter) run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		changed := r.sink.Changed()
		if err := r.report(r.due()); err != nil {
			return err
		}
		next, err := r.watch()
		if err != nil {
			return err
		}
		timer.Reset(next)
		select {
		case <-ctx.Done():
			return nil
		case <-r.asked:
			if err := r.report(true); err != nil {
				return err
			}
		case <-r.stream.Wake():
			if err := r.replies(); err != nil {
				return err
			}
		case <-changed:
		case <-timer.C:
		}
	}
}

// unreadEvery is the longest time between two reports while the sink blocks. Nobody reads the upstream's pings then, so that each
// is answered by the next report, within a second.
const unreadEvery = time.Second

// due reports whether a report is to be sent although nothing moved.
func (r *reporter) due() bool {
	every := r.every
	if !r.waiting.Load() {
		every = min(every, unreadEvery)
	}
	return !r.reportedOnce || time.Since(r.begun)-r.reported >= every
}

// watch looks after the upstream's silence and returns when to look again.
func (r *reporter) watch() (time.Duration, error) {
	now := time.Since(r.begun)
	next := min(r.reported+r.every-now, unreadEvery) // the sink may begin to block at any time
	silent := now - time.Duration(r.heard.Load())
	if !r.waiting.Load() {
		return max(min(next, r.timeout/2, r.reported+unreadEvery-now), time.Millisecond), nil
	}
	switch {
	case silent >= r.timeout:
		return 0, &TimeoutError{Peer: r.wire.peer, Silent: silent.Round(time.Millisecond)}
	case silent >= r.timeout/2:
		if r.pinged <= now-silent {
			r.pinged = now
			if err := r.sendStatus(true); err != nil {
				return 0, err
			}
		}
		next = min(next, r.timeout-silent)
	default:
		next = min(next, r.timeout/2-silent)
	}
	return max(next, time.Millisecond), nil
}

// report sends a status if it moved or force is set, and feedback if its time has come.
func (r *reporter) report(force bool) error {
	now := r.sink.Status()
	if !force && now.Write == r.last.Write && now.Flush == r.last.Flush && now.Apply == r.last.Apply {
		return nil
	}
	if !r.fedOnce || time.Since(r.begun)-r.fed >= r.every {
		if feedback, ok := r.sink.Feedback(); ok {
			feedback.SendTime = time.Now()
			r.wire.add(msgCopyData, feedback.Append(nil))
			r.fed, r.fedOnce = time.Since(r.begun), true
		}
	}
	return r.sendStatus(false)
}

func (r *reporter) sendStatus(ping bool) error {
	status := r.sink.Status()
	status.SendTime, status.ReplyRequested = time.Now(), ping
	var body [64]byte
	r.wire.add(msgCopyData, status.Append(body[:0]))
	r.last, r.reported, r.reportedOnce = status, time.Since(r.begun), true
	return r.wire.send(r.timeout)
}

// replies sends what the stream has to say.
func (r *reporter) replies() error {
	err := r.stream.Replies(func(body []byte) error {
		r.wire.add(msgCopyData, body)
		return nil
	})
	if err != nil || len(r.wire.out) == 0 {
		return err
	}
	return r.wire.send(r.timeout)
}
