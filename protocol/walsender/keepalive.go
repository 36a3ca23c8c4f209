package walsender

import (
	"context"
	"time"

	"walproxy/protocol"
)

// keep answers the client's requests for a reply, asks a silent client for one at half of wal_sender_timeout, and leads the
// stream to its end when drain is closed.
//
// Source: PostgreSQL src/backend/replication/walsender.c, WalSndKeepaliveIfNecessary and WalSndDone (13-18).
func (st *stream) keep(ctx context.Context, drain <-chan struct{}) {
	timer := time.NewTimer(st.untilPing())
	defer timer.Stop()
	deadline := time.NewTimer(0) // of the drain
	deadline.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-st.wake:
		case <-timer.C:
		case <-drain:
			drain = nil
			st.draining.Store(true)
			st.state.Store(int32(StateStopping))
			st.consumer.State(StateStopping)
			deadline.Reset(st.session.server.options.DrainTimeout)
		case <-deadline.C:
			st.cancel(st.giveUp())
			return
		}
		if st.answer.Swap(false) {
			st.keepalive(false)
		}
		if st.draining.Load() && st.isCaughtUp() {
			if st.confirmed.Load() >= st.sent.Load() {
				st.cancel(errDrained)
				return
			}
			st.pingOnce()
		}
		if st.untilPing() <= 0 {
			st.pingOnce()
		}
		timer.Reset(st.nextLook())
	}
}

// giveUp ends a drain whose client did not confirm in time: as a clean end if everything was sent.
func (st *stream) giveUp() error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.copyDone {
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

func (st *stream) pingOnce() {
	if !st.pinged.Swap(true) {
		st.keepalive(true)
	}
}

// keepalive sends a keepalive. It may wait for a message that send is writing.
func (st *stream) keepalive(replyRequested bool) {
	message := protocol.Keepalive{WALEnd: st.sentLSN(), SendTime: time.Now(), ReplyRequested: replyRequested}
	st.ping = message.Append(append(st.ping[:0], make([]byte, copyHeaderBytes)...))
	if err := st.writeCopy(st.ping); err != nil {
		st.cancel(closed(err))
	}
}
