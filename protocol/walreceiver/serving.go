package walreceiver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"walproxy/protocol"
	"walproxy/protocol/link"
)

// serving is the life of one connection to the upstream: identify it, then stream timeline after timeline.
type serving struct {
	*conn
	r        *Receiver
	sink     Sink
	log      *zap.Logger
	upstream upstream
	progress bool // streaming messages have arrived
}

func (s *serving) link() bool {
	return s.parameters[link.LinkParameter] != "" && s.r.options.Link != nil
}

// run returns when the connection is of no more use, always with the reason.
func (s *serving) run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, s.abort)
	defer stop()
	if err := s.identifyUpstream(); err != nil {
		return err
	}
	if err := s.ensureSlot(); err != nil {
		return err
	}
	for {
		if err := s.timeline(ctx, s.upstream.position); err != nil {
			return err
		}
		if err := s.identifyUpstream(); err != nil { // it may be a primary now
			return err
		}
	}
}

// identifyUpstream asks the upstream who it is and tells the sink.
func (s *serving) identifyUpstream() (err error) {
	if s.upstream, err = s.identify(s.r.options.ReceiverTimeout, s.parameters["server_version"]); err != nil {
		return err
	}
	if version := s.parameters[link.LinkParameter]; s.link() && version != link.LinkVersion {
		return &ProtocolError{Peer: s.peer, What: fmt.Sprintf("it speaks link version %q, this node %s", version, link.LinkVersion)}
	}
	if err := s.sink.Identify(s.upstream.identity); err != nil {
		return &FatalError{Op: fmt.Sprintf("identify upstream %s", s.peer), Err: err}
	}
	return nil
}

// timeline streams what the sink needs next, up to the end of a timeline; nil means that the next one is to follow.
func (s *serving) timeline(ctx context.Context, theirs position) error {
	var history []byte
	if theirs.timeline > 1 {
		var err error
		if history, err = s.fetchHistory(s.r.options.ReceiverTimeout, theirs.timeline); err != nil {
			return err
		}
	}
	if err := checkLineage(s.sink, theirs, history, s.peer); err != nil {
		return err
	}
	if err := s.keepHistories(s.r.options.ReceiverTimeout, s.sink, theirs.timeline, history); err != nil {
		return err
	}
	if done, err := s.cutBack(ctx, theirs, history); done || err != nil {
		return err
	}
	begins, err := s.begins(ctx, theirs, history)
	if err != nil {
		return err
	}
	for i, b := range begins {
		err = s.stream(ctx, b)
		var removed *RemovedError
		if tli, _ := s.sink.Resume(); tli == 0 && i+1 < len(begins) && errors.As(err, &removed) {
			s.log.Warn("upstream no longer has the WAL to begin with, beginning later", zap.Error(err))
			continue
		}
		break
	}
	return err
}

// cutBack ends our timeline at the upstream's switch point if more than that is held of it.
func (s *serving) cutBack(ctx context.Context, theirs position, history []byte) (done bool, err error) {
	tli, lsn := s.sink.Resume()
	if tli == 0 || tli == theirs.timeline {
		return false, nil
	}
	parsed, err := protocol.ParseHistory(theirs.timeline, history)
	if err != nil {
		return false, err
	}
	at, next, ok := parsed.End(tli)
	if !ok || lsn <= at {
		return false, nil
	}
	s.log.Warn("upstream left our timeline before the end of what is held here; the rest is given up",
		zap.Stringer("lsn", at), zap.Stringer("held", lsn), zap.Uint32("tli", uint32(tli)), zap.Uint32("next", uint32(next)))
	return true, s.endTimeline(ctx, tli, timelineEnd{next: next, at: at})
}

// stream asks for one stream and follows it. nil means that the timeline ended and the sink knows.
func (s *serving) stream(ctx context.Context, b begin) error {
	handler := s.handler(b)
	o := &s.r.options
	stream := &stream{
		wire: s.wire, handler: handler, metrics: o.Metrics, timeout: o.ReceiverTimeout,
		reporter: newReporter(s.wire, s.sink, handler, o, s.upstream.senderTimeout),
		arrived:  func(since time.Time) { s.r.failures.back(s.peer, since) },
	}
	o.Metrics.connects.Inc()
	s.log.Info("start replication", zap.Stringer("lsn", b.start), zap.Uint32("tli", uint32(b.timeline)), zap.String("slot", o.Slot),
		zap.Bool("link", s.link()))
	stream.release = s.release
	stream.begun = func() { s.r.tracker.enter(PhaseStreaming, s.peer, s.link()) }
	end, err := stream.run(ctx, startCommand(o.Slot, b.start, b.timeline))
	s.progress = s.progress || stream.any
	if ctx.Err() != nil {
		s.farewell()
		return ctx.Err()
	}
	// Nothing is kept back between streams: Resume says where the next one begins.
	if released := s.release(ctx); released != nil {
		return released
	}
	if err != nil {
		return s.explain(b, handler.Received(), err)
	}
	if tli, _ := s.sink.Resume(); tli != b.timeline && tli != 0 {
		return nil // the end came as a frame
	}
	if end == nil {
		return &ProtocolError{Peer: s.peer, What: fmt.Sprintf("it ended the stream at %s and named no next timeline", handler.Received())}
	}
	return s.endTimeline(ctx, b.timeline, *end)
}

// release has the sink take in what it keeps back.
func (s *serving) release(ctx context.Context) error {
	err := s.sink.Release(ctx)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return &FatalError{Op: "take in what was kept back", Err: err}
}

func (s *serving) handler(b begin) LinkStream {
	if s.link() {
		return s.r.options.Link(LinkRequest{Peer: s.peer, SystemID: s.upstream.systemID, Timeline: b.timeline, Start: b.start})
	}
	return newPlain(s.sink, s.r.options.Metrics, s.peer, b.timeline, b.start, b.held, func() []byte { return s.following(msgCopyData) })
}

// farewell reports a last time and closes in good order. It is tried once and briefly.
func (s *serving) farewell() {
	status := s.sink.Status()
	status.SendTime = time.Now()
	s.out = s.out[:0]
	s.add(msgCopyData, status.Append(nil))
	s.add(msgTerminate, nil)
	if err := s.send(time.Second); err != nil {
		s.log.Debug("no farewell", zap.Error(err))
	}
}

// endTimeline tells the sink that tli is over, with the history of what follows.
func (s *serving) endTimeline(ctx context.Context, tli protocol.Timeline, end timelineEnd) error {
	_, held := s.sink.Resume()
	switch {
	case end.next <= tli:
		return &ProtocolError{Peer: s.peer, What: fmt.Sprintf("timeline %d is said to be followed by %d", tli, end.next)}
	case end.at > held:
		return &GapError{Timeline: tli, Want: held, Got: end.at, Peer: s.peer}
	}
	history, ok := s.sink.History(end.next)
	if !ok {
		var err error
		if history, err = s.fetchHistory(s.r.options.ReceiverTimeout, end.next); err != nil {
			return err
		}
		if err := addHistory(s.sink, end.next, history); err != nil {
			return err
		}
	}
	// So that consumers learn of a promotion with the end of the timeline. A connection that is broken is noticed afterwards.
	if err := s.identifyUpstream(); err != nil {
		s.log.Debug("upstream not identified at the end of a timeline", zap.Error(err))
	}
	if err := s.sink.EndTimeline(ctx, tli, end.at, end.next, history); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return &FatalError{Op: fmt.Sprintf("end timeline %d at %s", tli, end.at), Err: err}
	}
	s.log.Info("timeline ended", zap.Uint32("tli", uint32(tli)), zap.Stringer("lsn", end.at), zap.Uint32("next", uint32(end.next)))
	return nil
}

// explain names what the end of a stream at lsn means for us.
//
// A start ahead of the flush position is an ERROR XX000 behind the CopyBothResponse. So is a start in a segment that a server
// remembers to have removed although its file can be read; without the file it is 58P01. The position that the upstream gave
// before tells them apart: it only grows, and what does not lie ahead of it is not missing yet, but gone.
//
// Source: PostgreSQL src/backend/replication/walsender.c, StartReplication, WalSndSegmentOpen and XLogSendPhysical;
// src/backend/access/transam/xlog.c, CheckXLogRemoved (13-18).
func (s *serving) explain(b begin, lsn protocol.LSN, err error) error {
	var refused *refusedError
	internal := errors.As(err, &refused) && refused.copying && refused.err.Code == protocol.CodeInternalError
	ahead := b.start > s.upstream.end
	switch {
	case hasCode(err, protocol.CodeUndefinedFile), internal && !ahead && !s.node():
		return s.removed(b, lsn, err)
	case internal && ahead:
		return &BehindError{Timeline: b.timeline, LSN: b.start, Peer: s.peer, Err: err}
	case refused != nil:
		return fmt.Errorf("start replication at %s on timeline %d from upstream %s: %w", b.start, b.timeline, s.peer, err)
	}
	return err
}

// node reports whether the upstream says that it is a node, whose XX000 behind a start has other reasons.
func (s *serving) node() bool { return s.parameters[link.LinkParameter] != "" }

func (s *serving) removed(b begin, lsn protocol.LSN, err error) error {
	e := &RemovedError{Timeline: b.timeline, LSN: lsn, Peer: s.peer, Err: err}
	if !s.node() {
		e.Segment = protocol.SegmentName(b.timeline, lsn, uint64(s.upstream.identity.SegmentSize))
	}
	return e
}
