package verify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"walproxy/protocol"
)

var (
	// ErrDiffers says that the two sources hold different WAL.
	ErrDiffers = errors.New("the WAL differs")
	// ErrNothingInCommon says that there is no WAL that both hold.
	ErrNothingInCommon = errors.New("there is no WAL that both hold")
)

// Options of a comparison.
type Options struct {
	From, To protocol.LSN            // bounds; 0 is none
	Progress func(done, total int64) // bytes of WAL; nil: nobody looks
}

// Compare compares a and b over what they have in common, one timeline after the other, up to the first difference. The report
// is there, as far as it got, beside every error but those of an inventory.
//
// Errors: ErrDiffers, also for another cluster and for timelines that began elsewhere; ErrNothingInCommon; those of the sources.
func Compare(ctx context.Context, a, b Source, o Options) (*Report, error) {
	left, err := a.Inventory(ctx)
	if err != nil {
		return nil, fmt.Errorf("look at %s: %w", a.Name(), err)
	}
	right, err := b.Inventory(ctx)
	if err != nil {
		return nil, fmt.Errorf("look at %s: %w", b.Name(), err)
	}
	r := &Report{A: point(a, left), B: point(b, right)}
	if left.SystemID != right.SystemID {
		r.Difference = &Difference{What: fmt.Sprintf("system identifier %s in A, %s in B", left.SystemID, right.SystemID)}
		return r, fmt.Errorf("%w: two clusters", ErrDiffers)
	}
	if r.Difference = otherFork(left, right); r.Difference != nil {
		return r, fmt.Errorf("%w: %s", ErrDiffers, r.Difference.What)
	}
	both := clip(common(left.Spans, right.Spans), o)
	r.OnlyA, r.OnlyB = rest(left.Spans, right.Spans), rest(right.Spans, left.Spans)
	if len(both) == 0 {
		return r, ErrNothingInCommon
	}
	progress := newProgress(both, o.Progress)
	for _, s := range both {
		d, err := compareSpan(ctx, a, b, s, progress)
		if err != nil {
			return r, err
		}
		if d != nil {
			r.Compared = append(r.Compared, rangeOf(Span{s.Timeline, s.Begin, d.at}))
			r.Difference = d
			return r, fmt.Errorf("%w at %s on timeline %d", ErrDiffers, d.at, s.Timeline)
		}
		r.Compared = append(r.Compared, rangeOf(s))
	}
	return r, nil
}

// otherFork looks for a timeline that has not the same ancestry in both.
func otherFork(a, b Inventory) *Difference {
	for _, h := range a.Histories {
		other, known := b.history(h.Timeline)
		if !known || slices.Equal(h.Entries, other.Entries) {
			continue
		}
		return &Difference{Timeline: h.Timeline, LSN: min(h.Begin(), other.Begin()).String(), at: min(h.Begin(), other.Begin()),
			What: fmt.Sprintf("timeline %d has another history: it begins at %s in A, at %s in B", h.Timeline, h.Begin(), other.Begin())}
	}
	return nil
}

func clip(spans []Span, o Options) []Span {
	for i := range spans {
		spans[i].Begin = max(spans[i].Begin, o.From)
		if o.To != 0 {
			spans[i].End = min(spans[i].End, o.To)
		}
	}
	return normal(spans)
}

func rest(a, b []Span) (out []Range) {
	for _, s := range a {
		for _, left := range s.without(b) {
			out = append(out, rangeOf(left))
		}
	}
	return out
}

// newProgress returns what counts compared bytes.
func newProgress(spans []Span, show func(done, total int64)) func(n int) {
	if show == nil {
		return func(int) {}
	}
	var done, total int64
	for _, s := range spans {
		total += int64(s.End - s.Begin)
	}
	return func(n int) {
		done += int64(n)
		show(done, total)
	}
}

// compareSpan returns the first difference, or nil.
func compareSpan(ctx context.Context, a, b Source, s Span, progress func(int)) (d *Difference, err error) {
	left, err := a.Open(ctx, s.Timeline, s.Begin, s.End)
	if err != nil {
		return nil, fmt.Errorf("read %s at %s on timeline %d: %w", a.Name(), s.Begin, s.Timeline, err)
	}
	defer func() { err = errors.Join(err, left.Close()) }()
	right, err := b.Open(ctx, s.Timeline, s.Begin, s.End)
	if err != nil {
		return nil, fmt.Errorf("read %s at %s on timeline %d: %w", b.Name(), s.Begin, s.Timeline, err)
	}
	defer func() { err = errors.Join(err, right.Close()) }()
	var x, y []byte
	for at := s.Begin; at < s.End; {
		if x, err = more(ctx, left, x); err != nil {
			return nil, fmt.Errorf("read %s at %s on timeline %d: %w", a.Name(), at, s.Timeline, err)
		}
		if y, err = more(ctx, right, y); err != nil {
			return nil, fmt.Errorf("read %s at %s on timeline %d: %w", b.Name(), at, s.Timeline, err)
		}
		n := min(len(x), len(y), int(min(uint64(s.End-at), 1<<30)))
		if !bytes.Equal(x[:n], y[:n]) {
			i := 0
			for x[i] == y[i] {
				i++
			}
			at += protocol.LSN(i)
			return &Difference{Timeline: s.Timeline, LSN: at.String(), at: at,
				What: fmt.Sprintf("timeline %d differs at %s: %#02x in A, %#02x in B", s.Timeline, at, x[i], y[i])}, nil
		}
		x, y, at = x[n:], y[n:], at+protocol.LSN(n)
		progress(n)
	}
	return nil, nil
}

// more returns what is left, or what follows if nothing is.
func more(ctx context.Context, r Reader, left []byte) ([]byte, error) {
	if len(left) > 0 {
		return left, nil
	}
	next, err := r.Next(ctx)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return next, err
}
