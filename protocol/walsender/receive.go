package walsender

import (
	"errors"
	"fmt"
	"net"
	"time"

	"walproxy/protocol"
)

// Lengths of the client's messages; longer ones are read as far as they are known.
var (
	statusBytes   = len(protocol.Status{}.Append(nil))
	feedbackBytes = len(protocol.HSFeedback{}.Append(nil))
)

// receive reads the client's side of the stream until its CopyDone (nil) or an error.
//
// Source: PostgreSQL src/backend/replication/walsender.c, ProcessRepliesIfAny (13-18).
func (st *stream) receive() error {
	wire := st.session.wire
	for {
		if err := st.armTimeout(); err != nil {
			return closed(err)
		}
		kind, body, err := wire.next()
		if err != nil {
			return st.receiveFailed(err)
		}
		st.lastReply.Store(int64(time.Since(st.began)))
		st.pinged.Store(false)
		st.answerProbe()
		switch kind {
		case 'd':
			if err := st.incoming(body); err != nil {
				return err
			}
		case 'c':
			return nil
		case 'X':
			return errClosed
		default:
			return protocol.Fatalf(protocol.CodeProtocolViolation, "invalid standby message type \"%c\"", kind)
		}
		if st.answer.Load() || st.draining.Load() {
			st.wakeKeeper()
		}
	}
}

// armTimeout lets the next read fail when the client has been silent for wal_sender_timeout.
func (st *stream) armTimeout() error {
	if st.timeout == 0 {
		return st.session.wire.readDeadline(time.Time{})
	}
	return st.session.wire.readDeadline(st.began.Add(time.Duration(st.lastReply.Load()) + st.timeout))
}

func (st *stream) receiveFailed(err error) error {
	var refusal *protocol.Error
	var timeout net.Error
	switch {
	case errors.As(err, &refusal), errors.Is(err, errClosed):
		return err
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("%w: the client was silent for %s", errClosed, st.timeout)
	}
	return closed(err)
}

// incoming handles the body of a CopyData message.
func (st *stream) incoming(body []byte) error {
	if len(body) == 0 {
		return errShort()
	}
	switch body[0] {
	case protocol.MessageStatus:
		return st.report(body)
	case protocol.MessageHSFeedback:
		if len(body) < feedbackBytes {
			return errShort()
		}
		feedback, err := protocol.ParseHSFeedback(body[:feedbackBytes])
		if err != nil {
			return err
		}
		st.consumer.Feedback(feedback)
		return nil
	}
	handled, err := st.out.Incoming(body)
	if err == nil && !handled {
		err = fmt.Errorf("%w: unexpected message type %q", errClosed, body[0])
	}
	return err
}

func (st *stream) report(body []byte) error {
	if len(body) < statusBytes {
		return errShort()
	}
	status, err := protocol.ParseStatus(body[:statusBytes])
	if err != nil {
		return err
	}
	confirmed := status.Flush
	if confirmed == 0 {
		confirmed = status.Write
	}
	st.confirmed.Store(uint64(confirmed))
	if st.slot != nil && status.Flush != 0 {
		st.slot.Confirm(status.Flush)
	}
	st.consumer.Report(status)
	if status.ReplyRequested {
		st.answer.Store(true)
	}
	return nil
}

func errShort() error {
	return protocol.Errorf(protocol.CodeProtocolViolation, "insufficient data left in message")
}
