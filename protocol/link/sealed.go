package link

import (
	"fmt"

	"walproxy/protocol"
)

// WindowBuilder writes a sealed window into memory: Begin, then Add for each frame, then Finish. The zero value is ready to
// use, and again after the next Begin, with its memory kept. Not safe for concurrent use.
type WindowBuilder struct {
	order   windowOrder
	buf     []byte
	from    int // of the window in buf
	cursor  Cursor
	entries []byte
	indexed protocol.LSN // start of the frame of the last entry
}

// windowOrder knows which frame may follow in a window.
type windowOrder struct {
	header WindowHeader
	next   protocol.LSN // behind the last frame
	stream uint32       // the one met last
	ended  bool         // the timeline has
}

// follow takes f as the next frame.
func (o *windowOrder) follow(f *Frame) error {
	isEnd := f.Codec == CodecTimelineEnd
	distance := uint64(o.header.ResetDistance)
	room := distance - uint64(o.header.Start)&(distance-1)
	switch {
	case o.ended || f.Timeline != o.header.Timeline || f.Start != o.next && !(isEnd && f.Start < o.next):
		return f.corrupt(fmt.Sprintf("the frame does not follow %s on timeline %d", o.next, o.header.Timeline))
	case !isEnd && uint64(f.Start-o.header.Start)+uint64(f.RawLen) > room:
		return f.corrupt("the frame leaves its window")
	case f.Continues && (o.stream == 0 || f.Stream != o.stream):
		return f.corrupt("the frame continues another stream than the last one")
	}
	o.next, o.ended = f.End(), isEnd
	if id := f.StreamID(); id != 0 {
		o.stream = id
	}
	return nil
}

// Begin begins a window behind dst, which the builder owns until Finish. Of h, Kind, End, IndexOffset and IndexBytes do not
// matter.
func (b *WindowBuilder) Begin(dst []byte, h WindowHeader) {
	b.order, b.from = windowOrder{header: h, next: h.Start}, len(dst)
	b.buf = append(dst, make([]byte, WindowHeaderBytes)...)
	b.cursor = Cursor{ResetDistance: h.ResetDistance}
	b.entries = b.entries[:0]
}

// Add appends the sealed frame f, whose payload may be reused on return.
//
// Errors: *CorruptError if f does not follow the frame before it, continues another stream than the last one, or leaves the
// window; nothing has changed then.
func (b *WindowBuilder) Add(f *Frame) error {
	offset := len(b.buf) - b.from
	if uint64(offset)+MaxFrameHeaderBytes+uint64(len(f.Payload))+MaxIndexBytes > MaxWindowBytes {
		return f.corrupt("the window is too large")
	}
	if err := b.order.follow(f); err != nil {
		return err
	}
	if b.wantsEntry(f) {
		relative := uint32(f.Start - b.order.header.Start)
		if f.Codec == CodecTimelineEnd { // it may lie before the window
			relative = 0
		}
		b.entries = le.AppendUint32(b.entries, relative)
		b.entries = le.AppendUint32(b.entries, uint32(offset))
		b.entries = append(b.entries, byte(f.Codec)|f.flags())
		b.entries = le.AppendUint32(b.entries, b.cursor.Stream)
		b.indexed = f.Start
	}
	b.buf = b.cursor.Append(b.buf, f)
	return nil
}

// wantsEntry reports whether f goes into the index: the first frame, the end of the timeline, frames that can be decoded alone
// as far as the index has room, and of the others one every now and then, which shows a reader where to stop.
func (b *WindowBuilder) wantsEntry(f *Frame) bool {
	count := len(b.entries) / indexEntryBytes
	switch {
	case count == 0 || f.Codec == CodecTimelineEnd:
		return true
	case f.Continues:
		return f.Start-b.indexed >= continuedSpacing
	}
	return count < indexSlack+int((f.Start-b.order.header.Start)/indexSpacing)
}

// Finish appends the index, completes the header and returns the buffer given to Begin with the window behind it.
//
// Errors: *CorruptError if the window has no frame.
func (b *WindowBuilder) Finish() ([]byte, error) {
	h := b.order.header
	if len(b.entries) == 0 {
		return nil, &CorruptError{Timeline: h.Timeline, LSN: h.Start, What: "a window without a frame"}
	}
	h.Kind, h.End, h.IndexOffset = WindowSealed, b.order.next, uint64(len(b.buf)-b.from)
	h.IndexBytes = uint32(indexFixedBytes + len(b.entries))
	index := len(b.buf)
	b.buf = le.AppendUint32(b.buf, uint32(len(b.entries)/indexEntryBytes))
	b.buf = append(b.buf, b.entries...)
	b.buf = le.AppendUint32(b.buf, indexChecksum(h, b.buf[index:]))
	h.Append(b.buf[b.from:b.from]) // in place of what Begin left
	out := b.buf
	b.buf = nil
	return out, nil
}

// ReadWindow checks the sealed window b from its first byte to its last: header, every frame and its place, the index. It shows
// each frame to visit, if there is one; the payload is a slice of b. It ends with the first error, visit's included.
//
// Errors: ErrShort if the file is cut off; *VersionError; one of class ErrCorrupt, a *CorruptError with the LSN for all but the
// header.
func ReadWindow(b []byte, visit func(*Frame) error) (WindowHeader, error) {
	h, err := DecodeWindowHeader(b)
	if err != nil {
		return h, err
	}
	if h.Kind != WindowSealed {
		return h, &CorruptError{Timeline: h.Timeline, LSN: h.Start, What: "the window is not sealed"}
	}
	switch size := h.FileBytes(); {
	case int64(len(b)) < size:
		return h, ErrShort
	case int64(len(b)) > size:
		return h, &CorruptError{Timeline: h.Timeline, LSN: h.End, What: fmt.Sprintf("%d bytes behind the window", int64(len(b))-size)}
	}
	index, err := DecodeIndex(h, b[h.IndexOffset:])
	if err != nil {
		return h, err
	}
	return h, index.readFrames(b[:h.IndexOffset], visit)
}

// readFrames reads the frames of the file b, which ends where the index begins, and holds the index against them.
func (x Index) readFrames(b []byte, visit func(*Frame) error) error {
	h := x.header
	order := windowOrder{header: h, next: h.Start}
	at, entry := int64(WindowHeaderBytes), 0
	cursor := Cursor{ResetDistance: h.ResetDistance}
	for at < int64(len(b)) {
		stream := cursor.Stream
		f, n, err := cursor.Decode(b[at:])
		if err != nil {
			return inWindow(h, order.next, err)
		}
		if err := order.follow(&f); err != nil {
			return err
		}
		if entry < x.Len() && x.At(entry).Offset == at {
			e := x.At(entry)
			if e.Start != f.Start || e.Codec != f.Codec || e.Starts != f.Starts || e.Continues != f.Continues || e.Stream != stream {
				return f.corrupt("the index says otherwise")
			}
			entry++
		}
		if visit != nil {
			if err := visit(&f); err != nil {
				return err
			}
		}
		at += int64(n)
	}
	if _, ends := x.Ends(); order.next != h.End || entry != x.Len() || ends != order.ended {
		return &CorruptError{Timeline: h.Timeline, LSN: order.next, What: "the index or the header says otherwise"}
	}
	return nil
}

// inWindow puts the place in the window into an error of a frame whose own header may be what is damaged.
func inWindow(h WindowHeader, lsn protocol.LSN, err error) error {
	what := err.Error()
	switch err := err.(type) {
	case *VersionError:
		return err
	case *CorruptError:
		what = err.What
	}
	return &CorruptError{Timeline: h.Timeline, LSN: lsn, What: what}
}
