package recompress

import (
	"bytes"
	"fmt"
	"sync/atomic"

	"walproxy/protocol"
	"walproxy/protocol/link"
)

// Stats counts what a Writer did since it was made.
type Stats struct {
	Frames       uint64 // frames made
	RawFrames    uint64 // of these: carried as they are, for whatever reason
	Mismatches   uint64 // of these: the encoder failed, or what it made did not decode to the same WAL. Ever above 0 is a defect
	RawBytes     uint64 // WAL
	PayloadBytes uint64 // what it became
}

// Writer turns WAL into frames. Encoders and buffers are reused from stream to stream; once warm it allocates nothing per
// frame. Not safe for concurrent use, Stats excepted.
type Writer struct {
	distance uint64
	coder            // what codes the window in progress
	options  Options // as asked for
	best     coder   // what the options stand for
	fast     coder   // for a Writer that has to hurry; made when it is needed
	hurry    bool
	check    *Reader // decodes every coded frame before it leaves
	sorter   sorter
	alone    coder  // of records that are coded alone; made when it is needed
	lone     []byte // such a record, coded

	timeline protocol.Timeline
	next     protocol.LSN // where the WAL goes on
	stream   uint32       // identity of the stream in progress; 0 if the next frame starts one

	frame   link.Frame
	plain   link.Frame // raw, in front of frame
	payload []byte
	decoded []byte

	lostBetween int         // what frames of the stream between plain bytes took more than their WAL, since the window began, or the last jump or Reset
	large       []largeKind // by kind: what the stream made of records above the threshold in the same time; nil while none was met

	frames, rawFrames, mismatches, rawBytes, payloadBytes atomic.Uint64
}

// coder is an encoder and the codec of its frames. A nil encoder makes raw frames only.
type coder struct {
	encoder encoder
	codec   link.Codec
}

// NewWriter returns a Writer whose first frame starts a stream.
func NewWriter(o Options) (*Writer, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	w := &Writer{distance: uint64(o.ResetDistance), options: o, sorter: sorter{options: o, standing: true}}
	if w.best.encoder, w.best.codec, err = newEncoder(o); err != nil {
		return nil, err
	}
	w.coder = w.best
	if w.check, err = NewReader(o); err != nil {
		return nil, err
	}
	return w, nil
}

// Write makes frames of wal, which begins at start on tli, and hands each, sealed and proven to decode to the same bytes, to
// emit. It cuts at reset boundaries, and where Options say that what comes is carried otherwise; everything written is in a frame when it returns. A start that does not
// follow the WAL written last begins a new stream. The frame and its payload are valid during emit only; wal is not retained.
//
// The only errors are emit's and that of WAL beyond the largest LSN. After one the next frame starts a stream.
func (w *Writer) Write(tli protocol.Timeline, start protocol.LSN, wal []byte, emit func(*link.Frame) error) error {
	if uint64(start)+uint64(len(wal)) < uint64(start) {
		return fmt.Errorf("write WAL at %s on timeline %d: %d bytes go beyond the largest LSN", start, tli, len(wal))
	}
	if tli != w.timeline || start != w.next {
		w.Reset()
	}
	for len(wal) > 0 {
		at := uint64(start) & (w.distance - 1)
		if at == 0 {
			w.Reset()
			w.choose()
		}
		piece := wal[:min(uint64(len(wal)), w.distance-at)]
		if err := w.writePiece(tli, start, piece, emit); err != nil {
			w.Reset()
			return err
		}
		wal, start = wal[len(piece):], start+protocol.LSN(len(piece))
		w.timeline, w.next = tli, start
	}
	return nil
}

// writePiece makes the frames of wal, which lies within one window.
func (w *Writer) writePiece(tli protocol.Timeline, start protocol.LSN, wal []byte, emit func(*link.Frame) error) error {
	if w.encoder == nil || !w.sorter.active() {
		w.build(tli, start, wal)
		w.count(&w.frame)
		return emit(&w.frame)
	}
	p := piece{w: w, timeline: tli, start: start, wal: wal, emit: emit}
	at := 0 // what is before it was coded or is plain, and what follows it up to the run at hand goes into the stream
	end := 0
	for _, r := range w.sorter.sort(start, wal) {
		begin := end
		end += r.bytes
		alone := r.how == whole && w.tryAlone(tli, start+protocol.LSN(begin), wal[begin:end], r.kind)
		if r.how != asIs && !alone {
			if r.how == whole {
				p.note(r.kind, r.bytes)
			}
			continue
		}
		err := p.streamed(at, begin)
		if at = end; err == nil {
			err = p.apart(begin, end, alone, r.closed)
		}
		if err != nil {
			return err
		}
	}
	if err := p.streamed(at, len(wal)); err != nil {
		return err
	}
	return p.plain(len(wal))
}

// Hurry makes a Writer of codec auto use the faster codec from the next reset boundary on, or no longer. Others do not change.
func (w *Writer) Hurry(on bool) { w.hurry = on }

// choose takes the coder for a window that begins.
func (w *Writer) choose() {
	w.coder = w.best
	if !w.hurry || w.options.Codec != Auto {
		return
	}
	if w.fast.encoder == nil {
		o := w.options
		o.Codec = Zstd
		var err error
		if w.fast.encoder, w.fast.codec, err = newEncoder(o); err != nil {
			w.fast = coder{}
			return // the better codec does it too, only slower
		}
	}
	w.coder = w.fast
}

// Reset makes the next frame start a stream. What the Writer makes from then on does not depend on what it coded before.
func (w *Writer) Reset() {
	w.stream, w.lostBetween = 0, 0
	clear(w.large)
	w.sorter.placed = false
}

// Stats returns the counts so far. It may be called at any time, from anywhere.
func (w *Writer) Stats() Stats {
	return Stats{Frames: w.frames.Load(), RawFrames: w.rawFrames.Load(), Mismatches: w.mismatches.Load(),
		RawBytes: w.rawBytes.Load(), PayloadBytes: w.payloadBytes.Load()}
}

// build leaves the sealed frame of wal, which lies within one window, in w.frame.
func (w *Writer) build(tli protocol.Timeline, start protocol.LSN, wal []byte) {
	f := &w.frame
	*f = link.Frame{Timeline: tli, Start: start, RawLen: uint32(len(wal))}
	if w.encoder == nil || !w.encode(f, wal) {
		*f = link.Frame{Timeline: tli, Start: start, RawLen: uint32(len(wal)), Payload: wal}
		f.SealRaw()
	}
	w.stream = f.StreamID() // the encoder has learnt from what now travels raw, and its reader has not: the stream is over
}

// aloneBytes is what a frame between two of the stream costs beside its payload: its header, and another one for what follows.
const aloneBytes = 2 * link.MaxFrameHeaderBytes

// largeKind is what the stream made of records of a kind that are above the threshold: how many it took in by frames that hold little else,
// and the one of these frames that came out smallest for its WAL.
type largeKind struct{ records, bytes, payload int32 }

// learntRecords is how many records of a kind the stream takes in before one may be coded alone: by then it shows what it makes of them.
const learntRecords = 4

// alonePays reports whether a record coded alone takes no more than the stream has needed at best for as much WAL of its kind.
func (w *Writer) alonePays(bytes, payload int, k kind) bool {
	l := w.large[k]
	return l.records >= learntRecords && int64(payload+aloneBytes)*int64(l.bytes) <= int64(bytes)*int64(l.payload)
}

// tryAlone codes wal, a record of kind k, without the stream in progress into w.lone, and reports whether that pays.
func (w *Writer) tryAlone(tli protocol.Timeline, start protocol.LSN, wal []byte, k kind) bool {
	if w.large == nil {
		w.large = make([]largeKind, kinds)
	}
	if w.large[k].records < learntRecords {
		return false
	}
	if w.alone.encoder == nil {
		o := w.options
		o.Codec = Zstd
		var err error
		if w.alone.encoder, w.alone.codec, err = newEncoder(o); err != nil {
			w.alone = coder{}
			return false
		}
	}
	w.alone.encoder.Begin(tli, start)
	var err error
	w.lone, err = w.alone.encoder.Append(w.lone[:0], wal)
	return err == nil && w.alonePays(len(wal), len(w.lone), k)
}

// buildAlone leaves the frame of wal, which tryAlone coded, in w.frame; or it reports false: it does not hold wal.
func (w *Writer) buildAlone(tli protocol.Timeline, start protocol.LSN, wal []byte) bool {
	f := &w.frame
	*f = link.Frame{Timeline: tli, Start: start, RawLen: uint32(len(wal)), RawSum: link.Checksum(wal)}
	w.seal(f, link.Frame{Codec: w.alone.codec}, w.lone)
	if !w.proven(f, wal) {
		return false
	}
	w.skip(wal)
	return true
}

// pass tells encoder and checking reader of wal in a raw frame that the stream goes on behind.
func (w *Writer) pass(tli protocol.Timeline, start protocol.LSN, wal []byte) {
	if w.stream != 0 {
		w.check.pass(&link.Frame{Timeline: tli, Start: start, RawLen: uint32(len(wal))}, wal)
		w.skip(wal)
	}
}

func (w *Writer) skip(wal []byte) {
	if w.stream != 0 {
		w.encoder.Skip(wal)
	}
}

// seal completes f with what form says of its codec and stream.
func (w *Writer) seal(f *link.Frame, form link.Frame, payload []byte) {
	f.Codec, f.Starts, f.Continues, f.Stream, f.Payload = form.Codec, form.Starts, form.Continues, form.Stream, payload
	f.Seal()
}

func (w *Writer) count(f *link.Frame) {
	if f.Codec == link.CodecRaw {
		w.rawFrames.Add(1)
	}
	w.frames.Add(1)
	w.rawBytes.Add(uint64(f.RawLen))
	w.payloadBytes.Add(uint64(len(f.Payload)))
}

// encode completes f as a coded frame, or reports false: it would not be smaller than wal, or it does not hold wal.
func (w *Writer) encode(f *link.Frame, wal []byte) bool {
	if w.stream == 0 {
		w.encoder.Begin(f.Timeline, f.Start)
	}
	var err error
	if w.payload, err = w.encoder.Append(w.payload[:0], wal); err != nil {
		w.mismatches.Add(1)
		return false
	}
	if len(w.payload) >= len(wal) {
		return false
	}
	f.RawSum = link.Checksum(wal)
	w.seal(f, link.Frame{Codec: w.codec, Starts: w.stream == 0, Continues: w.stream != 0, Stream: w.stream}, w.payload)
	return w.proven(f, wal)
}

// proven reports whether f decodes to wal, of which its RawSum was made; if not, it counts.
func (w *Writer) proven(f *link.Frame, wal []byte) (ok bool) {
	var err error
	w.decoded, err = w.check.decode(w.decoded[:0], f)
	if ok = err == nil && bytes.Equal(w.decoded, wal); !ok {
		w.check.stream = 0
		w.mismatches.Add(1)
	}
	return ok
}
