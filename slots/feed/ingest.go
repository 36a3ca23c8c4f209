package feed

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/slots/spool"
)

// WAL takes a chunk from a PostgreSQL upstream: recompresses it, appends the frames to the spool and shows it to consumers.
// It waits while the spool is full and Options.MakeRoom says so. wal is not retained. With Options.Hold, the record that is incomplete
// at its end is taken in with the next chunk, by Hold or by Release.
func (f *Feed) WAL(ctx context.Context, tli protocol.Timeline, start protocol.LSN, wal []byte) error {
	f.writing.Lock()
	defer f.writing.Unlock()
	if f.opt.Hold > 0 {
		start, wal = f.hold(tli, start, wal)
	}
	return f.take(ctx, tli, start, wal)
}

// take makes WAL that comes next part of the spool and of the tail.
func (f *Feed) take(ctx context.Context, tli protocol.Timeline, start protocol.LSN, wal []byte) error {
	if len(wal) == 0 {
		return nil
	}
	if err := f.setResetDistance(f.opt.Recompress.ResetDistance); err != nil {
		return fmt.Errorf("take WAL at %s: %w", start, err)
	}
	f.pace(start + protocol.LSN(len(wal)))
	f.synced = 0
	err := f.writer.Write(tli, start, wal, func(fr *link.Frame) error {
		if err := f.append(ctx, fr); err != nil {
			return err
		}
		f.show(tli, fr.Start, wal[fr.Start-start:fr.End()-start]) // at once: the next frame may have to wait for room
		return nil
	})
	if err != nil {
		f.writer.Reset()
		f.holder.Discard()
		return fmt.Errorf("take WAL at %s: %w", start, err)
	}
	return nil
}

// show makes WAL that is in the spool visible to consumers.
func (f *Feed) show(tli protocol.Timeline, start protocol.LSN, wal []byte) {
	f.tail.push(tli, start, wal)
	f.flow.taken(&f.bulk, len(wal))
	if f.opt.Observe != nil {
		f.opt.Observe(tli, start, wal)
	}
}

// Ahead is told up to where the upstream could send.
func (f *Feed) Ahead(upstream protocol.LSN) { f.ahead = upstream }

// pace makes the writer hurry when the upstream is further ahead of end than the mark, and until a quarter of it is left.
func (f *Feed) pace(end protocol.LSN) {
	mark := protocol.LSN(f.opt.BacklogBytes)
	backlog := max(f.ahead, end) - end
	f.behind.Store(backlog > behindBytes)
	hurry := mark != 0 && (backlog > mark || f.hurry && backlog > mark/4)
	if hurry != f.hurry {
		f.hurry = hurry
		f.writer.Hurry(hurry)
		f.zap.Info("pace of recompression changes", zap.Bool("hurry", hurry), zap.Stringer("lsn", end), zap.Uint64("backlog_bytes", uint64(backlog)))
	}
}

// Frame takes a frame from an upstream node. It is decoded first: a frame that does not yield its WAL never counts.
// f is not retained.
func (f *Feed) Frame(ctx context.Context, fr *link.Frame) error {
	f.writing.Lock()
	defer f.writing.Unlock()
	return f.frame(ctx, fr)
}

func (f *Feed) frame(ctx context.Context, fr *link.Frame) error {
	if fr.Codec == link.CodecTimelineEnd {
		end, err := fr.TimelineEnd()
		if err != nil {
			return fmt.Errorf("take frame: %w", err)
		}
		return f.endTimeline(ctx, fr.Timeline, fr.Start, end.Next, end.History)
	}
	if fr.Continues && fr.Stream != f.synced {
		return fmt.Errorf("take frame: %w", &link.UnseenStreamError{Timeline: fr.Timeline, LSN: fr.Start})
	}
	raw, buf, err := f.verify.View(f.raw, fr)
	if f.raw = buf; err != nil {
		f.synced = 0
		return fmt.Errorf("take frame at %s: %w", fr.Start, err)
	}
	if err := f.append(ctx, fr); err != nil {
		f.synced = 0 // verify is behind a frame that is not in the spool
		return err
	}
	if fr.Starts {
		f.synced = fr.Sum
	}
	f.show(fr.Timeline, fr.Start, raw)
	return nil
}

// EndTimeline records that tli ended at end and that next goes on there. Further WAL is expected at end on next.
// WAL of tli beyond end, which an upstream may have sent before it knew, stays on disk but is not served any more.
func (f *Feed) EndTimeline(ctx context.Context, tli protocol.Timeline, end protocol.LSN, next protocol.Timeline, history []byte) error {
	f.writing.Lock()
	defer f.writing.Unlock()
	if err := f.release(ctx); err != nil {
		return err
	}
	return f.endTimeline(ctx, tli, end, next, history)
}

func (f *Feed) endTimeline(ctx context.Context, tli protocol.Timeline, end protocol.LSN, next protocol.Timeline, history []byte) error {
	fr, err := link.NewTimelineEnd(tli, end, next, history)
	if err != nil {
		return err
	}
	if err := f.append(ctx, &fr); err != nil {
		return err
	}
	f.writer.Reset()
	f.synced = 0
	f.tail.push(next, end, nil)
	f.zap.Info("timeline ended", zap.Uint32("tli", uint32(tli)), zap.Stringer("lsn", end), zap.Uint32("next_tli", uint32(next)))
	return nil
}

// append puts a frame into the spool and makes room as often as it takes.
func (f *Feed) append(ctx context.Context, fr *link.Frame) error {
	for {
		err := f.log.Append(fr)
		if err == nil {
			f.count(fr)
			return nil
		}
		if !errors.Is(err, spool.ErrFull) || f.opt.MakeRoom == nil {
			return err
		}
		if err := f.opt.MakeRoom(ctx, err); err != nil {
			return err
		}
	}
}

func (f *Feed) count(fr *link.Frame) {
	m := f.opt.Metrics
	if m == nil {
		return
	}
	m.wal.Add(float64(fr.RawLen))
	m.payload.Add(float64(len(fr.Payload)))
	m.frames.Inc()
	if fr.Codec == link.CodecRaw {
		m.rawFrames.Inc()
	}
}

// Compare checks WAL that the upstream sent again against what is held. Bytes outside of what is held are not looked at.
// It returns a *DivergedError for the first byte that differs.
func (f *Feed) Compare(ctx context.Context, tli protocol.Timeline, start protocol.LSN, wal []byte) error {
	span, held := f.span(tli)
	end := start + protocol.LSN(len(wal))
	if !held || end <= span.Begin || start >= span.End {
		return nil
	}
	from, to := max(start, span.Begin), min(end, span.End)
	wal = wal[from-start : to-start]
	r, err := f.OpenWAL(tli, from)
	if err != nil {
		return fmt.Errorf("compare WAL at %s: %w", from, err)
	}
	defer r.Close()
	for len(wal) > 0 {
		lsn, own, err := r.Next(ctx, len(wal)) // never waits: all of it is held
		if err != nil {
			return fmt.Errorf("compare WAL at %s: %w", from, err)
		}
		n := len(own)
		if !bytes.Equal(own, wal[:n]) {
			for i := range own {
				if own[i] != wal[i] {
					return &DivergedError{Timeline: tli, LSN: lsn + protocol.LSN(i)}
				}
			}
		}
		wal = wal[n:]
	}
	return nil
}

// DivergedError says that the upstream sends other WAL than it did before.
type DivergedError struct {
	Timeline protocol.Timeline
	LSN      protocol.LSN // first byte that differs
}

func (e *DivergedError) Error() string {
	return fmt.Sprintf("upstream's WAL differs from what was received before at %s on timeline %d", e.LSN, e.Timeline)
}
