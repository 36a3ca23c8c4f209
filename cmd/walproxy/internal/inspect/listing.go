package inspect

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/recompress"
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

// file lists one window. Only a file that cannot be read is an error; a file that has vanished is not.
func (l *listing) file(path, name string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	s, err := newScanner(f)
	if err != nil {
		if !isFormat(err) {
			return fmt.Errorf("read %s: %w", path, err)
		}
		l.printf("window %s\n", name)
		l.stop(0, int64(len(s.rest())), err)
		l.end = 0
		return nil
	}
	l.window(s, name)
	if err := l.frames(s); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

// isFormat reports whether err is about bytes that were read, not about reading them.
func isFormat(err error) bool {
	var version *link.VersionError
	var unseen *link.UnseenStreamError
	return errors.Is(err, link.ErrCorrupt) || errors.Is(err, link.ErrShort) || errors.As(err, &version) || errors.As(err, &unseen)
}

func (l *listing) window(s *scanner, name string) {
	h := s.header
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

// frames lists the frames of a window and its sum.
func (l *listing) frames(s *scanner) error {
	reader, err := recompress.NewReader(recompress.Options{ResetDistance: s.header.ResetDistance})
	if err != nil {
		return err
	}
	var sum totals
	for {
		offset := s.offset
		f, n, err := s.next()
		if errors.Is(err, io.EOF) {
			if err := l.index(s); err != nil {
				return err
			}
			break
		}
		if err == nil && l.options.Check {
			l.decoded, err = reader.Decode(l.decoded[:0], &f)
		}
		follows := f.Start == l.end || f.Codec == link.CodecTimelineEnd && f.Start < l.end // what was sent beyond the switch point
		if err == nil && (!follows || f.Timeline != s.header.Timeline) {
			err = &link.CorruptError{Timeline: f.Timeline, LSN: f.Start, What: fmt.Sprintf("the frame does not follow %s on timeline %d", l.end, l.timeline)}
		}
		if err != nil {
			if !isFormat(err) {
				return err
			}
			if s.header.Kind == link.WindowSealed {
				l.damage(offset, err)
			} else {
				l.stop(offset, int64(len(s.rest())), err)
			}
			break
		}
		l.frame(offset, n, &f)
		l.end = f.End()
		sum.add(totals{frames: 1, wal: int64(f.RawLen), payload: int64(len(f.Payload))})
	}
	sum.file = s.offset
	l.printf("  to %s: %s\n\n", l.end, sum)
	l.total.add(sum)
	return nil
}

// index lists the index of a sealed window and checks that it is behind the frames, and nothing behind it.
func (l *listing) index(s *scanner) error {
	h := s.header
	if h.Kind != link.WindowSealed {
		return nil
	}
	if err := s.fill(int(h.IndexBytes) + 1); err != nil {
		return err
	}
	index, err := link.DecodeIndex(h, s.rest())
	if err == nil && (s.offset != int64(h.IndexOffset) || len(s.rest()) != int(h.IndexBytes) || l.end != h.End) {
		err = &link.CorruptError{Timeline: h.Timeline, LSN: l.end, What: fmt.Sprintf("the window is to end at %s and its file at %d", h.End, h.FileBytes())}
	}
	if err != nil {
		l.damage(s.offset, err)
		return nil
	}
	if !l.options.WindowsOnly {
		l.printf("  %8d  index, %d entries\n", s.offset, index.Len())
	}
	s.consume(int(h.IndexBytes))
	return nil
}

func (l *listing) frame(offset int64, bytes int, f *link.Frame) {
	if l.options.WindowsOnly {
		return
	}
	if f.Codec == link.CodecTimelineEnd {
		end, err := f.TimelineEnd()
		if err != nil {
			l.damage(offset, err)
			return
		}
		l.printf("  %8d  %-12s end of timeline %d; timeline %d goes on\n", offset, f.Start, f.Timeline, end.Next)
		return
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
}

// stop says why a window is read no further. A frame cut off at the very end of the log is what a crash leaves; the node cuts
// it off when it starts, since it was never confirmed.
func (l *listing) stop(offset, rest int64, err error) {
	if errors.Is(err, link.ErrShort) && l.last {
		l.printf("  %8d  incomplete frame, %d bytes: being written, or left by a crash\n", offset, rest)
		return
	}
	l.damage(offset, err)
}

func (l *listing) damage(offset int64, err error) {
	l.damaged++
	l.printf("  %8d  DAMAGED: %v\n", offset, err)
}
