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
	distance uint32           // of the writers
	writers  map[form]*Writer // made when they are needed
	own      link.Codec       // what options stand for
	reader   *Reader
	builder  link.WindowBuilder
	spare    []byte // the frames as they came
	observe  CostObserver

	writer *Writer     // for the window in progress
	stream *Writer     // for it too, without records that are coded alone; nil if writer codes none
	wal    []byte      // of it
	made   []proof     // of the frames in the result, as writer or stream made them
	spared []proof     // of those in spare
	end    *link.Frame // the frame that ends its timeline, if there is one
}

// proof is what says that a frame holds a stretch of the window's WAL.
type proof struct {
	start    protocol.LSN
	rawBytes uint32
	rawSum   uint32
	sum      uint32
}

func proofOf(f *link.Frame) proof {
	return proof{start: f.Start, rawBytes: f.RawLen, rawSum: f.RawSum, sum: f.Sum}
}

// form is how a Writer codes.
type form struct {
	codec link.Codec
	alone bool // records above the threshold
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
// better one that the frames have, with records above the threshold coded alone or without, whichever is smaller; where that
// would not be smaller than what came in, it keeps the frames as they are. The sequence may be read twice; a frame need only be
// valid until the next one. The same frames give the same bytes.
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
		s.writers, s.distance = map[form]*Writer{}, h.ResetDistance
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
	alone := o.RecordThreshold > 0
	var err error
	if s.writer, err = s.writerOf(form{codec, alone}, o); err != nil || !alone {
		s.stream = nil
		return err
	}
	o.RecordThreshold = 0
	s.stream, err = s.writerOf(form{codec, false}, o)
	return err
}

func (s *Sealer) writerOf(key form, o Options) (*Writer, error) {
	if w := s.writers[key]; w != nil {
		return w, nil
	}
	w, err := NewWriter(o)
	if err != nil {
		return nil, err
	}
	if !key.alone { // the window is coded by another Writer too, and counts once
		w.ObserveCosts(s.observe)
	}
	s.writers[key] = w
	return w, nil
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
	var header [link.MaxFrameHeaderBytes]byte
	var place follower
	modelled := false // there was a frame of the model; settled asks for torn ones only then
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
		if !modelled && f.Codec == link.CodecModel {
			modelled, place = true, follower{pos: f.Start, lost: uint64(f.Start)%walPageBytes != 0}
		}
		if modelled && !isEnd {
			if place.pass(s.wal[from:]); place.rest > 0 {
				seen.torn++
			}
		}
		stats.BytesBefore += int64(len(cursor.AppendHeader(header[:0], f)) + len(f.Payload))
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
		if out, err = s.encode(dst, h, s.writer, &s.made, stats); err != nil {
			return nil, err
		}
		if s.stream != nil { // records that are coded alone must not cost bytes
			if s.spare, err = s.encode(s.spare[:0], h, s.stream, &s.spared, stats); err != nil {
				return nil, err
			}
			if len(s.spare) < len(out)-len(dst) {
				out = append(out[:len(dst)], s.spare...)
				s.made, s.spared = s.spared, s.made
			}
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
	if !stats.Encoded {
		s.made = s.made[:0]
	}
	return out, s.verify(out[len(dst):], h, stats)
}

// encode codes s.wal anew. The writer decodes and compares each frame.
func (s *Sealer) encode(dst []byte, h link.WindowHeader, w *Writer, made *[]proof, stats *SealStats) ([]byte, error) {
	w.Reset()
	before := w.Stats().Mismatches
	s.builder.Begin(dst, h)
	*made = (*made)[:0]
	add := func(f *link.Frame) error {
		*made = append(*made, proofOf(f))
		return s.builder.Add(f)
	}
	place := follower{pos: h.Start, lost: uint64(h.Start)%walPageBytes != 0}
	for at := 0; at < len(s.wal); {
		piece := s.wal[at : at+place.frame(s.wal[at:])]
		if err := w.Write(h.Timeline, h.Start+protocol.LSN(at), piece, add); err != nil {
			return nil, err
		}
		at += len(piece)
	}
	stats.Mismatches += w.Stats().Mismatches - before
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
// the frames were decoded; their checksums say that they are still the same. Those of frames that the writer made are known: it took
// them of s.wal.
func (s *Sealer) verify(window []byte, h link.WindowHeader, stats *SealStats) error {
	stats.Frames = 0
	wal, at, made := s.wal, h.Start, s.made
	got, err := link.ReadWindow(window, func(f *link.Frame) error {
		stats.Frames++
		if f.Codec == link.CodecTimelineEnd {
			return nil
		}
		known := len(made) > 0
		if f.Start != at || int(f.RawLen) > len(wal) || known && proofOf(f) != made[0] || !known && !f.Holds(wal[:f.RawLen]) {
			return corrupt(f, "the sealed window holds other WAL")
		}
		if known {
			made = made[1:]
		}
		wal, at = wal[f.RawLen:], f.End()
		return nil
	})
	if err == nil && (len(wal) > 0 || got.Start != h.Start || got.Timeline != h.Timeline) {
		err = &link.CorruptError{Timeline: h.Timeline, LSN: at, What: "the sealed window holds less"}
	}
	return err
}
