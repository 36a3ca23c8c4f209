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
	sealer  *recompress.Sealer // in place of writer where windows are sealed
	reader  *recompress.Reader
	cutter  cutter
	cursor  link.Cursor
	emit    func(*link.Frame) error // appends to stored
	raw     []byte                  // the window
	stored  []byte                  // the window as a node would store it
	decoded []byte
	tally   *tally
	shadow  *worker // encodes everything once more and fills costs, so that this takes none of the time measured
	costs   *costs
}

func newWorker(o Options) (*worker, error) {
	w, err := newEncodingWorker(o)
	if err != nil || !o.ByKind {
		return w, err
	}
	if w.shadow, err = newEncodingWorker(o); err != nil {
		return nil, err
	}
	w.costs = &costs{spent: make(map[kindKey]int64)}
	if w.shadow.sealer != nil {
		w.shadow.sealer.ObserveCosts(w.costs.observe)
	} else {
		w.shadow.writer.ObserveCosts(w.costs.observe)
	}
	return w, nil
}

func newEncodingWorker(o Options) (*worker, error) {
	w := &worker{options: o, cutter: cutter{cut: o.Cut}, tally: newTally()}
	var err error
	if o.Cut.sealed() {
		w.sealer, err = recompress.NewSealer(o.Recompress)
	} else {
		w.writer, err = recompress.NewWriter(o.Recompress)
	}
	if err != nil {
		return nil, err
	}
	if w.reader, err = recompress.NewReader(o.Recompress); err != nil {
		return nil, err
	}
	w.emit = func(f *link.Frame) error {
		w.stored = w.cursor.Append(w.stored, f)
		return nil
	}
	return w, nil
}

// do measures one window. Errors: what reading and the Writer say; that the WAL came back changed goes into the tally.
func (w *worker) do(win window) error {
	if cap(w.raw) < win.bytes {
		w.raw, w.decoded = make([]byte, win.bytes), make([]byte, 0, win.bytes)
	}
	w.raw = w.raw[:win.bytes]
	if err := win.stream.readAt(w.raw, win.start); err != nil {
		return err
	}
	if err := w.encode(win); err != nil {
		return err
	}
	if w.shadow != nil {
		w.shadow.raw = w.raw
		if err := w.shadow.encode(win); err != nil {
			return err
		}
	}
	w.tally.raw += int64(len(w.raw))
	w.tally.encoded += int64(len(w.stored))
	w.tally.windows++
	err := w.decode()
	if w.tally.windows == 1 {
		w.tally.cold = cold{w.tally.raw, w.tally.encode, w.tally.decode}
	}
	if err != nil {
		w.tally.differ(fmt.Errorf("%w: window at %s on timeline %d: %w", ErrDifferent, win.start, win.stream.timeline, err))
	} else if !bytes.Equal(w.decoded, w.raw) {
		w.tally.differ(fmt.Errorf("%w: window at %s on timeline %d", ErrDifferent, win.start, win.stream.timeline))
	}
	return nil
}

// header returns that of the window while it is live.
func (w *worker) header(win window) link.WindowHeader {
	s := win.stream
	return link.WindowHeader{
		Kind: link.WindowLive, SystemID: s.systemID, Timeline: s.timeline, SegmentSize: s.segmentSize, WALBlockSize: s.pageSize,
		ResetDistance: w.options.Recompress.ResetDistance, Start: win.start,
	}
}

// encode leaves the window in stored.
func (w *worker) encode(win window) error {
	if w.sealer != nil {
		return w.seal(win)
	}
	ends, err := w.cutter.frameEnds(win, w.raw)
	if err != nil {
		return err
	}
	return w.encodeLive(win, ends)
}

// encodeLive makes a live window: a header and frames that end at ends.
func (w *worker) encodeLive(win window, ends []int) error {
	started := time.Now()
	w.stored = w.header(win).Append(w.stored[:0])
	w.cursor = link.Cursor{ResetDistance: w.options.Recompress.ResetDistance}
	at, begun := 0, started
	for _, end := range ends {
		lsn := win.start + protocol.LSN(at)
		if err := w.writer.Write(win.stream.timeline, lsn, w.raw[at:end], w.emit); err != nil {
			return fmt.Errorf("encode WAL at %s: %w", lsn, err)
		}
		at = end
		now := time.Now()
		w.tally.encodeTimes.add(now.Sub(begun))
		begun = now
	}
	w.tally.encode += begun.Sub(started)
	return nil
}

// seal makes a sealed window, of WAL that a node has in a raw frame: what sealing costs, and nothing else.
func (w *worker) seal(win window) (err error) {
	f := link.Frame{Timeline: win.stream.timeline, Start: win.start, RawLen: uint32(len(w.raw)), Payload: w.raw}
	f.SealRaw()
	started := time.Now()
	one := func(yield func(*link.Frame, error) bool) { yield(&f, nil) }
	if w.stored, _, err = w.sealer.Seal(w.stored[:0], w.header(win), one); err != nil {
		return err
	}
	took := time.Since(started)
	w.tally.encode += took
	w.tally.encodeTimes.add(took)
	return nil
}

// decode leaves the WAL of stored in decoded.
func (w *worker) decode() error {
	started := time.Now()
	begun := started
	defer func() { w.tally.decode += time.Since(started) }()
	w.decoded = w.decoded[:0]
	return eachFrame(w.stored, func(f *link.Frame) (err error) {
		w.tally.frames++
		if f.Codec == link.CodecRaw {
			w.tally.rawFrames++
		}
		w.decoded, err = w.reader.Decode(w.decoded, f)
		now := time.Now()
		w.tally.decodeTimes.add(now.Sub(begun))
		begun = now
		return err
	})
}

// eachFrame checks a window and hands its frames to visit.
func eachFrame(window []byte, visit func(*link.Frame) error) error {
	h, err := link.DecodeWindowHeader(window)
	if err != nil {
		return err
	}
	if h.Kind == link.WindowSealed {
		_, err = link.ReadWindow(window, visit)
		return err
	}
	cursor := link.Cursor{ResetDistance: h.ResetDistance}
	for rest := window[link.WindowHeaderBytes:]; len(rest) > 0; {
		f, n, err := cursor.Decode(rest)
		if err != nil {
			return err
		}
		if err := visit(&f); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}
