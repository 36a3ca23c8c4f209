package walsender

import (
	"context"
	"time"

	"walproxy/protocol"
)

// keep answers the client's requests for a reply, asks a silent client for one at half of wal_sender_timeout, and leads the
// stream to its end when shutdown ends.
//
// Source: PostgreSQL src/backend/replication/walsender.c, WalSndKeepaliveIfNecessary and WalSndDone (13-18).
func (st *stream) keep(ctx, shutdown context.Context) {
	timer := time.NewTimer(st.untilPing())
	defer timer.Stop()
	// A shutdown does not wait for the turn to write, as the rest of this loop does.
	deadline := time.AfterFunc(maxWait, func() { st.cancel(st.giveUp()) })
	defer deadline.Stop()
	defer after(shutdown, func() {
		deadline.Reset(st.session.server.options.DrainTimeout)
		st.state.Store(int32(StateStopping))
		st.consumer.State(StateStopping)
		st.draining.Store(true)
		st.wakeKeeper()
	})()
	for {
		select {
		case <-ctx.Done():
			return
		case <-st.wake:
		case <-timer.C:
		}
		if st.answer.Swap(false) {
			st.keepalive(ctx, false)
		}
		if st.draining.Load() && st.isCaughtUp() {
			if st.confirmed.Load() >= st.sent.Load() {
				st.cancel(errDrained)
				return
			}
			st.pingOnce(ctx)
		}
		if st.untilPing() <= 0 || st.probing.Load() != nil {
			st.pingOnce(ctx)
		}
		timer.Reset(st.nextLook())
	}
}

// giveUp ends a drain whose client did not confirm in time: as a clean end if everything was sent.
func (st *stream) giveUp() error {
	if st.copyDone.Load() {
		return errTerminated()
	}
	return errDrained
}

// untilPing returns the time until the client has been silent for half of the timeout.
func (st *stream) untilPing() time.Duration {
	if st.timeout == 0 {
		return maxWait
	}
	return time.Duration(st.lastReply.Load()) + st.timeout/2 - time.Since(st.began)
}

// maxWait is a time that does not pass.
const maxWait = 365 * 24 * time.Hour

// nextLook returns when to look again whether the client is silent.
func (st *stream) nextLook() time.Duration {
	if d := st.untilPing(); d > 0 {
		return d
	}
	return max(st.timeout/2, time.Millisecond) // it was asked; a reply moves untilPing
}

func (st *stream) pingOnce(ctx context.Context) {
	if !st.pinged.Swap(true) {
		st.keepalive(ctx, true)
	}
}

// keepalive sends a keepalive. It may wait for a message that send is writing.
func (st *stream) keepalive(ctx context.Context, replyRequested bool) {
	if !st.take(ctx) {
		return
	}
	defer st.give()
	message := protocol.Keepalive{WALEnd: st.sentLSN(), SendTime: time.Now(), ReplyRequested: replyRequested}
	st.ping = message.Append(append(st.ping[:0], make([]byte, copyHeaderBytes)...))
	if err := st.writeCopy(st.ping); err != nil {
		st.cancel(closed(err))
	}
}
