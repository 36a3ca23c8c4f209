package archive

import (
	"errors"
	"fmt"
	"io"

	"walproxy/protocol"
	"walproxy/protocol/link"
)

// Builder gathers sealed windows into an object: Begin, Add for each window, Finish. It may be used again after the next Begin.
// What it gathers lies in memory up to spillBytes, and beyond in a temporary file without a name. Not safe for concurrent use.
type Builder struct {
	header Header
	next   protocol.LSN // behind the last window
	ended  bool         // the timeline
	body   spill
}

// Begin begins an object of the cluster id. What was gathered before is gone.
func (b *Builder) Begin(id Identity) {
	b.header = Header{Identity: id, Windows: b.header.Windows[:0]}
	b.next, b.ended = 0, false
	b.body.reset()
}

// Add appends a sealed window, the whole of its file, which must follow the one before it directly. It is checked from its
// first byte to its last, but not decoded; it is not retained.
//
// Errors: *IdentityError if it is another cluster's; one of class link.ErrCorrupt if it is not whole; *GapError if it does not
// follow; one of the temporary file. Nothing has changed after any but the last.
func (b *Builder) Add(window []byte) error {
	w := Window{Bytes: uint32(len(window))}
	h, err := link.ReadWindow(window, func(f *link.Frame) error {
		if f.Codec != link.CodecTimelineEnd {
			w.RawSum = link.CombineSums(w.RawSum, f.RawSum, uint64(f.RawLen))
			w.RawBytes += f.RawLen
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("add window at %s on timeline %d: %w", h.Start, h.Timeline, err)
	}
	if err := b.check(h, w); err != nil {
		return err
	}
	if err := b.body.write(window); err != nil {
		return fmt.Errorf("add window at %s on timeline %d: %w", h.Start, h.Timeline, err)
	}
	if len(b.header.Windows) == 0 {
		b.header.Span = Span{Timeline: h.Timeline, Start: h.Start}
	}
	w.Start = h.Start
	b.header.Windows = append(b.header.Windows, w)
	b.header.RawSum = link.CombineSums(b.header.RawSum, w.RawSum, uint64(w.RawBytes))
	b.next, b.header.End = w.End(), h.End
	b.ended = h.End != w.End()
	return nil
}

// check reports why a window may not follow.
func (b *Builder) check(h link.WindowHeader, w Window) error {
	got := Identity{SystemID: h.SystemID, Major: b.header.Major, SegmentSize: h.SegmentSize, WALBlockSize: h.WALBlockSize}
	first := len(b.header.Windows) == 0
	switch {
	case got != b.header.Identity:
		return &IdentityError{Have: b.header.Identity, Got: got}
	case w.RawBytes == 0 || h.End <= h.Start:
		return &link.CorruptError{Timeline: h.Timeline, LSN: h.Start, What: "the window holds no WAL of its timeline"}
	case !first && (h.Timeline != b.header.Timeline || h.Start != b.next || b.ended):
		return &GapError{Timeline: b.header.Timeline, From: b.next, To: h.Start}
	case !first && (h.End-b.header.Start > MaxObjectWAL || len(b.header.Windows) == MaxWindows):
		return fmt.Errorf("add window at %s on timeline %d: the object is full", h.Start, h.Timeline)
	}
	return nil
}

// Span returns what was gathered so far; its End is zero if there is nothing.
func (b *Builder) Span() Span { return b.header.Span }

// Finish returns the object, which is valid until the next Begin or Close.
func (b *Builder) Finish() (*Object, error) {
	if len(b.header.Windows) == 0 {
		return nil, errors.New("finish object: it has no window")
	}
	h := b.header
	offset := int64(h.HeadBytes())
	for i := range h.Windows {
		h.Windows[i].Offset = offset
		offset += int64(h.Windows[i].Bytes)
	}
	h.Bytes = offset
	return &Object{Header: h, head: h.Append(nil), body: &b.body}, nil
}

// Close releases the temporary file, if there is one. It is idempotent.
func (b *Builder) Close() error { return b.body.close() }

// Object is a WAL object as it goes into a store.
type Object struct {
	Header Header
	head   []byte
	body   io.ReaderAt
}

// ReadAt implements io.ReaderAt.
func (o *Object) ReadAt(p []byte, offset int64) (int, error) {
	return readJoined(p, offset, o.Header.Bytes, o.head, o.body)
}
