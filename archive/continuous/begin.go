package continuous

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"walproxy/archive"
	"walproxy/protocol"
	"walproxy/protocol/link"
)

// begin finds out what of the spool is in the archive already, and whether the two leave a gap between them.
func (a *Archiver) begin(ctx context.Context, lines []Line) error {
	start := first(lines)
	if !a.held {
		from, lost, err := a.slot.Hold(start.lsn)
		if err != nil {
			return fmt.Errorf("hold WAL for the archive: %w", err)
		}
		if lost {
			a.log.Error("the archive's slot was invalidated; WAL may be missing from the archive", zap.Stringer("lsn", from))
		}
		a.held, a.done = true, at(lines, from)
	}
	if a.archive == nil {
		opened, err := archive.Create(ctx, a.opt.Store, a.id)
		if err != nil {
			return err
		}
		a.archive = opened
	}
	hole, err := a.hole(ctx, a.done)
	if err == nil && hole != nil && a.done != start { // it was another archive that the slot has followed
		a.done = start
		hole, err = a.hole(ctx, start)
	}
	if err != nil {
		return err
	}
	lines = a.spool.Lines(a.done.timeline, a.done.lsn)
	if hole != nil {
		a.opt.Metrics.hole.Set(float64(hole.To - hole.From))
		a.log.Error("WAL is missing between the end of the archive and the beginning of the spool", zap.Error(hole))
	}
	if err := a.list(ctx, lines); err != nil {
		return err
	}
	a.begun, a.checkNext = true, true
	a.log.Info("archiving", zap.Stringer("store", a.opt.Store), zap.Stringer("lsn", a.done.lsn), zap.Uint32("tli", uint32(a.done.timeline)), zap.Bool("tail", a.opt.Tail))
	a.report()
	return nil
}

// at returns where the window begins that holds lsn; the first one's beginning if none does.
func at(lines []Line, lsn protocol.LSN) position {
	best := first(lines)
	for _, l := range lines {
		for _, w := range l.Windows {
			if w.Start <= lsn && (l.Next == 0 || w.Start < l.End) && w.Start > best.lsn {
				best = position{l.Timeline, w.Start}
			}
		}
	}
	return best
}

// list remembers the objects that hold WAL of the spool from done on.
func (a *Archiver) list(ctx context.Context, lines []Line) error {
	a.known = a.known[:0]
	for _, l := range lines {
		if l.Timeline < a.done.timeline || len(l.Windows) == 0 {
			continue
		}
		from := l.Windows[0].Start
		if l.Timeline == a.done.timeline {
			from = a.done.lsn
		}
		for s, err := range a.archive.Spans(ctx, l.Timeline, from) {
			if err != nil {
				return err
			}
			if s.End > from {
				a.known = append(a.known, known{Span: s})
			}
		}
	}
	return nil
}

// hole returns what is missing between the end of the archive and p; nil if nothing is, or the archive holds nothing before p.
func (a *Archiver) hole(ctx context.Context, p position) (*archive.GapError, error) {
	if p.lsn == 0 {
		return nil, nil
	}
	tli := p.timeline
	if content, ok := a.spool.History(tli); ok {
		h, err := protocol.ParseHistory(tli, content)
		if err != nil {
			return nil, err
		}
		tli = h.At(p.lsn - 1)
	}
	_, err := a.archive.Locate(ctx, tli, p.lsn-1, nil)
	var gap *archive.GapError
	if err == nil || !errors.Is(err, archive.ErrNotExist) && !errors.As(err, &gap) {
		return nil, err
	}
	end, err := End(ctx, a.archive, tli, p.lsn)
	if err != nil || end.End == 0 {
		return nil, err
	}
	return &archive.GapError{Timeline: end.Timeline, From: end.End, To: p.lsn}, nil
}

// End returns the object that reaches furthest of those that begin below a position: on tli, or else on the newest timeline
// before it. A zero tli stands for the newest timeline of all, and below 0 for no bound. The zero Span means that there is none.
func End(ctx context.Context, a *archive.Archive, tli protocol.Timeline, below protocol.LSN) (archive.Span, error) {
	var timelines []protocol.Timeline
	for next := protocol.Timeline(1); next != 0; next++ {
		found, err := a.FirstSpan(ctx, next, 0)
		if err != nil {
			return archive.Span{}, err
		}
		if found.Timeline == 0 || tli != 0 && found.Timeline > tli {
			break
		}
		timelines = append(timelines, found.Timeline)
		next = found.Timeline
	}
	for i := len(timelines) - 1; i >= 0; i-- {
		s, err := last(ctx, a, timelines[i], below)
		if err != nil || s.End != 0 {
			return s, err
		}
	}
	return archive.Span{}, nil
}

// last looks for the last objects of a timeline by halving, since stores list forwards only.
func last(ctx context.Context, a *archive.Archive, tli protocol.Timeline, below protocol.LSN) (archive.Span, error) {
	if below == 0 {
		below = 1<<63 - 1
	}
	low, high := protocol.LSN(0), below // objects begin at or behind low, none at or behind high
	for high-low > link.MaxResetDistance {
		middle := low + (high-low)/2
		s, err := a.FirstSpan(ctx, tli, middle)
		if err != nil {
			return archive.Span{}, err
		}
		if s.Timeline == tli && s.Start < below {
			low = s.Start
		} else {
			high = middle
		}
	}
	var best archive.Span
	for s, err := range a.Spans(ctx, tli, low) {
		if err != nil {
			return best, err
		}
		if s.Start >= below {
			break
		}
		if s.End > best.End {
			best = s
		}
	}
	return best, nil
}
