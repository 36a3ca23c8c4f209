package archive

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"walproxy/protocol"
	"walproxy/protocol/link"
)

// Reader gives the WAL of the archive, of any timeline and range. It holds one run of windows and the WAL of two
// windows in memory, remembers histories, and reads on in the object that it read last. Not safe for concurrent use.
type Reader struct {
	archive   *Archive
	object    objectReader
	open      string // name of the object in object; empty if none
	span      uint64 // of the objects here, as far as was seen: what is guessed next
	firstRead int64  // bytes asked for first of an object
	histories map[protocol.Timeline]protocol.History
}

// attempts is how often an object may be gone that was there a moment ago, because a larger one took its place.
const attempts = 3

// NewReader returns a Reader of the archive.
func (a *Archive) NewReader() *Reader {
	return &Reader{archive: a, object: objectReader{atOnce: runtime.GOMAXPROCS(0)}, span: uint64(a.id.SegmentSize),
		histories: map[protocol.Timeline]protocol.History{}}
}

// Read hands the WAL of a timeline from one LSN up to another to emit, in order and in pieces, each valid during emit only. Where
// the timeline's own objects lack WAL from before its fork, that of its ancestors is taken: it is the same, by the timeline's
// history. Every byte was compared with the checksum that its frame carries. To read a short range, no more than header,
// index and the windows that hold it are fetched, if whole objects are large.
//
// An error says how far emit got: *MissingError if the archive ends at its LSN; *GapError if WAL is missing there and there is more
// behind; *CorruptError; else emit's, or one of the store.
func (r *Reader) Read(ctx context.Context, tli protocol.Timeline, from, to protocol.LSN, emit func(protocol.LSN, []byte) error) error {
	r.firstRead = firstBytes
	if to-from < protocol.LSN(r.archive.id.SegmentSize)/4 {
		r.firstRead = MaxHeadBytes
	}
	next := from
	count := func(lsn protocol.LSN, wal []byte) error {
		if err := emit(lsn, wal); err != nil {
			return &emitError{err}
		}
		next = lsn + protocol.LSN(len(wal))
		return nil
	}
	bad := map[string]error{} // objects that cannot be read
	for gone := 0; next < to; {
		before := next
		err := r.readOne(ctx, tli, next, to, bad, count)
		var fromEmit *emitError
		switch {
		case errors.As(err, &fromEmit):
			return fromEmit.err
		case errors.Is(err, link.ErrCorrupt) && r.open != "" && bad[r.open] == nil:
			bad[r.open] = err // another one may hold the same
			r.open = ""
		case errors.Is(err, ErrNotExist) && r.open != "" && gone < attempts: // deleted while it was read
			r.open = ""
			gone++
		case err != nil:
			return err
		case next == before:
			return &CorruptError{Name: r.open, Timeline: tli, LSN: next, Err: errors.New("the object holds less than it says")}
		}
	}
	return nil
}

// emitError is an error of whoever takes the WAL.
type emitError struct{ err error }

func (e *emitError) Error() string { return e.err.Error() }

// readOne reads from the one object that reaches furthest, on tli or an ancestor.
func (r *Reader) readOne(ctx context.Context, tli protocol.Timeline, from, to protocol.LSN, bad map[string]error, emit func(protocol.LSN, []byte) error) error {
	var behind protocol.LSN // where a descendant's WAL goes on
	for {
		err := r.find(ctx, tli, from, bad)
		if err == nil {
			return r.object.read(ctx, from, min(to, r.object.header.End), emit)
		}
		var gap *GapError
		switch {
		case errors.As(err, &gap):
			if behind == 0 || gap.To < behind {
				behind = gap.To
			}
		case !errors.Is(err, ErrNotExist):
			return err
		}
		parent, fork, historyErr := r.parent(ctx, tli, from)
		if historyErr != nil {
			return historyErr
		}
		if parent == 0 {
			if behind != 0 {
				err = &GapError{Timeline: tli, From: from, To: behind}
			}
			return err
		}
		tli, to = parent, min(to, fork)
	}
}

func isGap(err error) bool {
	var gap *GapError
	return errors.As(err, &gap)
}

// parent returns the ancestor of tli whose WAL is tli's at lsn, and where that ends; 0 if lsn lies behind tli's fork.
func (r *Reader) parent(ctx context.Context, tli protocol.Timeline, lsn protocol.LSN) (protocol.Timeline, protocol.LSN, error) {
	h, err := r.History(ctx, tli)
	if errors.Is(err, ErrNotExist) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	at := h.At(lsn)
	if at == tli {
		return 0, 0, nil
	}
	end, _, _ := h.End(at)
	return at, end, nil
}

// History returns the ancestry of a timeline; ErrNotExist if its file is not in the archive.
func (r *Reader) History(ctx context.Context, tli protocol.Timeline) (protocol.History, error) {
	if h, ok := r.histories[tli]; ok || tli == 1 {
		h.Timeline = tli
		return h, nil
	}
	content, err := r.archive.History(ctx, tli)
	if err != nil {
		return protocol.History{}, err
	}
	h, err := protocol.ParseHistory(tli, content)
	if err != nil {
		return protocol.History{}, &CorruptError{Name: FileName(protocol.HistoryName(tli)), Timeline: tli, Err: err}
	}
	r.histories[tli] = h
	return h, nil
}

// Known returns the ancestry of a timeline if it was needed so far: if its own objects did not hold all that was read of it.
func (r *Reader) Known(tli protocol.Timeline) (protocol.History, bool) {
	h, ok := r.histories[tli]
	return h, ok
}

// find makes r.object one that holds lsn of tli itself.
//
// Errors: *MissingError, *GapError, *CorruptError if the only object that holds lsn cannot be read.
func (r *Reader) find(ctx context.Context, tli protocol.Timeline, lsn protocol.LSN, bad map[string]error) error {
	if h := &r.object.header; r.open != "" && h.Timeline == tli && h.Start <= lsn && lsn < h.End {
		return nil
	}
	guess := Span{Timeline: tli, Start: lsn.Floor(r.span), End: lsn.Next(r.span)}
	if bad[guess.Name()] == nil {
		if err := r.openObject(ctx, guess); !errors.Is(err, ErrNotExist) {
			return err
		}
	}
	for range attempts {
		span, err := r.archive.Locate(ctx, tli, lsn, func(s Span) bool { return bad[s.Name()] == nil })
		if err != nil {
			return worse(err, tli, lsn, bad)
		}
		if err := r.openObject(ctx, span); !errors.Is(err, ErrNotExist) {
			return err
		}
	}
	return &StoreError{Op: "get", Name: TimelinePrefix(tli), Err: fmt.Errorf("%w: objects are listed and not there", ErrUnavailable)}
}

// worse returns the error of a bad object that holds lsn of tli if err says that there is none, else err.
func worse(err error, tli protocol.Timeline, lsn protocol.LSN, bad map[string]error) error {
	for name, damage := range bad {
		if s, _ := ParseWALName(name); s.Timeline == tli && s.Start <= lsn && lsn < s.End && (errors.Is(err, ErrNotExist) || isGap(err)) {
			return damage
		}
	}
	return err
}

// openObject opens the object of a span. r.open is its name also if it cannot be read.
func (r *Reader) openObject(ctx context.Context, span Span) error {
	name := span.Name()
	r.open = ""
	err := r.object.open(ctx, name, r.firstRead, r.archive.get(name))
	if errors.Is(err, ErrNotExist) {
		return err
	}
	r.open = name
	if err != nil {
		return err
	}
	h := &r.object.header
	if h.SystemID != r.archive.id.SystemID || h.SegmentSize != r.archive.id.SegmentSize {
		return fmt.Errorf("read object %s: %w", name, &IdentityError{Have: r.archive.id, Got: h.Identity})
	}
	if h.Span != span {
		return &CorruptError{Name: name, Timeline: span.Timeline, LSN: span.Start, Err: errors.New("the header says otherwise")}
	}
	if length := uint64(h.End - h.Start); length&(length-1) == 0 && uint64(h.Start)&(length-1) == 0 {
		r.span = length
	}
	return nil
}

// Locate returns the span of the object of tli that holds lsn and reaches furthest, among those that take likes; nil likes all.
//
// Errors: *GapError if there are only objects behind lsn; *MissingError if there is none there either; those of the store.
func (a *Archive) Locate(ctx context.Context, tli protocol.Timeline, lsn protocol.LSN, take func(Span) bool) (Span, error) {
	var best Span
	// No object crosses a cell's edge.
	floor := lsn.Floor(max(uint64(a.id.SegmentSize), link.MaxResetDistance))
	after := fmt.Sprintf("%s%016X", TimelinePrefix(tli), uint64(floor)) // sorts before all names that begin with it
	for info, err := range a.store.List(ctx, TimelinePrefix(tli), after) {
		if err != nil {
			return Span{}, err
		}
		s, ok := ParseWALName(info.Name)
		if !ok || take != nil && !take(s) {
			continue
		}
		if s.Start > lsn {
			if best.End == 0 {
				return Span{}, &GapError{Timeline: tli, From: lsn, To: s.Start}
			}
			break
		}
		if lsn < s.End && s.End > best.End {
			best = s
		}
	}
	if best.End == 0 {
		return Span{}, &MissingError{Timeline: tli, LSN: lsn}
	}
	return best, nil
}
