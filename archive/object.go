package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"walproxy/protocol"
	"walproxy/protocol/link"
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
	// decoders decode side by side; there is one at least. Each makes its buffers when it is used first.
	decoders [decodersAtOnce]decoder
	atOnce   int // how many of them are used; 0 is 1
}

// open makes r read the object called name, of which it fetches the first bytes.
func (r *objectReader) open(ctx context.Context, name string, first int64, fetch fetch) (err error) {
	r.name, r.fetch, r.at = name, fetch, 0
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
	for i := first; i < behind; {
		if _, err := r.window(ctx, i, behind); err != nil {
			return err
		}
		var tasks []task // of windows that are here
		for ; i < behind && r.here(r.header.Windows[i]); i++ {
			w := r.header.Windows[i]
			tasks = append(tasks, task{
				window: r.run[w.Offset-r.at:][:w.Bytes], of: w, from: max(from, w.Start), to: min(to, w.End(), r.header.End),
			})
		}
		if err := r.decode(tasks, emit); err != nil {
			return err
		}
	}
	return nil
}

// here reports whether a window is in r.run.
func (r *objectReader) here(w Window) bool {
	return w.Offset >= r.at && w.Offset+int64(w.Bytes) <= r.at+int64(len(r.run))
}

// window returns the bytes of window i; those up to the window behind are wanted later.
func (r *objectReader) window(ctx context.Context, i, behind int) ([]byte, error) {
	w := r.header.Windows[i]
	if r.here(w) {
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
