package archive

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/recompress"
)

const (
	// decodersAtOnce is how many windows are decoded side by side at most: each takes a decoder and the WAL of a window.
	decodersAtOnce = 2
	// decodeAheadBytes is the most WAL that a window may hold to be decoded as a whole, before it is handed out.
	decodeAheadBytes = 8 << 20
)

// decoder decodes windows. The zero value is ready to use. Not safe for concurrent use.
type decoder struct {
	reader *recompress.Reader
	frame  []byte // WAL of one frame
	wal    []byte // of a window that was decoded as a whole
}

// task is a window of which the WAL from one LSN up to another is wanted.
type task struct {
	window   []byte
	of       Window
	from, to protocol.LSN
}

// decode hands out the WAL of windows that follow each other: several are decoded side by side if they are small.
func (r *objectReader) decode(tasks []task, emit func(protocol.LSN, []byte) error) error {
	atOnce := min(r.atOnce, len(tasks), len(r.decoders))
	for _, t := range tasks {
		if t.of.RawBytes > decodeAheadBytes {
			atOnce = 1
		}
	}
	if atOnce > 1 {
		return r.decodeAtOnce(tasks, atOnce, emit)
	}
	for _, t := range tasks {
		if err := r.decoders[0].decode(r.name, &r.header, t, emit); err != nil {
			return err
		}
	}
	return nil
}

// errStopped ends decoding that nobody waits for any more.
var errStopped = errors.New("stopped")

// decodeAtOnce has n decoders take turns, and hands out what they make in order. They have ended when it returns.
func (r *objectReader) decodeAtOnce(tasks []task, n int, emit func(protocol.LSN, []byte) error) (err error) {
	var running sync.WaitGroup
	var stopped atomic.Bool
	made, taken := make([]chan error, n), make([]chan struct{}, n)
	for i := range n {
		made[i], taken[i] = make(chan error), make(chan struct{})
		running.Go(func() {
			d := &r.decoders[i]
			for k := i; k < len(tasks); k += n {
				d.wal = slices.Grow(d.wal[:0], int(tasks[k].of.RawBytes))
				made[i] <- d.decode(r.name, &r.header, tasks[k], func(_ protocol.LSN, wal []byte) error {
					if d.wal = append(d.wal, wal...); stopped.Load() {
						return errStopped
					}
					return nil
				})
				<-taken[i]
			}
		})
	}
	for k, t := range tasks {
		i := k % n
		failed := <-made[i]
		if wal := r.decoders[i].wal; err == nil && len(wal) > 0 { // also what lies before damage
			err = emit(t.from, wal)
		}
		if err == nil {
			err = failed
		}
		stopped.Store(err != nil)
		taken[i] <- struct{}{}
	}
	running.Wait()
	return err
}

// decode hands out the wanted WAL of a window of the object called name, piece by piece.
func (d *decoder) decode(name string, of *Header, t task, emit func(protocol.LSN, []byte) error) (err error) {
	bad := func(lsn protocol.LSN, err error) error { return damaged(name, of.Timeline, lsn, err) }
	h, err := link.DecodeWindowHeader(t.window)
	if err != nil {
		return bad(t.of.Start, err)
	}
	if h.SystemID != of.SystemID || h.Timeline != of.Timeline || h.Start != t.of.Start || h.Kind != link.WindowSealed ||
		h.SegmentSize != of.SegmentSize || h.FileBytes() != int64(len(t.window)) {
		return bad(t.of.Start, errors.New("the window is not the one that the index names"))
	}
	index, err := link.DecodeIndex(h, t.window[h.IndexOffset:])
	if err != nil {
		return bad(t.of.Start, err)
	}
	if d.reader == nil {
		if d.reader, err = recompress.NewReader(recompress.Options{ResetDistance: link.MaxResetDistance}); err != nil {
			return err
		}
	}
	next := t.from
	for entry := index.Enter(t.from); ; entry = index.Enter(index.At(entry).Start - 1) {
		var emitErr error
		_, err := link.ReadWindow(t.window, func(f *link.Frame) error {
			if f.Start < index.At(entry).Start || next >= t.to || f.Codec == link.CodecTimelineEnd {
				return nil
			}
			var err error
			if d.frame, err = d.reader.Decode(d.frame[:0], f); err != nil || f.End() <= next {
				return err
			}
			begin, end := next, min(f.End(), t.to)
			next = end
			emitErr = emit(begin, d.frame[begin-f.Start:end-f.Start])
			return emitErr
		})
		var unseen *link.UnseenStreamError
		switch {
		case emitErr != nil:
			return emitErr
		case errors.As(err, &unseen) && entry > 0 && next == t.from:
			continue
		case err != nil:
			return bad(next, err)
		case next < t.to:
			return bad(next, errors.New("the window ends early"))
		}
		return nil
	}
}
