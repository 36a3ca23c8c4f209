package archive

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"walproxy/protocol"
	"walproxy/protocol/link"
)

// Spans yields what the objects of tli hold that may hold WAL from lsn on, in the order of their names; of those before lsn some
// may be among them. It ends with the first error.
func (a *Archive) Spans(ctx context.Context, tli protocol.Timeline, lsn protocol.LSN) iter.Seq2[Span, error] {
	return func(yield func(Span, error) bool) {
		// No object crosses the edge of a cell.
		floor := lsn.Floor(max(uint64(a.id.SegmentSize), link.MaxResetDistance))
		for info, err := range a.store.List(ctx, TimelinePrefix(tli), fmt.Sprintf("%s%016X", TimelinePrefix(tli), uint64(floor))) {
			if err != nil {
				yield(Span{}, err)
				return
			}
			if s, ok := ParseWALName(info.Name); ok && !yield(s, nil) {
				return
			}
		}
	}
}

// FirstSpan returns what the first object holds that begins at or behind lsn on tli, or on a later timeline; zero if there is none.
func (a *Archive) FirstSpan(ctx context.Context, tli protocol.Timeline, lsn protocol.LSN) (Span, error) {
	for info, err := range a.store.List(ctx, walPrefix, fmt.Sprintf("%s%016X", TimelinePrefix(tli), uint64(lsn))) {
		if err != nil {
			return Span{}, err
		}
		if s, ok := ParseWALName(info.Name); ok {
			return s, nil
		}
	}
	return Span{}, nil
}

// BytesFile returns a plain file whose content is in memory.
func BytesFile(name string, content []byte) File {
	return File{Name: name, Content: strings.NewReader(string(content)), Bytes: int64(len(content))}
}
