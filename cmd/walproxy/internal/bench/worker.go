package bench

import (
	"bytes"
	"fmt"
	"time"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/recompress"
)

// worker encodes windows, decodes them and compares. Its contexts and buffers serve one window after the other.
type worker struct {
	options Options
	writer  *recompress.Writer
	reader  *recompress.Reader
	cutter  cutter
	cursor  link.Cursor
	emit    func(*link.Frame) error // appends to stored
	raw     []byte                  // the window
	stored  []byte                  // the window as a node would store it
	decoded []byte
	tally   *tally
}

func newWorker(o Options) (*worker, error) {
	w := &worker{options: o, cutter: cutter{cut: o.Cut}, tally: newTally()}
	var err error
	if w.writer, err = recompress.NewWriter(o.Recompress); err != nil {
		return nil, err
	}
	if w.reader, err = recompress.NewReader(o.Recompress); err != nil {
		return nil, err
	}
	w.emit = func(f *link.Frame) error {
		w.stored = w.cursor.Append(w.stored, f)
		w.tally.frames++
		if f.Codec == link.CodecRaw {
			w.tally.rawFrames++
		}
		return nil
	}
	return w, nil
}

// do measures one window. Errors: what reading and the Writer say; that the WAL came back changed goes into the tally.
func (w *worker) do(win window) error {
	if cap(w.raw) < win.bytes {
		w.raw = make([]byte, win.bytes)
	}
	w.raw = w.raw[:win.bytes]
	if err := win.stream.readAt(w.raw, win.start); err != nil {
		return err
	}
	ends, err := w.cutter.frameEnds(win, w.raw)
	if err != nil {
		return err
	}
	if err := w.encode(win, ends); err != nil {
		return err
	}
	w.tally.raw += int64(len(w.raw))
	w.tally.encoded += int64(len(w.stored))
	w.tally.windows++
	if err := w.decode(); err != nil {
		w.tally.differ(fmt.Errorf("%w: window at %s on timeline %d: %w", ErrDifferent, win.start, win.stream.timeline, err))
	} else if !bytes.Equal(w.decoded, w.raw) {
		w.tally.differ(fmt.Errorf("%w: window at %s on timeline %d", ErrDifferent, win.start, win.stream.timeline))
	}
	return nil
}

// encode leaves the window in stored: header and frames.
func (w *worker) encode(win window, ends []int) error {
	s, started := win.stream, time.Now()
	w.stored = link.WindowHeader{
		Kind: link.WindowLive, SystemID: s.systemID, Timeline: s.timeline, SegmentSize: s.segmentSize, WALBlockSize: s.pageSize,
		ResetDistance: w.options.Recompress.ResetDistance, Start: win.start,
	}.Append(w.stored[:0])
	w.cursor = link.Cursor{ResetDistance: w.options.Recompress.ResetDistance}
	at, begun := 0, started
	for _, end := range ends {
		err := w.writer.Write(s.timeline, win.start+protocol.LSN(at), w.raw[at:end], w.emit)
		if err == nil {
			err = w.writer.Flush(w.emit)
		}
		if err != nil {
			return fmt.Errorf("encode WAL at %s: %w", win.start+protocol.LSN(at), err)
		}
		at = end
		now := time.Now()
		w.tally.encodeTimes.add(now.Sub(begun))
		begun = now
	}
	w.tally.encode += begun.Sub(started)
	return nil
}

// decode leaves the WAL of stored in decoded.
func (w *worker) decode() error {
	started := time.Now()
	begun := started
	defer func() { w.tally.decode += time.Since(started) }()
	w.decoded = w.decoded[:0]
	h, err := link.DecodeWindowHeader(w.stored)
	if err != nil {
		return err
	}
	cursor := link.Cursor{ResetDistance: h.ResetDistance}
	for rest := w.stored[link.WindowHeaderBytes:]; len(rest) > 0; {
		f, n, err := cursor.Decode(rest)
		if err != nil {
			return err
		}
		if w.decoded, err = w.reader.Decode(w.decoded, &f); err != nil {
			return err
		}
		rest = rest[n:]
		now := time.Now()
		w.tally.decodeTimes.add(now.Sub(begun))
		begun = now
	}
	return nil
}
