package recompress

import (
	"bytes"
	"fmt"
	"iter"

	"walproxy/protocol"
	"walproxy/protocol/link"
)

// sealedFrameBytes is how much WAL a frame of a sealed window carries at most. Larger ones would save a few bytes each and make
// readers hold more.
const sealedFrameBytes = 256 << 10

// SealStats says what Seal did to a window.
type SealStats struct {
	Encoded      bool  // the frames were made anew; else they are the ones that came in
	FramesBefore int   // frames that came in
	Frames       int   // frames of the sealed window
	BytesBefore  int64 // header and frames that came in, as a live window has them
	Bytes        int64 // of the sealed window
	WALBytes     int64
	Mismatches   uint64 // frames that did not decode to their WAL and left raw. Ever above 0 is a defect
}

// Sealer makes sealed windows out of live ones. Codec and buffers are reused from window to window; it holds the WAL of one
// window, beside the result. Not safe for concurrent use.
type Sealer struct {
	options Options
	writer  *Writer
	reader  *Reader
	builder link.WindowBuilder
	spare   []byte // the frames as they came

	wal     []byte      // of the window in progress
	end     *link.Frame // the frame that ends its timeline, if there is one
	settled bool        // its frames are as few as Seal would make, and of the same codec
}

// NewSealer returns a Sealer that codes as o says. The reset distance is each window's own.
func NewSealer(o Options) (*Sealer, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Sealer{options: o}
	if s.reader, err = NewReader(Options{ResetDistance: link.MaxResetDistance}); err != nil {
		return nil, err
	}
	return s, nil
}

// Seal appends to dst the sealed window that holds the same WAL as the live window with the header h, whose frames the sequence
// yields, the end of the timeline included. It codes the WAL again, in few large frames, and keeps the frames as they are where
// that would not be smaller. The sequence may be read twice; a frame need only be valid until the next one. The same frames
// give the same bytes.
//
// Before it returns, every frame was decoded and compared with the WAL that the frames coming in decode to, and the window was
// read back from its bytes.
//
// Errors: those of the sequence; *link.CorruptError if the frames are not those of one window, or one does not decode;
// *link.VersionError for a codec that this version lacks. dst has its old length then.
func (s *Sealer) Seal(dst []byte, h link.WindowHeader, frames iter.Seq2[*link.Frame, error]) ([]byte, SealStats, error) {
	var stats SealStats
	err := s.prepare(h)
	if err == nil {
		err = s.read(h, frames, &stats)
	}
	var out []byte
	if err == nil {
		out, err = s.seal(dst, h, frames, &stats)
	}
	if err != nil {
		return dst, stats, fmt.Errorf("seal window at %s on timeline %d: %w", h.Start, h.Timeline, err)
	}
	stats.Bytes = int64(len(out) - len(dst))
	return out, stats, nil
}

// prepare sees to it that the writer cuts where the window does.
func (s *Sealer) prepare(h link.WindowHeader) error {
	s.end, s.settled = nil, true
	if s.writer != nil && s.options.ResetDistance == h.ResetDistance {
		return nil
	}
	o := s.options
	o.ResetDistance = h.ResetDistance
	w, err := NewWriter(o)
	if err != nil {
		return err
	}
	s.writer, s.options = w, o
	return nil
}

// read decodes the window into s.wal, s.end and s.settled.
func (s *Sealer) read(h link.WindowHeader, frames iter.Seq2[*link.Frame, error], stats *SealStats) error {
	s.wal = s.wal[:0]
	stats.BytesBefore = link.WindowHeaderBytes
	next, cursor := h.Start, link.Cursor{}
	for f, err := range frames {
		if err != nil {
			return err
		}
		isEnd := f.Codec == link.CodecTimelineEnd
		if s.end != nil || f.Timeline != h.Timeline || !isEnd && f.Start != next {
			return corrupt(f, fmt.Sprintf("it does not follow %s on timeline %d", next, h.Timeline))
		}
		if uint64(next-h.Start)+uint64(f.RawLen) > uint64(h.ResetDistance) {
			return corrupt(f, "the window is longer than its reset distance")
		}
		if s.wal, err = s.reader.Decode(s.wal, f); err != nil {
			return err
		}
		s.spare = cursor.Append(s.spare[:0], f) // for its length
		stats.BytesBefore += int64(len(s.spare))
		stats.FramesBefore++
		if isEnd {
			end := *f
			end.Payload = bytes.Clone(f.Payload)
			s.end = &end
			continue
		}
		next = f.End()
		s.settled = s.settled && f.Codec == s.writer.codec
	}
	stats.WALBytes = int64(len(s.wal))
	few := (len(s.wal) + sealedFrameBytes - 1) / sealedFrameBytes
	s.settled = s.settled && stats.FramesBefore <= few+1
	return nil
}

// seal appends the smaller of the two windows to dst and reads it back.
func (s *Sealer) seal(dst []byte, h link.WindowHeader, frames iter.Seq2[*link.Frame, error], stats *SealStats) (out []byte, err error) {
	out = dst
	if !s.settled {
		if out, err = s.encode(dst, h, stats); err != nil {
			return nil, err
		}
		stats.Encoded = true
	}
	if !stats.Encoded || int64(len(out)-len(dst)) >= stats.BytesBefore {
		if s.spare, err = s.keep(s.spare[:0], h, frames); err != nil {
			return nil, err
		}
		if !stats.Encoded || len(s.spare) <= len(out)-len(dst) {
			out, stats.Encoded = append(out[:len(dst)], s.spare...), false
		}
	}
	return out, s.verify(out[len(dst):], h, stats)
}

// encode codes s.wal anew. The writer decodes and compares each frame.
func (s *Sealer) encode(dst []byte, h link.WindowHeader, stats *SealStats) ([]byte, error) {
	s.writer.Reset()
	before := s.writer.Stats().Mismatches
	s.builder.Begin(dst, h)
	for at := 0; at < len(s.wal); at += sealedFrameBytes {
		piece := s.wal[at:min(at+sealedFrameBytes, len(s.wal))]
		if err := s.writer.Write(h.Timeline, h.Start+protocol.LSN(at), piece, s.builder.Add); err != nil {
			return nil, err
		}
	}
	if err := s.writer.Flush(s.builder.Add); err != nil {
		return nil, err
	}
	stats.Mismatches = s.writer.Stats().Mismatches - before
	if s.end != nil {
		if err := s.builder.Add(s.end); err != nil {
			return nil, err
		}
	}
	return s.builder.Finish()
}

// keep builds the window of the frames that came in.
func (s *Sealer) keep(dst []byte, h link.WindowHeader, frames iter.Seq2[*link.Frame, error]) ([]byte, error) {
	s.builder.Begin(dst, h)
	for f, err := range frames {
		if err != nil {
			return nil, err
		}
		if err := s.builder.Add(f); err != nil {
			return nil, err
		}
	}
	return s.builder.Finish()
}

// verify reads the window back from its bytes: all of s.wal is in it, frame by frame. That the payloads yield it was seen when
// the frames were decoded; their checksums say that they are still the same.
func (s *Sealer) verify(window []byte, h link.WindowHeader, stats *SealStats) error {
	stats.Frames = 0
	wal, at := s.wal, h.Start
	got, err := link.ReadWindow(window, func(f *link.Frame) error {
		stats.Frames++
		if f.Codec == link.CodecTimelineEnd {
			return nil
		}
		if f.Start != at || int(f.RawLen) > len(wal) || link.Checksum(wal[:f.RawLen]) != f.RawSum {
			return corrupt(f, "the sealed window holds other WAL")
		}
		wal, at = wal[f.RawLen:], f.End()
		return nil
	})
	if err == nil && (len(wal) > 0 || got.Start != h.Start || got.Timeline != h.Timeline) {
		err = &link.CorruptError{Timeline: h.Timeline, LSN: at, What: "the sealed window holds less"}
	}
	return err
}
