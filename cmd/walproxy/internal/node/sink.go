package node

import (
	"context"
	"errors"
	"sync"

	"go.uber.org/zap"

	"walproxy/protocol"
	"walproxy/protocol/walreceiver"
	"walproxy/slots/feed"
)

// sink is where the receiver puts WAL and finds what to report. It implements walreceiver.Sink.
type sink struct {
	*feed.Feed // Resume
	node       *Node
	advise     sync.Once
}

// WAL takes WAL from a server, which keeps whole segments for our slot.
func (s *sink) WAL(ctx context.Context, tli protocol.Timeline, start protocol.LSN, wal []byte) error {
	s.advise.Do(s.adviseDistance)
	return s.Feed.WAL(ctx, tli, start, wal)
}

// adviseDistance warns where the upstream's slot does not keep all WAL of the window that is being written. What is reported as
// flushed is durable here, and must be reported at once, since commits may wait for it; the slot then keeps WAL from that
// position's segment on. Where the window begins in that segment or later it can be fetched again whatever happens to its file.
// Where segments are smaller than windows its beginning may be gone upstream, and a damaged file would mean a new data directory.
func (s *sink) adviseDistance() {
	id, _ := s.node.log.Identity()
	distance := s.node.log.ResetDistance()
	if s.node.config.Upstream.Slot == "" || id.SegmentSize >= distance {
		return
	}
	s.node.logger.Warn("the upstream's slot may not keep all of the newest window",
		zap.String("hint", "set recompress.reset_distance to the segment size"),
		zap.Uint32("segment_bytes", id.SegmentSize), zap.Uint32("reset_distance_bytes", distance))
}

func (s *sink) Begin() protocol.LSN {
	tli, lsn := s.Resume()
	if begin, held := s.Held(tli); held {
		return begin
	}
	return lsn
}

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

func (s *sink) Status() protocol.Status { return s.node.report() }

func (s *sink) Feedback() (protocol.HSFeedback, bool) { return s.node.registry.Feedback() }

func (s *sink) Changed() <-chan struct{} { return s.node.status.wait() }
