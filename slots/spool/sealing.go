package spool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"path"

	"go.uber.org/zap"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/slots/fs"
)

// SealFunc appends to dst the sealed window that holds the same WAL as the live one with the header h, and the end of its
// timeline if that is among the frames. It has compared the WAL of both when it returns. The sequence may be read more than
// once; a frame is valid until the next one.
type SealFunc func(dst []byte, h link.WindowHeader, frames iter.Seq2[*link.Frame, error]) ([]byte, error)

// Seal replaces the files of windows that are complete by sealed ones, oldest first, as they become complete, until ctx ends.
// A window is complete when a later one is durable. Readers of the file that is replaced read it to its end. What goes wrong
// with one window is logged, and the window stays as it is: nothing is lost. One call at a time, which must end before Close.
func (l *Log) Seal(ctx context.Context, seal SealFunc) error {
	s := sealing{log: l, seal: seal}
	for ctx.Err() == nil {
		wake := l.completed.Wait()
		more, err := s.next(ctx)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			l.logger.Warn("a window cannot be sealed now; it stays as it is", errField(err))
		}
		if more {
			continue
		}
		select {
		case <-wake: // an error of the disk may be over then
		case <-ctx.Done():
		}
	}
	return nil
}

// sealing is the state of one Seal.
type sealing struct {
	log  *Log
	seal SealFunc
	buf  []byte // the sealed window
}

// next seals the oldest window that is complete and not sealed. It reports whether to look for another one at once: there was one,
// and if it could not be sealed, that is not for want of room or of a working disk.
func (s *sealing) next(ctx context.Context) (bool, error) {
	w, end := s.log.complete()
	if w == nil {
		return false, nil
	}
	err := s.encode(ctx, w, end)
	if err != nil {
		var version *link.VersionError
		if errors.Is(err, link.ErrCorrupt) || errors.As(err, &version) { // it will not be better next time
			w.unsealable.Store(true)
			return true, err
		}
		return false, err
	}
	err = s.log.replace(w, s.buf)
	return err == nil, err
}

// complete returns the oldest window that can be sealed, and the LSN behind its last byte.
func (l *Log) complete() (*window, protocol.LSN) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed != nil {
		return nil, 0
	}
	for _, line := range l.lines {
		for i, w := range line.windows {
			if w == l.durable || w == l.newest {
				return nil, 0
			}
			if w.header.Kind == link.WindowLive && w.ended.Load() && !w.unsealable.Load() {
				return w, line.endOf(i)
			}
		}
	}
	return nil, 0
}

// encode leaves the sealed form of w in s.buf and checks whether it may take its place.
func (s *sealing) encode(ctx context.Context, w *window, end protocol.LSN) (err error) {
	err = s.log.withFile(w, func(file fs.File, _ int64) error {
		s.buf, err = s.seal(s.buf[:0], w.header, w.each(ctx, file))
		return err
	})
	if err != nil {
		return err
	}
	h, err := link.ReadWindow(s.buf, nil)
	if err != nil {
		return fmt.Errorf("seal window at %s on timeline %d: %w", w.header.Start, w.header.Timeline, err)
	}
	want := w.header
	want.Kind, want.End, want.IndexOffset, want.IndexBytes = h.Kind, end, h.IndexOffset, h.IndexBytes
	if h != want {
		return fmt.Errorf("seal window at %s on timeline %d: %w: the result is the window %+v", w.header.Start, w.header.Timeline, link.ErrCorrupt, h)
	}
	return nil
}

// each yields the frames of a window that is complete, from file, until ctx ends.
func (w *window) each(ctx context.Context, file fs.File) iter.Seq2[*link.Frame, error] {
	return func(yield func(*link.Frame, error) bool) {
		r := NewFrames(file, link.WindowHeaderBytes, link.Cursor{ResetDistance: w.header.ResetDistance})
		var f link.Frame // one for all
		for {
			var err error
			f, _, err = r.Next(w.size.Load())
			switch {
			case errors.Is(err, io.EOF):
				return
			case err != nil:
				err = w.bad(r.offset, r.cursor.Next, err)
			default:
				err = ctx.Err()
			}
			if !yield(&f, err) || err != nil {
				return
			}
		}
	}
}

// replace puts content into the place of w's file, unless the window was removed meanwhile.
func (l *Log) replace(w *window, content []byte) error {
	h, err := link.DecodeWindowHeader(content)
	if err != nil {
		return err
	}
	l.retainMu.Lock() // a removed file must not come back
	defer l.retainMu.Unlock()
	line, i := l.place(w)
	if line == nil {
		return nil
	}
	if err := l.rename(w.path, content); err != nil {
		return fmt.Errorf("seal window %s: %w", w.path, full(err))
	}
	sealed := &window{path: w.path, header: h}
	sealed.size.Store(int64(h.IndexOffset))
	sealed.ended.Store(true)
	before, after := w.fileBytes(), sealed.fileBytes()
	l.mu.Lock()
	line.windows[i] = sealed
	l.state.Bytes += after - before
	total := l.state.Bytes
	l.mu.Unlock()
	l.metrics.sealedWindow(before, after, total)
	l.changed.Notify()
	l.logger.Debug("window sealed", lsnField(h.Start), zap.Uint32("tli", uint32(h.Timeline)), zap.Int64("bytes", after), zap.Int64("bytes_before", before))
	if err := l.syncDir(path.Dir(w.path)); err != nil { // after a loss of power the name may stand for either file
		return fmt.Errorf("seal window %s: sync directory: %w", w.path, err)
	}
	return nil
}

// place finds a window in the list. With retainMu held, only windows are added behind it.
func (l *Log) place(w *window) (*line, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if line := l.lineOf(w.header.Timeline); line != nil {
		for i := range line.windows {
			if line.windows[i] == w {
				return line, i
			}
		}
	}
	return nil, 0
}

// rename makes content durable beside name and gives it the name.
func (l *Log) rename(name string, content []byte) (err error) {
	temp := name + fs.TempSuffix
	defer func() {
		if err != nil {
			_ = l.fs.Remove(temp) // else the next Open does
		}
	}()
	file, err := l.fs.Create(temp)
	if err != nil {
		return err
	}
	if _, err = file.WriteAt(content, 0); err == nil && !l.noSync {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	return l.fs.Rename(temp, name)
}
