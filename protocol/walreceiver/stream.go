package walreceiver

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"walproxy/protocol"
)

// startCommand spells START_REPLICATION; slot may be empty.
func startCommand(slot string, start protocol.LSN, tli protocol.Timeline) string {
	if slot != "" {
		slot = " SLOT " + quoteName(slot)
	}
	return fmt.Sprintf("START_REPLICATION%s PHYSICAL %s TIMELINE %d", slot, start, tli)
}

// timelineEnd is the row that ends the stream of a historic timeline.
type timelineEnd struct {
	next protocol.Timeline
	at   protocol.LSN
}

// stream is one START_REPLICATION from the answer to its end.
type stream struct {
	*wire
	handler  LinkStream
	reporter *reporter
	metrics  *Metrics
	timeout  time.Duration
	release  func(context.Context) error // has the sink take in what it keeps back
	begun    func()                      // called when the server begins to copy
	arrived  func(since time.Time)       // called at the first streaming message; since is when the copy began
	since    time.Time
	any      bool // a streaming message has arrived
}

// refusedError says that the server refused a stream before it carried anything.
type refusedError struct {
	copying bool // it had begun copying
	err     *protocol.Error
}

func (e *refusedError) Error() string { return e.err.Error() }

func (e *refusedError) Unwrap() error { return e.err }

// run sends command and streams to the end. It returns where the timeline ended, nil if the server says no more than that
// the stream is over. Errors: *refusedError, after which the connection can be used again; others, after which it cannot.
func (s *stream) run(ctx context.Context, command string) (*timelineEnd, error) {
	s.add(msgQuery, append([]byte(command), 0))
	if err := s.send(s.timeout); err != nil {
		return nil, err
	}
	if err := s.readWithin(s.timeout); err != nil {
		return nil, err
	}
	for {
		kind, body, err := s.next(maxCommandBytes)
		if err != nil {
			return nil, err
		}
		switch kind {
		case msgCopyBoth:
			if err := s.readWithin(0); err != nil {
				return nil, err
			}
			s.begun()
			return s.copyBoth(ctx)
		case msgRowDescription: // the timeline has ended before start: rows, no copy
			return s.finish(ctx)
		case msgError:
			return nil, s.refused(false, decodeError(body))
		case msgNotice, msgParameter:
		default:
			return nil, &ProtocolError{Peer: s.peer, What: fmt.Sprintf("message %q in answer to START_REPLICATION", kind)}
		}
	}
}

// copyBoth reads until the copy ends; meanwhile the reporter runs.
func (s *stream) copyBoth(outer context.Context) (*timelineEnd, error) {
	s.since = time.Now()
	s.reporter.hear(true)
	if err := s.reporter.replies(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(outer)
	defer cancel(nil)
	writing, stopWriting := context.WithCancel(ctx)
	defer stopWriting()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.reporter.run(writing); err != nil {
			cancel(err)
			s.abort()
		}
	}()
	kind, body, err := s.copyLoop(ctx)
	stopWriting()
	<-done
	switch {
	case outer.Err() != nil:
		return nil, outer.Err()
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, err
	}
	return s.endOfCopy(ctx, kind, body)
}

// endOfCopy goes on from the message that ended the copy.
func (s *stream) endOfCopy(ctx context.Context, kind byte, body []byte) (*timelineEnd, error) {
	if err := s.readWithin(s.timeout); err != nil {
		return nil, err
	}
	switch kind {
	case msgCopyDone:
		s.add(msgCopyDone, nil)
		if err := s.send(s.timeout); err != nil {
			return nil, err
		}
		return s.finish(ctx)
	case msgError:
		e := decodeError(body)
		if s.any {
			return nil, fmt.Errorf("upstream %s at %s: %w", s.peer, s.handler.Received(), e)
		}
		return nil, s.refused(true, e)
	}
	// CommandComplete without CopyDone is a walsender's farewell at a clean shutdown.
	return nil, &ShutdownError{Peer: s.peer}
}

// copyLoop handles messages of the copy and returns the one that ends it.
func (s *stream) copyLoop(ctx context.Context) (kind byte, body []byte, err error) {
	limit := max(s.handler.MaxMessageBytes(), maxPlainBytes)
	for {
		if kind, body, err = s.next(limit); err != nil {
			return 0, nil, err
		}
		s.reporter.hear(false)
		switch kind {
		case msgCopyData:
			if err := s.data(ctx, body); err != nil {
				return 0, nil, err
			}
		case msgCopyDone, msgCommandComplete, msgError:
			return kind, body, nil
		case msgNotice, msgParameter:
		default:
			return 0, nil, &ProtocolError{Peer: s.peer, What: fmt.Sprintf("message %q in a stream", kind)}
		}
		s.reporter.hear(true)
	}
}

func (s *stream) data(ctx context.Context, body []byte) error {
	if !s.any {
		s.any = true
		s.arrived(s.since)
	}
	s.metrics.received.Add(float64(len(body)))
	s.metrics.message()
	if len(body) == 0 || body[0] != protocol.MessageKeepalive {
		return s.handler.Message(ctx, body)
	}
	keepalive, err := protocol.ParseKeepalive(body)
	if err != nil {
		return err
	}
	s.metrics.upstream(keepalive.WALEnd)
	if keepalive.ReplyRequested {
		if err := s.release(ctx); err != nil {
			return err
		}
		s.reporter.ask()
	}
	return nil
}

// finish reads what follows the end of the copy up to ReadyForQuery, in whatever order it comes: data still in flight, the
// row with the next timeline, command tags. A connection that ends after the row does not lose the row.
func (s *stream) finish(ctx context.Context) (end *timelineEnd, err error) {
	limit := max(s.handler.MaxMessageBytes(), maxPlainBytes)
	for {
		kind, body, err := s.next(limit)
		if err != nil {
			if end != nil {
				return end, nil // the next command will find the connection dead
			}
			return nil, err
		}
		switch kind {
		case msgCopyData:
			if err := s.data(ctx, body); err != nil {
				return nil, err
			}
		case msgDataRow:
			if end, err = parseTimelineEnd(body); err != nil {
				return nil, err
			}
		case msgError:
			return nil, fmt.Errorf("end of stream from upstream %s: %w", s.peer, decodeError(body))
		case msgReady:
			return end, s.readWithin(0)
		case msgCopyDone, msgCommandComplete, msgRowDescription, msgNotice, msgParameter:
		default:
			return nil, &ProtocolError{Peer: s.peer, What: fmt.Sprintf("message %q at the end of a stream", kind)}
		}
	}
}

// refused reads up to ReadyForQuery, so that the connection can be used again.
func (s *stream) refused(copying bool, e *protocol.Error) error {
	refused := &refusedError{copying: copying, err: e}
	var rest result
	if e.Severity == "ERROR" {
		if err := s.result(&rest); err != nil {
			return fmt.Errorf("%w (then %w)", e, err)
		}
		return refused
	}
	return fmt.Errorf("upstream %s: %w", s.peer, e)
}

// parseTimelineEnd reads the row {next_tli, next_tli_startpos}.
//
// Source: PostgreSQL src/backend/replication/walsender.c, StartReplication (13-18).
func parseTimelineEnd(body []byte) (*timelineEnd, error) {
	row, err := decodeRow(body)
	if err != nil {
		return nil, err
	}
	if len(row) < 2 {
		return nil, fmt.Errorf("parse end of timeline: want two columns, got %d", len(row))
	}
	next, err := strconv.ParseUint(string(row[0]), 10, 31)
	if err != nil || next == 0 {
		return nil, fmt.Errorf("parse end of timeline: bad timeline %q", row[0])
	}
	at, err := protocol.ParseLSN(string(row[1]))
	if err != nil {
		return nil, fmt.Errorf("parse end of timeline: %w", err)
	}
	return &timelineEnd{next: protocol.Timeline(next), at: at}, nil
}
