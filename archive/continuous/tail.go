package continuous

import (
	"context"
	"time"

	"walproxy/archive"
	"walproxy/protocol"
)

// tailGroups is how many cells may be waiting to be complete or sealed while the tail is stored. With more the archiver has fallen
// behind, and complete cells come first.
const tailGroups = 3

// tail stores what the archive lacks of the cells that are not stored as a whole yet: each window that is closed, and what is there
// of the newest one if it is due. again is when it will be.
func (a *Archiver) tail(ctx context.Context, lines []Line) (again time.Duration, err error) {
	at := a.done
	var groups []group
	for {
		g, ok := next(lines, at, a.cell())
		if !ok {
			break
		}
		groups = append(groups, g)
		at = position{g.Timeline, g.windows[len(g.windows)-1].End}
		if len(groups) > tailGroups {
			return 0, nil
		}
	}
	for _, g := range groups {
		for _, w := range g.windows {
			s := archive.Span{Timeline: g.Timeline, Start: w.Start, End: w.End}
			if _, all := covered(a.spans(), s); all {
				continue
			}
			if due := a.due(s); !w.Closed && due > 0 {
				return due, nil
			}
			if err := a.tailWindow(ctx, g.Timeline, w); err != nil {
				return 0, err
			}
		}
	}
	return 0, nil
}

// due returns when the newest window is to be stored again; 0 is now.
func (a *Archiver) due(s archive.Span) time.Duration {
	if a.opt.TailBytes != 0 && uint64(s.End-a.end(s)) >= a.opt.TailBytes {
		return 0
	}
	return max(0, a.opt.TailInterval-a.now().Sub(a.tailed))
}

// end returns up to where the archive holds s.
func (a *Archiver) end(s archive.Span) protocol.LSN {
	end := s.Start
	for _, k := range a.known {
		if k.Timeline == s.Timeline && k.Start <= end && k.End > end {
			end = k.End
		}
	}
	return end
}

// tailWindow stores a window as far as it has come, and removes what it covers.
func (a *Archiver) tailWindow(ctx context.Context, tli protocol.Timeline, w Window) error {
	began := a.now()
	o, err := a.build(ctx, group{Span: archive.Span{Timeline: tli, Start: w.Start, End: w.End}, windows: []Window{w}})
	if err != nil {
		return err
	}
	if err := a.put(ctx, o, kindTail); err != nil {
		return err
	}
	a.tailed = began
	superfluous, err := a.superfluous(ctx, o)
	if err != nil {
		return err
	}
	a.report()
	return a.remove(ctx, superfluous)
}
