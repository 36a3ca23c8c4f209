package model

import (
	"slices"

	"walproxy/protocol"
	"walproxy/recompress/image"
	"walproxy/recompress/rangecoder"
)

// Encoder codes the WAL of one stream, piece by piece. Not safe for concurrent use.
type Encoder struct{ m *model }

// MaxPredictions is how many predictions an Encoder can combine for each decision.
const MaxPredictions = rangecoder.MaxPredictions

// NewEncoder returns an Encoder that combines so many predictions for each decision, 1 to MaxPredictions: more are smaller and slower.
// The stream says how many they are. The Encoder needs Reset before its first piece.
func NewEncoder(predictions int) *Encoder {
	e := &Encoder{m: newModel()}
	e.m.predictions = predictions
	if opener, err := image.NewOpener(); err == nil {
		e.m.compressed.opener = opener
	}
	return e
}

// Reset begins a stream at start on tli. Its memory is kept.
func (e *Encoder) Reset(tli protocol.Timeline, start protocol.LSN) { e.m.reset(tli, start) }

// Append codes wal, which follows what was coded since Reset, and appends the payload, complete in itself, to dst. wal may
// begin and end anywhere and hold anything; it is not changed and not retained. The payload is the same on every machine.
func (e *Encoder) Append(dst, wal []byte) []byte {
	m := e.m
	m.decoding = false
	m.wal, m.at, m.end = wal, 0, len(wal)
	m.Encode(dst)
	m.begin()
	for m.at < m.end {
		m.item()
	}
	m.wal = nil
	m.rec.drop()
	return m.Finish()
}

// Decoder undoes an Encoder. Not safe for concurrent use.
type Decoder struct{ m *model }

// NewDecoder returns a Decoder that needs Reset before its first payload.
func NewDecoder() *Decoder { return &Decoder{m: newModel()} }

// Reset begins a stream at start on tli, as the Encoder's Reset did.
func (d *Decoder) Reset(tli protocol.Timeline, start protocol.LSN) { d.m.reset(tli, start) }

// Decode appends the rawBytes bytes of WAL that payload holds to dst. Payloads must come in the order in which they were made.
//
// Errors: *CorruptError if no Encoder wrote payload; the stream is over then, and every later call fails until Reset. A damaged
// payload may also decode to other bytes: the frame around it carries the checksum.
func (d *Decoder) Decode(dst, payload []byte, rawBytes int) ([]byte, error) {
	m := d.m
	if m.err != nil {
		return dst, m.err
	}
	m.decoding = true
	m.wal, m.at, m.end = slices.Grow(dst, rawBytes), len(dst), len(dst)+rawBytes
	m.Decode(payload)
	m.begin()
	for m.at < m.end && m.err == nil {
		m.item()
		if m.Overrun() {
			m.corrupt("payload too short")
		}
	}
	out := m.wal
	m.wal = nil
	m.rec.drop()
	if m.err != nil {
		return out[:len(dst)], m.err
	}
	return out, nil
}
