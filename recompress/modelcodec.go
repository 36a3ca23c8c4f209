package recompress

import (
	"fmt"

	"walproxy/protocol"
	"walproxy/recompress/model"
)

// predictions are how many the model combines for each decision, by level.
var predictions = map[int]int{1: 1, 3: 1, 5: 2, 10: 3, 16: 4}

// modelEncoder is a model.Encoder as an encoder. The model is large, so a defect in it must not end the process: a panic
// becomes an error, the frame goes out raw and is counted as a mismatch, and Begin clears all of the model's state.
type modelEncoder struct{ model *model.Encoder }

func (e *modelEncoder) Begin(tli protocol.Timeline, start protocol.LSN) { e.model.Reset(tli, start) }

func (e *modelEncoder) Append(dst, wal []byte) (out []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			out, err = dst, fmt.Errorf("model encoder: %v", p)
		}
	}()
	return e.model.Append(dst, wal), nil
}

func (e *modelEncoder) Skip(wal []byte) { e.model.Skip(wal) }

// modelDecoder is a model.Decoder as a decoder, guarded in the same way.
type modelDecoder struct{ model *model.Decoder }

func (d *modelDecoder) Begin(tli protocol.Timeline, start protocol.LSN) error {
	d.model.Reset(tli, start)
	return nil
}

func (d *modelDecoder) Append(dst, payload []byte, rawBytes int) (out []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			out, err = dst, fmt.Errorf("model decoder: %v", p)
		}
	}()
	return d.model.Decode(dst, payload, rawBytes)
}

func (d *modelDecoder) Skip(wal []byte) { d.model.Skip(wal) }
