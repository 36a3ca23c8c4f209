package recompress

import (
	"encoding/binary"
	"errors"
	"fmt"

	"walproxy/protocol"
	"walproxy/recompress/undo"
)

var errUndoneLength = errors.New("length of the undone WAL")

// undoneEncoder undoes WAL and gives the rest to a general compressor. Its payload is the length of the undone form, a varint,
// and what the compressor makes of it. A defect in undoing must not end the process: see modelEncoder.
type undoneEncoder struct {
	undo   *undo.Encoder
	inner  compressor
	undone []byte
}

func (e *undoneEncoder) Begin(tli protocol.Timeline, start protocol.LSN) {
	e.undo.Reset(tli, start)
	e.inner.Begin(tli, start)
}

func (e *undoneEncoder) Append(dst, wal []byte) (out []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			out, err = dst, fmt.Errorf("undo WAL: %v", p)
		}
	}()
	e.undone = e.undo.Append(e.undone[:0], wal)
	return e.inner.Append(binary.AppendUvarint(dst, uint64(len(e.undone))), e.undone)
}

func (e *undoneEncoder) Skip(wal []byte) { e.undo.Skip(wal) }

// undoneDecoder undoes an undoneEncoder.
type undoneDecoder struct {
	undo   *undo.Decoder
	inner  expander
	undone []byte
}

func (d *undoneDecoder) Begin(tli protocol.Timeline, start protocol.LSN) error {
	d.undo.Reset(tli, start)
	return d.inner.Begin(tli, start)
}

func (d *undoneDecoder) Append(dst, payload []byte, rawBytes int) (out []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			out, err = dst, fmt.Errorf("redo WAL: %v", p)
		}
	}()
	n, at := binary.Uvarint(payload)
	if at <= 0 || n > uint64(undo.MaxBytes(rawBytes)) {
		return dst, errUndoneLength
	}
	if d.undone, err = d.inner.Append(d.undone[:0], payload[at:], int(n)); err != nil {
		return dst, err
	}
	return d.undo.Append(dst, d.undone, rawBytes)
}

func (d *undoneDecoder) Skip(wal []byte) { d.undo.Skip(wal) }

// compressor and expander are the two sides of a general compressor.
type (
	compressor interface {
		Begin(tli protocol.Timeline, start protocol.LSN)
		Append(dst, src []byte) ([]byte, error)
	}
	expander interface {
		Begin(tli protocol.Timeline, start protocol.LSN) error
		Append(dst, payload []byte, n int) ([]byte, error)
	}
)
