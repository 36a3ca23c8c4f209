package node

import (
	"context"
	"errors"

	"walproxy/protocol"
	"walproxy/protocol/walreceiver"
	"walproxy/slots"
	"walproxy/slots/feed"
)

// sink is where the receiver puts WAL and finds what to report. It implements walreceiver.Sink.
type sink struct {
	*feed.Feed // Resume, WAL
	node       *Node
}

func (s *sink) Begin() protocol.LSN {
	tli, lsn := s.Resume()
	if begin, held := s.Held(tli); held {
		return begin
	}
	return lsn
}

func (s *sink) Identify(id protocol.Identity) error { return s.node.log.SetIdentity(id) }

func (s *sink) History(tli protocol.Timeline) ([]byte, bool) { return s.node.log.History(tli) }

func (s *sink) AddHistory(tli protocol.Timeline, content []byte) error {
	return s.node.log.AddHistory(tli, content)
}

func (s *sink) Compare(ctx context.Context, tli protocol.Timeline, start protocol.LSN, wal []byte) error {
	err := s.Feed.Compare(ctx, tli, start, wal)
	var diverged *feed.DivergedError
	if errors.As(err, &diverged) {
		return &walreceiver.DivergedError{Timeline: diverged.Timeline, LSN: diverged.LSN}
	}
	return err
}

func (s *sink) EndTimeline(ctx context.Context, tli protocol.Timeline, end protocol.LSN, next protocol.Timeline, history []byte) error {
	s.node.registry.EndTimeline(tli, end)
	return s.Feed.EndTimeline(ctx, tli, end, next, history)
}

func (s *sink) Status() protocol.Status {
	state := s.node.log.State()
	return s.node.reporter.Status(slots.Own{Written: state.End, Flushed: state.Flushed})
}

func (s *sink) Feedback() (protocol.HSFeedback, bool) { return s.node.registry.Feedback() }

func (s *sink) Changed() <-chan struct{} { return s.node.status.wait() }
