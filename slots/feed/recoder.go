package feed

import (
	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/recompress"
)

// recoder makes frames for a node that cannot continue the streams of the frames that there are. It holds an encoder only
// while it is at work.
type recoder struct {
	options recompress.Options
	writer  *recompress.Writer
	frames  []link.Frame // made by the last code; their payloads lie in buf
	buf     []byte
	at      int // first of frames that next has not returned
}

// code makes frames of wal. They replace those made before, and are valid until the next call. wal is not retained.
func (r *recoder) code(tli protocol.Timeline, start protocol.LSN, wal []byte, distance uint32) error {
	if r.writer == nil || r.options.ResetDistance != distance {
		o := r.options
		o.ResetDistance = distance
		w, err := recompress.NewWriter(o)
		if err != nil {
			return err
		}
		r.writer, r.options = w, o
	}
	r.frames, r.buf, r.at = r.frames[:0], r.buf[:0], 0
	add := func(f *link.Frame) error {
		r.buf = append(r.buf, f.Payload...)
		r.frames = append(r.frames, *f)
		return nil
	}
	if err := r.writer.Write(tli, start, wal, add); err != nil {
		return err
	}
	rest := r.buf // may have moved while it grew
	for i := range r.frames {
		n := len(r.frames[i].Payload)
		r.frames[i].Payload, rest = rest[:n:n], rest[n:]
	}
	return nil
}

// next returns the next frame made, or nil.
func (r *recoder) next() *link.Frame {
	if r.at >= len(r.frames) {
		return nil
	}
	r.at++
	return &r.frames[r.at-1]
}

// end lets go of the encoder.
func (r *recoder) end() { r.writer, r.buf, r.frames, r.at = nil, nil, nil, 0 }
