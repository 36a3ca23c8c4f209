package wal

import "walproxy/protocol"

// MaxLSN bounds the positions that a Walker accepts; no server gets anywhere near it.
const MaxLSN protocol.LSN = 1 << 62

// DefaultMaxRecordBytes is the longest record that a Walker holds in memory by default. A full record of page images (33
// blocks) is 270 kB; what is longer is a logical message or a commit with very many subtransactions.
const DefaultMaxRecordBytes = 1 << 20

// Options says what is known of the WAL that a Walker will see. The zero value fits a default cluster.
type Options struct {
	// Stream holds PageSize (0: DefaultPageSize) and SegmentSize (0: DefaultSegmentSize), and the rest as far as known.
	Stream
	// MaxRecordBytes bounds the memory of a walker (0: DefaultMaxRecordBytes). Longer records come as fragments.
	MaxRecordBytes int
	// AtRecord promises that WAL which starts within a page starts with a record. Version must be known.
	AtRecord bool
}

func (o *Options) applyDefaults() {
	if o.PageSize < MinPageSize || o.PageSize > MaxPageSize || o.PageSize&(o.PageSize-1) != 0 {
		o.PageSize = DefaultPageSize
	}
	if !protocol.ValidSegmentSize(uint64(o.SegmentSize)) {
		o.SegmentSize = DefaultSegmentSize
	}
	if o.MaxRecordBytes <= 0 {
		o.MaxRecordBytes = DefaultMaxRecordBytes
	}
	o.MaxRecordBytes = max(o.MaxRecordBytes, RecordHeaderBytes)
}

type state uint8

const (
	atBoundary state = iota // at a page header, perhaps in one: then its bytes so far are in page
	inPiece                 // in something that goes up to piece.end at most, without page headers in it
	inContent               // behind a page header, at a record or in one
)

// Walker takes contiguous WAL apart. Feed it a chunk, then call Next until it says that nothing is left:
//
//	err := w.Feed(chunk)
//	for ev, ok := w.Next(); ok; ev, ok = w.Next() {
//		...
//	}
//
// The events do not depend on how the WAL is cut into chunks. What is incomplete at the end of a chunk is held back for
// its rest, or handed out by Flush. Whatever is not WAL comes as KindRaw up to the end of its page, and the next page with a
// valid header is walked again as if it were the first one. Not safe for concurrent use; allocates nothing once its buffers have grown.
type Walker struct {
	options Options
	known   Stream // options.Stream and what the pages since the last raw bytes said
	chunk   []byte // what is left of it
	pos     protocol.LSN
	state   state
	header  PageHeader
	page    held // a piece, or a page header
	piece   piece
	tailEnd protocol.LSN // end of the segment that a SWITCH closed, else 0
	last    protocol.LSN // start of the last complete record, 0 if not known
	record  partial
	event   Event
}

// held is bytes that were kept over the end of a chunk.
type held struct {
	bytes   []byte
	emitted int          // as many were handed out by Flush
	start   protocol.LSN // of bytes[emitted]
}

type piece struct {
	kind Kind
	rule Rule
	end  protocol.LSN
}

// partial is the record that is not complete yet.
type partial struct {
	held
	active  bool
	checked bool         // the header is complete and valid
	long    bool         // longer than MaxRecordBytes: not held, comes in pieces
	begin   protocol.LSN // where the record starts
	total   uint32       // xl_tot_len, once 4 bytes are there
	got     uint64       // content bytes seen so far, padding included
	end     protocol.LSN // behind the last of them
}

// NewWalker returns a walker of WAL that starts at start, anywhere in a page.
func NewWalker(start protocol.LSN, options Options) *Walker {
	w := &Walker{options: options}
	w.options.applyDefaults()
	w.Reset(start)
	return w
}

// Reset forgets everything but the options and buffers: the next chunk starts at start.
func (w *Walker) Reset(start protocol.LSN) {
	*w = Walker{
		options: w.options, known: w.options.Stream, pos: start,
		page: held{bytes: w.page.bytes[:0]}, record: partial{held: held{bytes: w.record.bytes[:0]}},
	}
	offset := uint64(start) % uint64(w.options.PageSize)
	switch {
	case offset == 0:
		w.state = atBoundary
	case w.options.AtRecord && w.known.Version.Known() && offset%8 == 0 && offset >= ShortHeaderBytes:
		w.state = inContent
	default:
		w.begin(KindFragment, RuleNone, start, w.pageEnd())
	}
}

// Feed hands over the WAL that follows the last chunk. chunk is read by Next and must not change until Next has
// returned false. Errors: ErrUndrained, ErrPosition; chunk is then ignored.
func (w *Walker) Feed(chunk []byte) error {
	if len(w.chunk) > 0 {
		return ErrUndrained
	}
	if w.pos > MaxLSN || protocol.LSN(len(chunk)) > MaxLSN-w.pos {
		return ErrPosition
	}
	w.chunk = chunk
	return nil
}

// Position returns the LSN behind the last byte that went into events or is held back.
func (w *Walker) Position() protocol.LSN { return w.pos }

// HeldStart returns the LSN of the first byte that is held back, and Position if none is. Everything before it went into
// events; of what lies behind, valid page headers did.
func (w *Walker) HeldStart() protocol.LSN {
	switch {
	case len(w.record.bytes) > w.record.emitted:
		return w.record.start
	case len(w.page.bytes) > w.page.emitted:
		return w.page.start
	}
	return w.pos
}

// Held returns how many bytes are held back, page headers that went into events not counted.
func (w *Walker) Held() int {
	return len(w.page.bytes) - w.page.emitted + len(w.record.bytes) - w.record.emitted
}

type progress uint8

const (
	starved progress = iota // needs more bytes
	moved                   // try again
	emitted                 // event is set
)

// Next returns the next event, or false when the chunk is used up. The event belongs to the walker and is valid until the next call.
func (w *Walker) Next() (*Event, bool) {
	for {
		var p progress
		switch w.state {
		case inContent:
			p = w.stepContent()
		case inPiece:
			p = w.stepPiece()
		default:
			p = w.stepBoundary()
		}
		switch p {
		case emitted:
			return &w.event, true
		case starved:
			return nil, false
		}
	}
}

// Flush returns what is held back, as fragments or raw pieces, and false when nothing is. The walker stays in step: the rest
// of a record that was torn this way comes as KindFragment, and so does the rest of a torn page header.
func (w *Walker) Flush() (*Event, bool) {
	if r := &w.record; len(r.bytes) > r.emitted {
		w.emitHeld(KindFragment, RuleNone, &r.held, len(r.bytes), r.end)
		r.start = w.pos - protocol.LSN(len(w.page.bytes))
		return &w.event, true
	}
	if p := &w.page; len(p.bytes) > p.emitted {
		kind, rule := KindFragment, RuleNone
		if w.state == inPiece {
			kind, rule = w.pieceKind(p.bytes[p.emitted:])
		}
		w.emitHeld(kind, rule, p, len(p.bytes), w.pos)
		return &w.event, true
	}
	return nil, false
}

func (w *Walker) pageEnd() protocol.LSN { return w.pos.Next(uint64(w.options.PageSize)) }

func (w *Walker) atPageStart() bool { return uint64(w.pos)&uint64(w.options.PageSize-1) == 0 }

// take removes n bytes from the chunk.
func (w *Walker) take(n int) []byte {
	b := w.chunk[:n]
	w.chunk = w.chunk[n:]
	w.pos += protocol.LSN(n)
	return b
}

// settle sets the state for a position at which something has just ended.
func (w *Walker) settle() {
	switch {
	case w.atPageStart():
		w.state = atBoundary
	case w.tailEnd > w.pos:
		w.begin(KindSwitchTail, RuleNone, w.pos, w.pageEnd())
	default:
		w.state = inContent
	}
}

// emit sets the event.
func (w *Walker) emit(kind Kind, rule Rule, start, end protocol.LSN, data []byte) progress {
	w.event = Event{
		Kind: kind, Rule: rule, Version: w.known.Version, Timeline: w.known.Timeline, Start: start, End: end, Data: data,
	}
	return emitted
}

// emitHeld sets the event to what h holds up to upTo and has not handed out yet.
func (w *Walker) emitHeld(kind Kind, rule Rule, h *held, upTo int, end protocol.LSN) progress {
	p := w.emit(kind, rule, h.start, end, h.bytes[h.emitted:upTo])
	h.emitted, h.start = upTo, end
	return p
}

func (h *held) clear(start protocol.LSN) { h.bytes, h.emitted, h.start = h.bytes[:0], 0, start }
