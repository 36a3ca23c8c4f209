package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/recompress"
)

const (
	// firstBytes is what is asked for first when WAL of an object is read: mostly all of it.
	firstBytes = 8 << 20
	// runBytes is how much is asked for at a time after that; one window, if that is larger.
	runBytes = 8 << 20
)

// fetch appends length bytes of an object from offset on, or fewer at its end.
type fetch func(ctx context.Context, dst []byte, offset, length int64) ([]byte, error)

// objectReader reads the WAL of one object after another. It holds one run of windows and a decoder. Not safe for concurrent
// use.
type objectReader struct {
	name   string
	fetch  fetch
	header Header
	run    []byte // bytes of the object
	at     int64  // where run lies in it
	reader *recompress.Reader
	wal    []byte // of one frame
}

// open makes r read the object called name, of which it fetches the first bytes.
func (r *objectReader) open(ctx context.Context, name string, first int64, fetch fetch) (err error) {
	r.name, r.fetch, r.at = name, fetch, 0
	if r.reader == nil {
		if r.reader, err = recompress.NewReader(recompress.Options{ResetDistance: link.MaxResetDistance}); err != nil {
			return err
		}
	}
	if r.run, err = fetch(ctx, r.run[:0], 0, max(first, MaxHeadBytes)); err != nil {
		r.name = ""
		return err
	}
	if r.header, err = DecodeHeader(r.run); err != nil {
		r.name = ""
		return damaged(name, 0, 0, err)
	}
	return nil
}

// damaged makes a *CorruptError of what decoding returned, unless it is of another version.
func damaged(name string, tli protocol.Timeline, lsn protocol.LSN, err error) error {
	var version *VersionError
	var linkVersion *link.VersionError
	if errors.As(err, &version) || errors.As(err, &linkVersion) {
		return fmt.Errorf("read object %s: %w", name, err)
	}
	return &CorruptError{Name: name, Timeline: tli, LSN: lsn, Err: err}
}

// read hands the WAL from one LSN up to another, which lie within the object's span, to emit, piece by piece and in order. A
// piece is valid during emit only.
func (r *objectReader) read(ctx context.Context, from, to protocol.LSN, emit func(protocol.LSN, []byte) error) error {
	first, behind := r.header.Find(from, to)
	for i := first; i < behind; i++ {
		w := r.header.Windows[i]
		window, err := r.window(ctx, i, behind)
		if err != nil {
			return err
		}
		end := min(to, w.End(), r.header.End)
		if err := r.decode(window, w, max(from, w.Start), end, emit); err != nil {
			return err
		}
	}
	return nil
}

// window returns the bytes of window i; those up to the window behind are wanted later.
func (r *objectReader) window(ctx context.Context, i, behind int) ([]byte, error) {
	w := r.header.Windows[i]
	if w.Offset >= r.at && w.Offset+int64(w.Bytes) <= r.at+int64(len(r.run)) {
		return r.run[w.Offset-r.at:][:w.Bytes], nil
	}
	length := int64(w.Bytes)
	for i++; i < behind && length+int64(r.header.Windows[i].Bytes) <= runBytes; i++ {
		length += int64(r.header.Windows[i].Bytes)
	}
	run, err := r.fetch(ctx, r.run[:0], w.Offset, length)
	if err != nil {
		r.run = r.run[:0]
		return nil, err
	}
	r.run, r.at = run, w.Offset
	if int64(len(run)) < int64(w.Bytes) {
		return nil, damaged(r.name, r.header.Timeline, w.Start, fmt.Errorf("the object ends at byte %d of %d", w.Offset+int64(len(run)), r.header.Bytes))
	}
	return run[:w.Bytes], nil
}

// decode hands out the WAL of a window from one LSN up to another.
func (r *objectReader) decode(b []byte, w Window, from, to protocol.LSN, emit func(protocol.LSN, []byte) error) error {
	bad := func(lsn protocol.LSN, err error) error { return damaged(r.name, r.header.Timeline, lsn, err) }
	h, err := link.DecodeWindowHeader(b)
	if err != nil {
		return bad(w.Start, err)
	}
	if h.SystemID != r.header.SystemID || h.Timeline != r.header.Timeline || h.Start != w.Start || h.Kind != link.WindowSealed ||
		h.SegmentSize != r.header.SegmentSize || h.FileBytes() != int64(len(b)) {
		return bad(w.Start, errors.New("the window is not the one that the index names"))
	}
	index, err := link.DecodeIndex(h, b[h.IndexOffset:])
	if err != nil {
		return bad(w.Start, err)
	}
	next := from
	for entry := index.Enter(from); ; entry = index.Enter(index.At(entry).Start - 1) {
		var emitErr error
		_, err := link.ReadWindow(b, func(f *link.Frame) error {
			if f.Start < index.At(entry).Start || next >= to || f.Codec == link.CodecTimelineEnd {
				return nil
			}
			var err error
			if r.wal, err = r.reader.Decode(r.wal[:0], f); err != nil || f.End() <= next {
				return err
			}
			begin, end := next, min(f.End(), to)
			next = end
			emitErr = emit(begin, r.wal[begin-f.Start:end-f.Start])
			return emitErr
		})
		var unseen *link.UnseenStreamError
		switch {
		case emitErr != nil:
			return emitErr
		case errors.As(err, &unseen) && entry > 0 && next == from:
			continue
		case err != nil:
			return bad(next, err)
		case next < to:
			return bad(next, errors.New("the window ends early"))
		}
		return nil
	}
}

// get returns the fetch of a stored object.
func (a *Archive) get(name string) fetch {
	return func(ctx context.Context, dst []byte, offset, length int64) ([]byte, error) {
		return a.store.Get(ctx, dst, name, offset, length)
	}
}

// firstDifference returns the index of the first byte that differs in two slices of the same length.
func firstDifference(a, b []byte) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return len(a)
}

// fetch is the fetch of an object that is not stored yet.
func (o *Object) fetch(_ context.Context, dst []byte, offset, length int64) ([]byte, error) {
	from := len(dst)
	dst = append(dst, make([]byte, max(0, min(length, o.Header.Bytes-offset)))...)
	if n, err := o.ReadAt(dst[from:], offset); n < len(dst)-from {
		return dst[:from], err
	}
	return dst, nil
}

// contains reports whether content holds want at offset.
func contains(content io.ReaderAt, offset int64, want []byte) (bool, error) {
	got := make([]byte, len(want))
	if n, err := content.ReadAt(got, offset); n < len(got) {
		return false, err
	}
	return bytes.Equal(got, want), nil
}
