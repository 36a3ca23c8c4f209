package continuous

import (
	"walproxy/archive"
	"walproxy/protocol"
)

// group is what becomes one object: windows of one timeline in one cell.
type group struct {
	archive.Span
	windows  []Window
	complete bool // nothing is added to the cell any more
}

// position is a place in the spool. Timelines come one after the other.
type position struct {
	timeline protocol.Timeline
	lsn      protocol.LSN
}

// next returns the first group behind p; false if there is no WAL behind it. cell is the larger one of segment size and reset
// distance, in bytes. Groups that are complete are the same whenever they are asked for, as long as the spool holds them.
func next(lines []Line, p position, cell uint64) (group, bool) {
	for _, line := range lines {
		if line.Timeline < p.timeline {
			continue
		}
		from := protocol.LSN(0)
		if line.Timeline == p.timeline {
			from = p.lsn
		}
		if g, ok := line.next(from, cell); ok {
			return g, true
		}
	}
	return group{}, false
}

// next returns the first group of the line at or behind from.
func (l Line) next(from protocol.LSN, cell uint64) (group, bool) {
	g := group{Span: archive.Span{Timeline: l.Timeline}}
	for _, w := range l.Windows {
		if w.Start < from || w.End <= w.Start || l.Next != 0 && w.Start >= l.End {
			continue // stored, or of no timeline
		}
		if len(g.windows) == 0 {
			g.Start = w.Start
		}
		g.windows, g.End = append(g.windows, w), w.End
		if w.Closed && uint64(w.End)%cell == 0 {
			g.complete = true
			return g, true
		}
	}
	g.complete = l.Next != 0
	return g, len(g.windows) > 0
}

// covered reports whether WAL of g is in objects up to its end, without a gap, and whether one object holds all of it.
func covered(objects []archive.Span, g archive.Span) (whole, all bool) {
	at := g.Start
	for moved := true; moved && at < g.End; {
		moved = false
		for _, o := range objects {
			if o.Timeline != g.Timeline {
				continue
			}
			if o.Start <= g.Start && o.End >= g.End {
				return true, true
			}
			if o.Start <= at && o.End > at {
				at, moved = o.End, true
			}
		}
	}
	return false, at >= g.End
}
