package recompress

import (
	"walproxy/protocol"
	"walproxy/protocol/link"
)

// Reader turns frames into WAL. It may start anywhere that does not continue a stream, and jump. Decoders and buffers are
// reused from stream to stream. Not safe for concurrent use.
type Reader struct {
	limit    uint64 // reset distance
	codec    link.Codec
	decoder  decoder // of codec; nil before the first coded frame
	stream   uint32  // identity of the stream that decoder is in; 0 if none
	timeline protocol.Timeline
	next     protocol.LSN // where the stream goes on

	alone      decoder // of frames that belong to no stream; nil before the first one
	aloneCodec link.Codec
}

// NewReader returns a Reader. Of o only ResetDistance matters, the largest that frames may have.
func NewReader(o Options) (*Reader, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Reader{limit: uint64(o.ResetDistance)}, nil
}

// Decode appends the f.RawLen bytes of WAL that f carries to dst and returns the extended buffer; dst as it was if there is an
// error or f is the end of a timeline. f is as a link.Cursor returned it: its Sum is not checked again, its RawSum is. Neither
// f nor its payload is retained.
//
// Errors: *link.UnseenStreamError if f continues a stream of which it is not the next frame for this Reader: decode from the
// stream's start; *link.VersionError for a codec that this version lacks; *link.CorruptError, of class link.ErrCorrupt, if the
// payload is not the WAL that f claims. After any of them the Reader goes on with any frame that does not continue a stream.
func (r *Reader) Decode(dst []byte, f *link.Frame) ([]byte, error) {
	out, err := r.decode(dst, f)
	if err == nil && f.Codec != link.CodecRaw && f.Codec != link.CodecTimelineEnd && !f.Holds(out[len(dst):]) {
		r.stream = 0
		return dst, errWAL(f)
	}
	return out, err
}

// decode is Decode for whoever compares the WAL of a coded frame itself, not its checksum.
func (r *Reader) decode(dst []byte, f *link.Frame) ([]byte, error) {
	if f.Codec == link.CodecTimelineEnd {
		return dst, nil
	}
	if err := r.room(f); err != nil {
		return dst, err
	}
	out, err := r.undo(dst, f)
	if err == nil && len(out)-len(dst) != int(f.RawLen) {
		err = corrupt(f, "length of the decoded WAL")
	}
	if err != nil {
		r.stream = 0
		return dst, err
	}
	return out, nil
}

// View is Decode without a copy of what a raw frame carries: the WAL lies in f's payload then, else in buf, which it replaces. next
// is the buffer for the call after this one.
func (r *Reader) View(buf []byte, f *link.Frame) (wal, next []byte, err error) {
	if f.Codec != link.CodecRaw {
		wal, err = r.Decode(buf[:0], f)
		return wal, wal, err
	}
	if err := r.room(f); err != nil {
		return nil, buf, err
	}
	if err := r.raw(f); err != nil {
		r.stream = 0
		return nil, buf, err
	}
	return f.Payload, buf, nil
}

// room checks that f stays within its window.
func (r *Reader) room(f *link.Frame) error {
	if room := r.limit - uint64(f.Start)&(r.limit-1); f.RawLen == 0 || uint64(f.RawLen) > room {
		return corrupt(f, "raw length crosses a reset boundary")
	}
	return nil
}

// raw checks a raw frame and tells the stream in progress of it.
func (r *Reader) raw(f *link.Frame) error {
	if len(f.Payload) != int(f.RawLen) || f.Starts || f.Continues {
		return corrupt(f, "malformed raw frame")
	}
	if !f.CarriesWAL() {
		return errWAL(f)
	}
	r.pass(f, f.Payload)
	return nil
}

func errWAL(f *link.Frame) error { return corrupt(f, "checksum of the decoded WAL") }

func (r *Reader) undo(dst []byte, f *link.Frame) ([]byte, error) {
	if f.Codec == link.CodecRaw {
		if err := r.raw(f); err != nil {
			return dst, err
		}
		return append(dst, f.Payload...), nil
	}
	if !f.Starts && !f.Continues {
		return r.undoAlone(dst, f)
	}
	if err := r.position(f); err != nil {
		return dst, err
	}
	dst, err := r.decoder.Append(dst, f.Payload, int(f.RawLen))
	if err != nil {
		return dst, corrupt(f, err.Error())
	}
	r.stream, r.timeline, r.next = f.StreamID(), f.Timeline, f.End()
	return dst, nil
}

// pass tells the stream in progress of a frame that follows it and does not belong to it. The next one may continue the stream.
func (r *Reader) pass(f *link.Frame, wal []byte) {
	if r.stream != 0 && f.Timeline == r.timeline && f.Start == r.next {
		r.decoder.Skip(wal)
		r.next = f.End()
	}
}

// undoAlone decodes a coded frame that belongs to no stream, beside the stream in progress.
func (r *Reader) undoAlone(dst []byte, f *link.Frame) ([]byte, error) {
	if r.alone == nil || r.aloneCodec != f.Codec {
		d, err := newDecoder(f.Codec)
		if err != nil {
			return dst, err
		}
		r.alone, r.aloneCodec = d, f.Codec
	}
	from := len(dst)
	err := r.alone.Begin(f.Timeline, f.Start)
	if err == nil {
		dst, err = r.alone.Append(dst, f.Payload, int(f.RawLen))
	}
	if err != nil {
		return dst, corrupt(f, err.Error())
	}
	r.pass(f, dst[from:])
	return dst, nil
}

// position makes sure that the decoder stands where f was encoded.
func (r *Reader) position(f *link.Frame) error {
	if f.Continues {
		if r.stream == 0 || f.Stream != r.stream || f.Codec != r.codec || f.Timeline != r.timeline || f.Start != r.next {
			return &link.UnseenStreamError{Timeline: f.Timeline, LSN: f.Start}
		}
		if uint64(f.Start)&(r.limit-1) == 0 {
			return corrupt(f, "a stream goes on behind a reset boundary")
		}
		return nil
	}
	if r.decoder == nil || r.codec != f.Codec {
		d, err := newDecoder(f.Codec)
		if err != nil {
			return err
		}
		r.decoder, r.codec = d, f.Codec
	}
	return r.decoder.Begin(f.Timeline, f.Start)
}

func corrupt(f *link.Frame, what string) error {
	return &link.CorruptError{Timeline: f.Timeline, LSN: f.Start, What: what}
}
