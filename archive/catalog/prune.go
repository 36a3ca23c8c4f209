package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"walproxy/archive"
	"walproxy/protocol"
)

// Anchor is a place from which recovery must stay possible: what the archive holds of the timeline from there on is kept, what
// its ancestors hold from there on up to the forks, and every timeline that began at or behind it.
type Anchor struct {
	Timeline protocol.Timeline
	LSN      protocol.LSN
	Why      string // in words
}

func (a Anchor) String() string {
	return fmt.Sprintf("%s on timeline %d (%s)", a.LSN, a.Timeline, a.Why)
}

// Plan is what pruning removes.
type Plan struct {
	Anchors []Anchor
	Objects []Object // oldest first, so that what is left has no gap whenever it ends
	Files   []File
	Bytes   int64
}

// ErrNoBackup says that pruning by age needs a backup that it can hold on to.
var ErrNoBackup = errors.New("no backup is known that begins before that: give the oldest one that is to be kept")

// Prune plans to remove what none of the anchors needs. Backups of which the archive holds the history file and that begin at or
// behind an anchor's LSN are anchors too.
//
// Errors: a timeline of an anchor whose history is not in the archive, so that nobody knows what it needs.
func (c *Catalog) Prune(anchors []Anchor) (*Plan, error) {
	if len(anchors) == 0 {
		return nil, errors.New("prune: nothing says what is to be kept")
	}
	p := &Plan{Anchors: slices.Clone(anchors)}
	oldest := slices.MinFunc(anchors, func(a, b Anchor) int { return cmp.Compare(a.LSN, b.LSN) })
	for _, b := range c.Backups() {
		if b.LSN >= oldest.LSN {
			p.Anchors = append(p.Anchors, b)
		}
	}
	for _, a := range p.Anchors {
		if l := c.Of(a.Timeline); a.Timeline != 1 && (l == nil || !l.Known) {
			return nil, fmt.Errorf("prune: the history of timeline %d is not in the archive, so what %s needs is not known", a.Timeline, a)
		}
	}
	for _, l := range c.Timelines {
		if l.Timeline != 1 && !l.Known {
			continue // what it descends from is not known: it stays
		}
		for _, o := range l.Objects {
			if !p.needs(c, o.Span) {
				p.Objects = append(p.Objects, o)
				p.Bytes += o.Bytes
			}
		}
	}
	for _, f := range c.Files {
		if s, ok := fileSpan(f.Name, uint64(c.Identity.SegmentSize)); ok {
			if !p.needs(c, s) {
				p.Files = append(p.Files, f)
				p.Bytes += f.Bytes
			}
		}
	}
	return p, nil
}

// needs reports whether WAL of a timeline is needed from the anchors on: on the way to any timeline that can be reached from one.
func (p *Plan) needs(c *Catalog, s archive.Span) bool {
	for _, a := range p.Anchors {
		own := c.historyOf(a.Timeline)
		if onPath(own, a, s) {
			return true
		}
		for _, l := range c.Timelines {
			if parting(own, l.History) >= a.LSN && onPath(l.History, a, s) {
				return true
			}
		}
	}
	return false
}

func (c *Catalog) historyOf(tli protocol.Timeline) protocol.History {
	if l := c.Of(tli); l != nil {
		return l.History
	}
	return protocol.History{Timeline: tli}
}

// onPath reports whether WAL behind the anchor lies on the way to the timeline whose history is h.
func onPath(h protocol.History, a Anchor, s archive.Span) bool {
	if s.End <= a.LSN {
		return false
	}
	end, _, ancestor := h.End(s.Timeline)
	return s.Timeline == h.Timeline || ancestor && s.Start < end
}

// endless is the end of a timeline that goes on.
const endless = protocol.LSN(math.MaxUint64)

// parting returns the LSN at which the ways to two timelines part; endless if they are the same.
func parting(a, b protocol.History) protocol.LSN {
	before := protocol.LSN(0)
	for i := 0; ; i++ {
		x, y := step(a, i), step(b, i)
		switch {
		case x.Timeline != y.Timeline:
			return before
		case x.End != y.End || x.End == endless:
			return min(x.End, y.End)
		}
		before = x.End
	}
}

// step returns step i of the way to a timeline; the last one is the timeline itself.
func step(h protocol.History, i int) protocol.HistoryEntry {
	if i < len(h.Entries) {
		return h.Entries[i]
	}
	return protocol.HistoryEntry{Timeline: h.Timeline, End: endless}
}

// fileSpan returns the WAL that a .partial or .backup file belongs to.
func fileSpan(name string, segmentSize uint64) (archive.Span, bool) {
	if len(name) < 25 || name[24] != '.' {
		return archive.Span{}, false
	}
	tli, start, err := protocol.ParseSegmentName(name[:24], segmentSize)
	if err != nil {
		return archive.Span{}, false
	}
	return archive.Span{Timeline: tli, Start: start, End: start + protocol.LSN(segmentSize)}, true
}

// Backups returns the backups whose history files are in the archive, oldest first.
func (c *Catalog) Backups() []Anchor { return c.backups(time.Time{}) }

// backups returns those whose history files were stored before, which is when they were complete; the zero time is no bound.
func (c *Catalog) backups(before time.Time) (all []Anchor) {
	size := uint64(c.Identity.SegmentSize)
	for _, f := range c.Files {
		s, ok := fileSpan(f.Name, size)
		if !ok || !before.IsZero() && !f.Modified.Before(before) || len(f.Name) != len("000000010000000000000002.00000028.backup") {
			continue
		}
		var offset uint64
		if _, err := fmt.Sscanf(f.Name[25:33], "%X", &offset); err == nil && offset < size {
			all = append(all, Anchor{s.Timeline, s.Start + protocol.LSN(offset), "backup " + f.Name})
		}
	}
	slices.SortFunc(all, func(a, b Anchor) int {
		return cmp.Or(cmp.Compare(a.Timeline, b.Timeline), cmp.Compare(a.LSN, b.LSN))
	})
	return all
}

// KeepSince returns the anchor of whoever wants to recover to any moment since then: the newest backup that was complete before that
// moment. A backup that is not in the archive may be given as known.
//
// Errors: ErrNoBackup.
func (c *Catalog) KeepSince(since time.Time, known []Anchor) (Anchor, error) {
	l := c.Newest()
	if l == nil {
		return Anchor{}, errors.New("the archive holds no WAL")
	}
	cut := l.Objects[len(l.Objects)-1].End
	for _, o := range c.path(l) {
		if !o.Modified.Before(since) { // stored since then; what it holds was written before it was stored
			cut = o.Start
			break
		}
	}
	best := Anchor{}
	for _, b := range append(c.backups(since), known...) {
		if b.LSN <= cut && b.LSN >= best.LSN && (b.Timeline == l.Timeline || l.History.Contains(b.Timeline)) {
			best = b
		}
	}
	if best.Timeline == 0 {
		return best, ErrNoBackup
	}
	return best, nil
}

// path returns the objects on the way to a timeline, in the order of LSNs.
func (c *Catalog) path(l *Timeline) (objects []Object) {
	for _, other := range c.Timelines {
		if other.Timeline == l.Timeline || l.History.Contains(other.Timeline) {
			objects = append(objects, other.Objects...)
		}
	}
	slices.SortStableFunc(objects, func(a, b Object) int { return cmp.Compare(a.Start, b.Start) })
	return objects
}

// Execute removes what the plan names, and calls removed for each name. What was removed before an error stays removed.
func (p *Plan) Execute(ctx context.Context, a *archive.Archive, removed func(name string)) error {
	for _, name := range p.Names() {
		if err := a.Store().Delete(ctx, name); err != nil {
			return err
		}
		removed(name)
	}
	return nil
}

// Removal is a run of objects that goes.
type Removal struct {
	Timeline protocol.Timeline
	Range
	Objects int
	Bytes   int64
}

// Ranges returns what goes, objects that touch or overlap taken together.
func (p *Plan) Ranges() (all []Removal) {
	for _, o := range p.Objects {
		n := len(all)
		if n == 0 || all[n-1].Timeline != o.Timeline || o.Start > all[n-1].To {
			all = append(all, Removal{Timeline: o.Timeline, Range: Range{o.Start, o.End}})
			n++
		}
		r := &all[n-1]
		r.To, r.Objects, r.Bytes = max(r.To, o.End), r.Objects+1, r.Bytes+o.Bytes
	}
	return all
}

// Names returns the names of what goes, in the order in which it does.
func (p *Plan) Names() (names []string) {
	for _, o := range p.Objects {
		names = append(names, o.Name())
	}
	for _, f := range p.Files {
		names = append(names, archive.FileName(f.Name))
	}
	return names
}
