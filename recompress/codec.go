// Package recompress turns WAL into frames and frames into the same WAL again, byte for byte: Reader(Writer(x)) == x. It
// touches no socket, file, clock or logger.
package recompress

import (
	"fmt"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/recompress/lz4"
	"walproxy/recompress/model"
	"walproxy/recompress/undo"
	"walproxy/recompress/zstd"
)

// Codec says how a Writer codes WAL.
type Codec uint8

const (
	Auto  Codec = iota // Model, and Zstd while the Writer has to hurry
	Zstd               // undone WAL in one zstd stream per window, flushed at the end of every frame
	None               // raw frames only
	Model              // one model of records and pages per window, flushed at the end of every frame
	LZ4                // undone WAL in one lz4 block per frame
)

var codecNames = [...]string{Auto: "auto", Zstd: "zstd", None: "none", Model: "model", LZ4: "lz4"}

// Codecs returns the names that ParseCodec knows.
func Codecs() []string { return codecNames[:] }

// ParseCodec returns the codec called name: auto, model, zstd, lz4 or none.
func ParseCodec(name string) (Codec, error) {
	for c, known := range codecNames {
		if name == known {
			return Codec(c), nil
		}
	}
	return 0, fmt.Errorf("unknown codec %q: want auto, model, zstd, lz4 or none", name)
}

func (c Codec) String() string {
	if int(c) < len(codecNames) {
		return codecNames[c]
	}
	return fmt.Sprintf("codec %d", uint8(c))
}

// DefaultResetDistance is the reset distance that Options stand for when they name none, in bytes.
const DefaultResetDistance = 4 << 20

// Options choose a codec. The zero value is good: auto, the codec's default level, DefaultResetDistance.
type Options struct {
	Codec Codec
	Level int // effort of all codecs but none: 1, 3, 5, 10 or 16; 0 is the default
	// ResetDistance, in bytes, is a power of two from 1 MiB to 64 MiB. A Writer starts every stream over at multiples of it and
	// cuts its frames there; a Reader refuses frames that cross one.
	ResetDistance uint32
	// What is compressed. Whatever is not is carried in raw frames, which the stream goes on behind.
	Compress       Policy
	MaxRecordBytes int64       // records above it are not compressed; 0: there is no such bound
	Except         []Relations // records whose first block is of one of these are not compressed
	// RecordThreshold, in bytes: a record above it that a piece of WAL holds whole is coded as one unit, decodable alone, where that
	// takes no more than the stream has needed at best for as much WAL of its kind in the window. 0: none is.
	RecordThreshold int64
}

// CheckLevel returns an error if a level is chosen that nothing would use.
func (o Options) CheckLevel() error {
	if o.Level != 0 && o.Codec == None {
		return fmt.Errorf("level %d: codec %s has no levels", o.Level, o.Codec)
	}
	return nil
}

func (o Options) withDefaults() (Options, error) {
	if o.ResetDistance == 0 {
		o.ResetDistance = DefaultResetDistance
	}
	if o.Compress == CompressOff {
		o.Codec = None
	}
	if o.Level == 0 {
		o.Level = zstd.DefaultLevel
	}
	switch {
	case int(o.Codec) >= len(codecNames):
		return o, fmt.Errorf("unknown %s", o.Codec)
	case int(o.Compress) >= len(policyNames) || o.MaxRecordBytes < 0 || o.RecordThreshold < 0:
		return o, fmt.Errorf("compress %d, at most %d bytes, threshold %d: out of range", o.Compress, o.MaxRecordBytes, o.RecordThreshold)
	case !link.ValidResetDistance(uint64(o.ResetDistance)):
		return o, fmt.Errorf("reset distance %d bytes: want a power of two from 1 MiB to 64 MiB", o.ResetDistance)
	case !zstd.ValidLevel(o.Level):
		return o, fmt.Errorf("level %d: want one of %v", o.Level, zstd.Levels)
	}
	return o, nil
}

// encoder codes the WAL of one stream, piece by piece. Begin comes first, and again after an error. Implementations keep
// their memory from stream to stream.
type encoder interface {
	Begin(tli protocol.Timeline, start protocol.LSN)
	// Append appends the payload that carries wal as the next piece of the stream to dst and returns the extended buffer.
	Append(dst, wal []byte) ([]byte, error)
	// Skip tells the stream of WAL that is its next piece and travels without it.
	Skip(wal []byte)
}

// decoder undoes an encoder. Begin comes first, and again after an error. Whatever the payload, Append neither blocks nor
// panics, and appends no more than rawBytes bytes.
type decoder interface {
	Begin(tli protocol.Timeline, start protocol.LSN) error
	Append(dst, payload []byte, rawBytes int) ([]byte, error)
	Skip(wal []byte)
}

// linkCodec returns the codec of the frames that o stands for.
func (o Options) linkCodec() link.Codec {
	switch o.Codec {
	case None:
		return link.CodecRaw
	case Model, Auto:
		return link.CodecModel
	case LZ4:
		return link.CodecLZ4
	}
	return link.CodecZstd
}

// newEncoder returns what codes for o, and the codec of its frames; nil and CodecRaw if WAL is not coded at all.
func newEncoder(o Options) (encoder, link.Codec, error) {
	codec := o.linkCodec()
	switch codec {
	case link.CodecRaw:
		return nil, codec, nil
	case link.CodecModel:
		return &modelEncoder{model.NewEncoder(predictions[o.Level])}, codec, nil
	case link.CodecLZ4:
		e, err := lz4.NewEncoder(o.Level)
		return &undoneEncoder{undo: undo.NewEncoder(), inner: e}, codec, err
	}
	e, err := zstd.NewEncoder(o.Level, o.ResetDistance)
	return &undoneEncoder{undo: undo.NewEncoder(), inner: e}, codec, err
}

// newDecoder returns what undoes the frames of codec, or *link.VersionError if this version cannot.
func newDecoder(codec link.Codec) (decoder, error) {
	switch codec {
	case link.CodecZstd:
		d, err := zstd.NewDecoder()
		return &undoneDecoder{undo: undo.NewDecoder(), inner: d}, err
	case link.CodecLZ4:
		return &undoneDecoder{undo: undo.NewDecoder(), inner: lz4.Decoder{}}, nil
	case link.CodecModel:
		return &modelDecoder{model.NewDecoder()}, nil
	}
	return nil, &link.VersionError{What: "codec", Got: int(codec)}
}
