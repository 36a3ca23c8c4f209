package recompress

import (
	"bytes"
	"fmt"
	"iter"

	"walproxy/protocol"
	"walproxy/protocol/link"
)

// sealedFrameBytes is how much WAL a frame of a sealed window carries, up to the end of the record that it falls into, but not more
// than sealedSlackBytes beyond. Larger ones would save a few bytes each and make readers hold more; half a record, as the rest of it,
// is coded as bytes.
const (
	sealedFrameBytes = 256 << 10
	sealedSlackBytes = 64 << 10
)

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
	options  Options
	distance uint32                 // of the writers
	writers  map[link.Codec]*Writer // made when they are needed
	own      link.Codec             // what options stand for
	reader   *Reader
	builder  link.WindowBuilder
	spare    []byte // the frames as they came
	observe  CostObserver

	writer *Writer     // for the window in progress
	wal    []byte      // of it
	end    *link.Frame // the frame that ends its timeline, if there is one
}

// NewSealer returns a Sealer that codes as o says. The reset distance is each window's own.
func NewSealer(o Options) (*Sealer, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Sealer{options: o, own: o.linkCodec()}
	if s.reader, err = NewReader(Options{ResetDistance: link.MaxResetDistance}); err != nil {
		return nil, err
	}
	return s, nil
}

// Seal appends to dst the sealed window that holds the same WAL as the live window with the header h, whose frames the sequence
// yields, the end of the timeline included. It codes the WAL again, in few large frames, with the codec of its options or a
// better one that the frames have; where that would not be smaller, it keeps the frames as they are. The sequence may be read twice; a frame need only be valid until the next one. The same frames
// give the same bytes.
//
// Before it returns, every frame was decoded and compared with the WAL that the frames coming in decode to, and the window was
// read back from its bytes.
//
// Errors: those of the sequence; *link.CorruptError if the frames are not those of one window, or one does not decode;
// *link.VersionError for a codec that this version lacks. dst has its old length then.
func (s *Sealer) Seal(dst []byte, h link.WindowHeader, frames iter.Seq2[*link.Frame, error]) ([]byte, SealStats, error) {
	var stats SealStats
	seen, err := s.read(h, frames, &stats)
	if err == nil {
		err = s.choose(h, seen.best)
	}
	var out []byte
	if err == nil {
		out, err = s.seal(dst, h, frames, s.settled(seen, &stats), &stats)
	}
	if err != nil {
		return dst, stats, fmt.Errorf("seal window at %s on timeline %d: %w", h.Start, h.Timeline, err)
	}
	stats.Bytes = int64(len(out) - len(dst))
	return out, stats, nil
}

// seen is what the frames of a window have in common.
type seen struct {
	best  link.Codec // of all frames
	other bool       // there are frames of another codec
	plain int        // bytes of WAL in raw frames
	torn  int        // frames that end within a record
}

// rank orders codecs by how small they make WAL.
func rank(c link.Codec) int {
	switch c {
	case link.CodecLZ4:
		return 1
	case link.CodecZstd:
		return 2
	case link.CodecModel:
		return 3
	}
	return 0
}

// choose takes the writer for a window whose frames' best codec is given.
func (s *Sealer) choose(h link.WindowHeader, best link.Codec) error {
	if s.distance != h.ResetDistance {
		s.writers, s.distance = map[link.Codec]*Writer{}, h.ResetDistance
	}
	o, codec := s.options, s.own
	o.ResetDistance = h.ResetDistance
	switch {
	case rank(best) <= rank(s.own):
	case best == link.CodecModel:
		o.Codec, codec = Model, best
	case best == link.CodecZstd:
		o.Codec, codec = Zstd, best
	case best == link.CodecLZ4:
		o.Codec, codec = LZ4, best
	}
	w := s.writers[codec]
	if w == nil {
		var err error
		if w, err = NewWriter(o); err != nil {
			return err
		}
		w.ObserveCosts(s.observe)
		s.writers[codec] = w
	}
	s.writer = w
	return nil
}

// What a frame costs a window beside the WAL in it: its header, and for the model about a byte. Other codecs lose more.
const (
	modelFrameBytes = 8
	tornBytes       = 1 << 10 // what a record with page images loses when it is not coded as a whole; others less
)

// settled reports whether coding the window again would hardly save anything: its frames have the codec that they would get,
// and are as few, or are the model's and cost less than a fiftieth of the window.
func (s *Sealer) settled(seen seen, stats *SealStats) bool {
	if seen.other || seen.best != s.writer.codec || seen.plain > len(s.wal)/64 {
		return false
	}
	few := (len(s.wal)+sealedFrameBytes-1)/sealedFrameBytes + 1 // the end of the timeline
	return stats.FramesBefore <= few || seen.best == link.CodecModel && int64(stats.FramesBefore*modelFrameBytes+seen.torn*tornBytes)*50 < stats.BytesBefore
}

// read decodes the window into s.wal and s.end.
func (s *Sealer) read(h link.WindowHeader, frames iter.Seq2[*link.Frame, error], stats *SealStats) (seen seen, err error) {
	s.wal, s.end = s.wal[:0], nil
	stats.BytesBefore = link.WindowHeaderBytes
	next, cursor := h.Start, link.Cursor{}
	place := follower{pos: h.Start, lost: uint64(h.Start)%walPageBytes != 0}
	for f, err := range frames {
		if err != nil {
			return seen, err
		}
		isEnd := f.Codec == link.CodecTimelineEnd
		if s.end != nil || f.Timeline != h.Timeline || !isEnd && f.Start != next {
			return seen, corrupt(f, fmt.Sprintf("it does not follow %s on timeline %d", next, h.Timeline))
		}
		if uint64(next-h.Start)+uint64(f.RawLen) > uint64(h.ResetDistance) {
			return seen, corrupt(f, "the window is longer than its reset distance")
		}
		from := len(s.wal)
		if s.wal, err = s.reader.Decode(s.wal, f); err != nil {
			return seen, err
		}
		if place.pass(s.wal[from:]); place.rest > 0 && !isEnd {
			seen.torn++
		}
		s.spare = cursor.AppendHeader(s.spare[:0], f) // for its length
		stats.BytesBefore += int64(len(s.spare) + len(f.Payload))
		stats.FramesBefore++
		if isEnd {
			end := *f
			end.Payload = bytes.Clone(f.Payload)
			s.end = &end
			continue
		}
		if f.Codec == link.CodecRaw {
			seen.plain += int(f.RawLen)
		} else if f.Starts || f.Continues {
			seen.other = seen.other || f.Codec != seen.best && seen.best != link.CodecRaw
		}
		if rank(f.Codec) > rank(seen.best) {
			seen.best = f.Codec
		}
		next = f.End()
	}
	stats.WALBytes = int64(len(s.wal))
	return seen, nil
}

// seal appends the smaller of the two windows to dst and reads it back.
func (s *Sealer) seal(dst []byte, h link.WindowHeader, frames iter.Seq2[*link.Frame, error], settled bool, stats *SealStats) (out []byte, err error) {
	out = dst
	if !settled {
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
	place := follower{pos: h.Start, lost: uint64(h.Start)%walPageBytes != 0}
	for at := 0; at < len(s.wal); {
		piece := s.wal[at : at+place.frame(s.wal[at:])]
		if err := s.writer.Write(h.Timeline, h.Start+protocol.LSN(at), piece, s.builder.Add); err != nil {
			return nil, err
		}
		at += len(piece)
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
		if f.Start != at || int(f.RawLen) > len(wal) || !f.Holds(wal[:f.RawLen]) {
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
