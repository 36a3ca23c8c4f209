package verify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/recompress"
	"walproxy/slots/spool"
)

// spoolDir is the data directory of a node, which may run.
type spoolDir struct {
	dir     string
	windows []spool.WindowFile
}

func (d *spoolDir) Name() string { return d.dir }

func (d *spoolDir) Close() error { return nil }

func (d *spoolDir) Inventory(context.Context) (v Inventory, err error) {
	if d.windows, err = spool.Files(nil, d.dir); err != nil {
		return Inventory{}, err
	}
	if len(d.windows) == 0 {
		return Inventory{}, fmt.Errorf("no WAL in %s", d.dir)
	}
	if v.Histories, err = d.histories(); err != nil {
		return Inventory{}, err
	}
	var spans []Span
	for i, w := range d.windows {
		last := i+1 == len(d.windows) || d.windows[i+1].Timeline != w.Timeline
		if !last { // windows of a timeline are contiguous
			spans = append(spans, Span{w.Timeline, w.Start, d.windows[i+1].Start})
			continue
		}
		end, system, err := endOf(w)
		if err != nil {
			return Inventory{}, err
		}
		v.SystemID = system
		spans = append(spans, Span{w.Timeline, w.Start, end})
	}
	spans = normal(spans)
	for i := range spans { // what an ended timeline has beyond the fork may span windows
		for _, h := range v.Histories {
			if end, _, ended := h.End(spans[i].Timeline); ended && h.Timeline == d.windows[len(d.windows)-1].Timeline {
				spans[i].End = min(spans[i].End, end)
			}
		}
	}
	v.Spans = owned(spans, v.Histories)
	return v, nil
}

func (d *spoolDir) histories() ([]protocol.History, error) {
	dir := filepath.Join(d.dir, "history")
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var all []protocol.History
	for _, e := range entries {
		tli, ok := historyTimeline(e.Name())
		if !ok {
			continue
		}
		h, err := readHistory(tli, filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		all = append(all, h)
	}
	return all, nil
}

// errEnough ends a walk.
var errEnough = errors.New("enough")

// endOf returns where a window ends, the switch point if the timeline ends in it, and whose WAL it is.
func endOf(w spool.WindowFile) (protocol.LSN, protocol.SystemID, error) {
	end, system := w.Start, protocol.SystemID(0)
	err := walk(w, func(h *link.WindowHeader, f *link.Frame) error {
		if h != nil {
			system = h.SystemID
			if h.Kind == link.WindowSealed {
				end = h.End
				return errEnough
			}
			return nil
		}
		end = f.End()
		return nil
	})
	return end, system, err
}

// walk shows the header and the frames of a window.
func walk(w spool.WindowFile, visit func(*link.WindowHeader, *link.Frame) error) error {
	err := spool.Walk(nil, w.Path, func(e spool.Entry) error {
		switch {
		case errors.Is(e.Err, link.ErrShort):
			return nil // the node is writing it
		case e.Err != nil:
			return fmt.Errorf("%w: %s at offset %d: %w", ErrDamaged, e.File, e.Offset, e.Err)
		case e.Index != nil:
			return nil
		}
		return visit(e.Header, e.Frame)
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

func (d *spoolDir) Open(_ context.Context, tli protocol.Timeline, from, to protocol.LSN) (Reader, error) {
	decoder, err := recompress.NewReader(recompress.Options{ResetDistance: link.MaxResetDistance})
	if err != nil {
		return nil, err
	}
	return &spoolReader{dir: d, timeline: tli, next: from, end: to, decoder: decoder}, nil
}

// spoolReader decodes one window at a time.
type spoolReader struct {
	dir       *spoolDir
	timeline  protocol.Timeline
	next, end protocol.LSN
	decoder   *recompress.Reader
	wal       []byte // of the window
}

func (r *spoolReader) Close() error { return nil }

func (r *spoolReader) Next(ctx context.Context) ([]byte, error) {
	if r.next >= r.end {
		return nil, io.EOF
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	w, err := r.window()
	if err != nil {
		return nil, err
	}
	r.wal = r.wal[:0]
	err = walk(w, func(_ *link.WindowHeader, f *link.Frame) (err error) {
		if f != nil {
			if r.wal, err = r.decoder.Decode(r.wal, f); err != nil {
				err = fmt.Errorf("%w: %s: %w", ErrDamaged, w.Path, err)
			}
		}
		return err
	})
	if errors.Is(err, os.ErrNotExist) {
		err = fmt.Errorf("it was removed meanwhile: %w", err)
	}
	if err != nil {
		return nil, err
	}
	end := min(w.Start+protocol.LSN(len(r.wal)), r.end)
	if end <= r.next {
		return nil, fmt.Errorf("%w: %s ends at %s", ErrDamaged, w.Path, w.Start+protocol.LSN(len(r.wal)))
	}
	out := r.wal[r.next-w.Start : end-w.Start]
	r.next = end
	return out, nil
}

// window returns the window that holds r.next.
func (r *spoolReader) window() (found spool.WindowFile, err error) {
	for _, w := range r.dir.windows {
		if w.Timeline == r.timeline && w.Start <= r.next {
			found = w
		}
	}
	if found.Path == "" {
		return found, fmt.Errorf("no window holds %s on timeline %d", r.next, r.timeline)
	}
	return found, nil
}
