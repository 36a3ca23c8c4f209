// Package catalog tells what an archive holds and lacks, whether it is whole, and what of it is no longer needed.
package catalog

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"walproxy/archive"
	"walproxy/protocol"
)

// Catalog is what the names in an archive say, and the histories.
type Catalog struct {
	Identity  archive.Identity
	Timelines []*Timeline // ascending; those that have objects
	Files     []File      // plain files in the order of their names
	Unknown   []archive.Info
	Broken    []Broken // histories that cannot be read
}

// Timeline is what an archive holds of one timeline.
type Timeline struct {
	Timeline protocol.Timeline
	History  protocol.History // without entries if it is not there
	Known    bool             // the history is there; timeline 1 needs none
	Objects  []Object         // in the order of their names
	Ranges   []Range          // WAL that is there, of what the timeline owns
	Gaps     []Range          // WAL that is missing between what is there
}

// Object is a WAL object.
type Object struct {
	archive.Span
	Bytes    int64
	Modified time.Time
}

// File is a plain file.
type File struct {
	Name     string
	Bytes    int64
	Modified time.Time
}

// Range is a range of WAL, To excluded.
type Range struct{ From, To protocol.LSN }

// Broken is a history that cannot be read.
type Broken struct {
	Timeline protocol.Timeline
	Err      error
}

// Load lists an archive and reads its histories.
func Load(ctx context.Context, a *archive.Archive) (*Catalog, error) {
	c := &Catalog{Identity: a.Identity()}
	lines := map[protocol.Timeline]*Timeline{}
	for info, err := range a.Store().List(ctx, "", "") {
		if err != nil {
			return nil, err
		}
		span, isWAL := archive.ParseWALName(info.Name)
		name, isFile := archive.ParseFileName(info.Name)
		switch {
		case isWAL:
			if lines[span.Timeline] == nil {
				lines[span.Timeline] = &Timeline{Timeline: span.Timeline, History: protocol.History{Timeline: span.Timeline}, Known: span.Timeline == 1}
				c.Timelines = append(c.Timelines, lines[span.Timeline])
			}
			l := lines[span.Timeline]
			l.Objects = append(l.Objects, Object{span, info.Bytes, info.Modified})
		case isFile:
			c.Files = append(c.Files, File{name, info.Bytes, info.Modified})
		case !archive.IsIdentity(info.Name):
			c.Unknown = append(c.Unknown, info)
		}
	}
	for _, l := range c.Timelines {
		if err := c.readHistory(ctx, a, l); err != nil {
			return nil, err
		}
	}
	c.cover()
	return c, nil
}

// readHistory reads the history of a timeline, unless it is missing or broken.
func (c *Catalog) readHistory(ctx context.Context, a *archive.Archive, l *Timeline) error {
	if l.Timeline == 1 {
		return nil
	}
	content, err := a.History(ctx, l.Timeline)
	if errors.Is(err, archive.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	h, err := protocol.ParseHistory(l.Timeline, content)
	if err != nil {
		c.Broken = append(c.Broken, Broken{l.Timeline, err})
		return nil
	}
	l.History, l.Known = h, true
	return nil
}

// Of returns what is held of tli; nil if nothing is.
func (c *Catalog) Of(tli protocol.Timeline) *Timeline {
	for _, l := range c.Timelines {
		if l.Timeline == tli {
			return l
		}
	}
	return nil
}

// Newest returns the newest timeline that has objects; nil if there is none.
func (c *Catalog) Newest() *Timeline {
	if len(c.Timelines) == 0 {
		return nil
	}
	return c.Timelines[len(c.Timelines)-1]
}

// cover finds ranges and gaps. The first object of a timeline may begin with WAL of its parent, which counts there.
func (c *Catalog) cover() {
	held := map[protocol.Timeline][]Range{}
	ends := map[protocol.Timeline]protocol.LSN{} // where a timeline must reach, since another one that is held began there
	for _, l := range c.Timelines {
		begin := l.History.Begin()
		for _, o := range l.Objects {
			held[l.Timeline] = append(held[l.Timeline], Range{max(o.Start, begin), o.End})
			for i, e := range l.History.Entries {
				from := protocol.LSN(0)
				if i > 0 {
					from = l.History.Entries[i-1].End
				}
				held[e.Timeline] = append(held[e.Timeline], Range{max(o.Start, from), min(o.End, e.End)})
			}
		}
		for _, e := range l.History.Entries {
			ends[e.Timeline] = max(ends[e.Timeline], e.End)
		}
	}
	for _, l := range c.Timelines {
		l.Ranges = joined(held[l.Timeline])
		for i := 1; i < len(l.Ranges); i++ {
			l.Gaps = append(l.Gaps, Range{l.Ranges[i-1].To, l.Ranges[i].From})
		}
		if len(l.Ranges) == 0 {
			continue
		}
		if n := len(l.History.Entries); n > 0 && l.Ranges[0].From > l.History.Begin() && c.Of(l.History.Entries[n-1].Timeline) != nil {
			l.Gaps = slices.Insert(l.Gaps, 0, Range{l.History.Begin(), l.Ranges[0].From})
		}
		if end := ends[l.Timeline]; l.Ranges[len(l.Ranges)-1].To < end {
			l.Gaps = append(l.Gaps, Range{l.Ranges[len(l.Ranges)-1].To, end})
		}
	}
}

// joined sorts ranges, joins those that touch, and drops empty ones.
func joined(ranges []Range) []Range {
	slices.SortFunc(ranges, func(a, b Range) int { return cmp.Compare(a.From, b.From) })
	var out []Range
	for _, r := range ranges {
		n := len(out)
		switch {
		case r.To <= r.From:
		case n > 0 && r.From <= out[n-1].To:
			out[n-1].To = max(out[n-1].To, r.To)
		default:
			out = append(out, r)
		}
	}
	return out
}
