package walsender

import (
	"context"

	"go.uber.org/zap"

	"github.com/jackc/pgx/v5/pgproto3"

	"walproxy/protocol"
)

// target is where a START_REPLICATION begins.
type target struct {
	tli      protocol.Timeline
	historic bool         // the timeline has ended
	end      protocol.LSN // where it ended
	next     protocol.Timeline
}

// startReplication checks in the order of a stock server, then streams. It returns nil when the stream ended by the
// handshake of both sides.
//
// Source: PostgreSQL src/backend/replication/walsender.c, StartReplication (13-18).
func (s *session) startReplication(ctx, shutdown context.Context, c protocol.StartReplication) error {
	var slot Slot
	if c.HasSlot {
		var err error
		if slot, err = s.acquire(ctx, shutdown, c.Slot); err != nil {
			return err
		}
		defer slot.Release()
	}
	t, err := s.target(c)
	if err != nil {
		return err
	}
	if t.historic && c.Start >= t.end {
		s.endOfStream(t)
		return nil
	}
	if err := s.wire.add(&pgproto3.CopyBothResponse{}); err != nil {
		return err
	}
	// Refusals from here on follow CopyBothResponse, as they do at a stock server.
	if _, end := s.server.backend.Position(); !t.historic && c.Start > end {
		return protocol.Errorf(protocol.CodeInternalError,
			"requested starting point %s is ahead of the WAL flush position of this server %s", c.Start, end)
	}
	out, err := s.server.backend.Open(ctx, t.tli, c.Start, s.link)
	if err != nil {
		return err
	}
	if err := s.wire.flush(); err != nil {
		return closed(err)
	}
	return s.stream(ctx, shutdown, c, t, slot, out)
}

// target finds the timeline that is asked for in the history of the current one.
func (s *session) target(c protocol.StartReplication) (target, error) {
	current, _ := s.server.backend.Position()
	if c.Timeline == 0 || c.Timeline == current {
		return target{tli: current}, nil
	}
	history, err := s.history(current)
	if err != nil {
		return target{}, err
	}
	end, next, ancestor := history.End(c.Timeline)
	if !ancestor {
		return target{}, protocol.Errorf(protocol.CodeInternalError, "requested timeline %d is not in this server's history", c.Timeline)
	}
	if c.Start > end {
		err := protocol.Errorf(protocol.CodeInternalError,
			"requested starting point %s on timeline %d is not in this server's history", c.Start, c.Timeline)
		err.Detail = "This server's history forked from timeline " + string(decimal(c.Timeline)) + " at " + end.String() + "."
		return target{}, err
	}
	return target{tli: c.Timeline, historic: true, end: end, next: next}, nil
}

// stream runs one stream and tells the node about it.
func (s *session) stream(ctx, shutdown context.Context, c protocol.StartReplication, t target, slot Slot, out Outgoing) error {
	info := Info{
		PID: s.pid, User: s.user, ApplicationName: s.settings.values["application_name"], Peer: s.peer, Slot: c.Slot,
		Timeline: t.tli, Start: c.Start, Link: s.link,
	}
	log := s.log.With(zap.Int32("pid", s.pid), zap.String("application_name", info.ApplicationName), zap.String("slot", info.Slot))
	log.Info("consumer started", zap.Stringer("lsn", c.Start), zap.Uint32("tli", uint32(t.tli)), zap.Bool("link", info.Link))
	st := newStream(s, t, c.Start, slot, out, s.server.consumers.Register(info))
	s.setStream(st)
	err := st.run(ctx, shutdown)
	s.setStream(nil)
	st.consumer.Close()
	if errClose := out.Close(); errClose != nil {
		log.Warn("cannot close a stream", zap.Error(errClose))
	}
	log.Info("consumer ended", zap.Stringer("lsn", st.sentLSN()), zap.Uint32("tli", uint32(t.tli)), zap.Error(err))
	if err != nil {
		return err
	}
	s.endOfStream(st.target)
	return nil
}

// endOfStream appends what ends a stream in peace: where to go on if the timeline has ended, and the first of two tags.
func (s *session) endOfStream(t target) {
	if t.historic {
		s.wire.out = protocol.AppendRowDescription(s.wire.out, protocol.NextTimelineColumns())
		s.wire.out = protocol.AppendDataRow(s.wire.out, decimal(t.next), t.end.Append(nil))
	}
	s.wire.out = protocol.AppendCommandComplete(s.wire.out, "START_STREAMING")
}
