package inspect

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/recompress"
	"walproxy/slots/spool"
)

// totals add up frames.
type totals struct{ frames, wal, payload, file int64 }

func (t totals) String() string {
	return fmt.Sprintf("%d frames, %d bytes of WAL in %d of payload, ratio %s; %d in files", t.frames, t.wal, t.payload, ratio(t.wal, t.payload), t.file)
}

func (t *totals) add(other totals) {
	t.frames, t.wal, t.payload, t.file = t.frames+other.frames, t.wal+other.wal, t.payload+other.payload, t.file+other.file
}

func ratio(wal, payload int64) string {
	if payload == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", float64(wal)/float64(payload))
}

// listing is the state of one List.
type listing struct {
	w       io.Writer
	err     error // of w; nothing is written after it
	options Options
	last    bool // the window in progress is the newest of its timeline
	damaged int  // places
	total   totals

	timeline protocol.Timeline // of the window before
	end      protocol.LSN      // of the window before; 0 if not known
	decoded  []byte
}

func (l *listing) printf(format string, args ...any) {
	if l.err == nil {
		_, l.err = fmt.Fprintf(l.w, format, args...)
	}
}

// errStop ends a walk through a file.
var errStop = errors.New("nothing more is read")

// file lists one window. Only a file that cannot be read is an error; a file that has vanished is not.
func (l *listing) file(path, name string) error {
	w := &listedWindow{listing: l, name: name}
	err := spool.WalkWindow(nil, path, w.entry)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil && !errors.Is(err, errStop):
		return err
	}
	if w.header == nil {
		l.end = 0
		return nil
	}
	l.printf("  to %s: %s\n\n", l.end, w.sum)
	l.total.add(w.sum)
	return nil
}

// listedWindow is the state of a window that is listed.
type listedWindow struct {
	*listing
	name   string
	header *link.WindowHeader // once it was seen
	reader *recompress.Reader
	sum    totals
}

// entry lists what a walk found.
func (w *listedWindow) entry(e spool.Entry) (err error) {
	switch {
	case e.Err != nil:
		return w.stop(e)
	case e.Header != nil:
		header := *e.Header
		w.header = &header
		w.window(header, w.name)
		if w.options.Check {
			w.reader, err = recompress.NewReader(recompress.Options{ResetDistance: header.ResetDistance})
		}
	case e.Index != nil:
		if !w.options.WindowsOnly {
			w.printf("  %8d  index, %d entries\n", e.Offset, e.Index.Len())
		}
	default:
		err = w.take(e)
	}
	w.sum.file = e.Offset + int64(e.Bytes)
	return err
}

// take lists a frame. A damaged one is the last one read.
func (w *listedWindow) take(e spool.Entry) (err error) {
	f := e.Frame
	if w.options.Check {
		w.decoded, err = w.reader.Decode(w.decoded[:0], f)
	}
	if err == nil {
		err = w.frame(e.Offset, e.Bytes, f)
	}
	if err != nil {
		w.damage(e.Offset, err)
		return errStop
	}
	w.end = f.End()
	w.sum.add(totals{frames: 1, wal: int64(f.RawLen), payload: int64(len(f.Payload))})
	return nil
}

func (l *listing) window(h link.WindowHeader, name string) {
	if l.timeline == h.Timeline && l.end != 0 && h.Start != l.end {
		l.printf("gap: %s to %s on timeline %d is not here\n\n", l.end, h.Start, h.Timeline)
	}
	kind := "live"
	if h.Kind == link.WindowSealed {
		kind = "sealed"
	}
	l.printf("window %s\n  %s, timeline %d, from %s, reset distance %d MiB; system %s, segments of %d MiB\n",
		name, kind, h.Timeline, h.Start, h.ResetDistance>>20, h.SystemID, h.SegmentSize>>20)
	l.timeline, l.end = h.Timeline, h.Start
}

// frame lists a frame. Errors: that of an end of the timeline that is none.
func (l *listing) frame(offset int64, bytes int, f *link.Frame) error {
	if f.Codec == link.CodecTimelineEnd {
		end, err := f.TimelineEnd()
		if err == nil && !l.options.WindowsOnly {
			l.printf("  %8d  %-12s end of timeline %d; timeline %d goes on\n", offset, f.Start, f.Timeline, end.Next)
		}
		return err
	}
	if l.options.WindowsOnly {
		return nil
	}
	stream := "alone"
	switch {
	case f.Starts:
		stream = fmt.Sprintf("starts %08x", f.Sum)
	case f.Continues:
		stream = fmt.Sprintf("continues %08x", f.Stream)
	}
	l.printf("  %8d  %-12s %-12s %-6s %-18s %8d -> %8d + %2d  %s\n", offset, f.Start, f.End(), f.Codec, stream,
		f.RawLen, len(f.Payload), bytes-len(f.Payload), ratio(int64(f.RawLen), int64(len(f.Payload))))
	return nil
}

// stop says why a window is read no further. A frame cut off at the very end of the log is what a crash leaves; the node cuts
// it off when it starts, since it was never confirmed.
func (w *listedWindow) stop(e spool.Entry) error {
	if w.header == nil {
		w.printf("window %s\n", w.name)
	}
	if errors.Is(e.Err, link.ErrShort) && w.last {
		w.printf("  %8d  incomplete frame: being written, or left by a crash\n", e.Offset)
		return nil
	}
	w.damage(e.Offset, e.Err)
	return nil
}

func (l *listing) damage(offset int64, err error) {
	l.damaged++
	place := ""
	if corrupt := (*link.CorruptError)(nil); !errors.As(err, &corrupt) && l.end != 0 {
		place = fmt.Sprintf(", WAL from %s on timeline %d", l.end, l.timeline)
	}
	l.printf("  %8d  DAMAGED: %v%s\n", offset, err, place)
}
