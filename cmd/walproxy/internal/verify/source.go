// Package verify compares what two places hold of the WAL of one cluster, byte for byte: servers, nodes, directories, archives.
package verify

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"walproxy/protocol"
)

// ErrDamaged is the class of errors that say a place holds WAL that it cannot give back as it was.
var ErrDamaged = errors.New("damaged")

// Source is a place that holds WAL of one cluster. Not safe for concurrent use.
type Source interface {
	// Name is how the user knows the source, without secrets.
	Name() string
	// Inventory tells what is held at this moment. It comes first.
	Inventory(ctx context.Context) (Inventory, error)
	// Open returns a reader of WAL from one LSN to another, the latter not included; both lie in one span of the inventory.
	Open(ctx context.Context, tli protocol.Timeline, from, to protocol.LSN) (Reader, error)
	Close() error
}

// Reader yields WAL in order.
type Reader interface {
	// Next returns some of the WAL that follows, at least one byte, valid until the next call; io.EOF at the end.
	Next(ctx context.Context) ([]byte, error)
	Close() error
}

// Span is WAL that belongs to a timeline: not below the point where it forked off, and not beyond the one where it ended.
type Span struct {
	Timeline   protocol.Timeline `json:"timeline"`
	Begin, End protocol.LSN      `json:"-"`
}

// Inventory is what a source holds. Spans ascend by timeline and LSN, and do not touch each other.
type Inventory struct {
	SystemID  protocol.SystemID
	Spans     []Span
	Histories []protocol.History // as far as known, of timelines above 1
}

// history returns the ancestry of tli.
func (v *Inventory) history(tli protocol.Timeline) (protocol.History, bool) {
	for _, h := range v.Histories {
		if h.Timeline == tli {
			return h, true
		}
	}
	return protocol.History{}, false
}

// normal sorts spans, joins those that touch, and drops empty ones.
func normal(spans []Span) []Span {
	slices.SortFunc(spans, func(a, b Span) int {
		return cmp.Or(cmp.Compare(a.Timeline, b.Timeline), cmp.Compare(a.Begin, b.Begin))
	})
	var out []Span
	for _, s := range spans {
		n := len(out)
		switch {
		case s.End <= s.Begin:
		case n > 0 && out[n-1].Timeline == s.Timeline && s.Begin <= out[n-1].End:
			out[n-1].End = max(out[n-1].End, s.End)
		default:
			out = append(out, s)
		}
	}
	return out
}

// without returns the parts of s that none of others covers.
func (s Span) without(others []Span) []Span {
	var out []Span
	at := s.Begin
	for _, o := range others {
		if o.Timeline != s.Timeline || o.End <= at {
			continue
		}
		if o.Begin >= s.End {
			break
		}
		if o.Begin > at {
			out = append(out, Span{s.Timeline, at, o.Begin})
		}
		at = max(at, o.End)
	}
	if at < s.End {
		out = append(out, Span{s.Timeline, at, s.End})
	}
	return out
}

// common returns what both lists cover.
func common(a, b []Span) []Span {
	var out []Span
	for _, x := range a {
		for _, y := range b {
			if x.Timeline == y.Timeline {
				out = append(out, Span{x.Timeline, max(x.Begin, y.Begin), min(x.End, y.End)})
			}
		}
	}
	return normal(out)
}

// owned cuts the spans of timelines at the forks that the histories tell.
func owned(spans []Span, histories []protocol.History) []Span {
	for i := range spans {
		s := &spans[i]
		for _, h := range histories {
			if h.Timeline == s.Timeline {
				s.Begin = max(s.Begin, h.Begin())
			}
		}
	}
	return normal(spans)
}
