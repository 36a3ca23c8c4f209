package verify

import (
	"context"
	"errors"
	"fmt"
	"io"

	"walproxy/archive"
	"walproxy/archive/catalog"
	"walproxy/protocol"
	"walproxy/protocol/link"
)

// pieceBytes is how much WAL is taken out of an archive at a time.
const pieceBytes = 16 << 20

// stored is an archive.
type stored struct {
	store   archive.Store
	archive *archive.Archive
}

// NewStore returns the archive in a store, which Close closes.
func NewStore(store archive.Store) Source { return &stored{store: store} }

func (s *stored) Name() string { return s.store.String() }

func (s *stored) Close() error { return s.store.Close() }

func (s *stored) Inventory(ctx context.Context) (Inventory, error) {
	a, err := archive.Open(ctx, s.store)
	if err != nil {
		return Inventory{}, err
	}
	s.archive = a
	c, err := catalog.Load(ctx, a)
	if err != nil {
		return Inventory{}, err
	}
	v := Inventory{SystemID: a.Identity().SystemID}
	for _, b := range c.Broken {
		return v, fmt.Errorf("%w: history of timeline %d: %w", ErrDamaged, b.Timeline, b.Err)
	}
	for _, l := range c.Timelines {
		if l.Known && l.Timeline > 1 {
			v.Histories = append(v.Histories, l.History)
		}
		end := endless
		if newest := c.Newest(); newest.Timeline != l.Timeline {
			if at, _, ended := newest.History.End(l.Timeline); ended {
				end = at
			}
		}
		for _, r := range l.Ranges {
			v.Spans = append(v.Spans, Span{l.Timeline, r.From, min(r.To, end)})
		}
	}
	v.Spans = normal(v.Spans)
	return v, nil
}

// endless is the end of a timeline that goes on.
const endless = ^protocol.LSN(0)

func (s *stored) Open(_ context.Context, tli protocol.Timeline, from, to protocol.LSN) (Reader, error) {
	return &storedReader{reader: s.archive.NewReader(), timeline: tli, next: from, end: to}, nil
}

type storedReader struct {
	reader    *archive.Reader
	timeline  protocol.Timeline
	next, end protocol.LSN
	wal       []byte
}

func (r *storedReader) Close() error { return nil }

func (r *storedReader) Next(ctx context.Context) ([]byte, error) {
	if r.next >= r.end {
		return nil, io.EOF
	}
	r.wal = r.wal[:0]
	to := min(r.next.Next(pieceBytes), r.end)
	err := r.reader.Read(ctx, r.timeline, r.next, to, func(_ protocol.LSN, wal []byte) error {
		r.wal = append(r.wal, wal...)
		return nil
	})
	var gap *archive.GapError
	if errors.Is(err, link.ErrCorrupt) || errors.As(err, &gap) {
		err = fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if err != nil {
		return nil, err
	}
	r.next = to
	return r.wal, nil
}
