// Package zstd codes WAL bytes as a zstd stream that is flushed at the end of every frame. The payloads of the frames of one
// stream, one after the other, are a zstd frame as in RFC 8878, without content size, checksum or dictionary; it need not end.
// It is pure and holds no goroutine.
package zstd

import (
	"fmt"
	"slices"

	"github.com/klauspost/compress/zstd"

	"walproxy/protocol"
)

// DefaultLevel is the effort that is used when none is asked for.
const DefaultLevel = 3

// MaxWindowBytes bounds the zstd window, hence the history that a decoder keeps per stream, whatever the reset distance. It is
// the window that RFC 8878 asks every decoder to support.
const MaxWindowBytes = 8 << 20

// Levels are the efforts that can be asked for, the least first. 1 and 3 are the same search at present: on undone WAL the next
// one takes half as long again for 1 to 6 % less.
var Levels = []int{1, 3, 5, 10, 16}

var efforts = []zstd.EncoderLevel{
	zstd.SpeedFastest, zstd.SpeedFastest, zstd.SpeedDefault, zstd.SpeedBetterCompression, zstd.SpeedBestCompression,
}

// ValidLevel reports whether level is one of Levels.
func ValidLevel(level int) bool { return slices.Contains(Levels, level) }

// Encoder makes the payloads of a stream. Its tables and buffers are reused from stream to stream. Not safe for concurrent use.
type Encoder struct {
	enc *zstd.Encoder
	out appender
}

// NewEncoder returns an encoder of the given level whose streams are windowBytes long at most; matches reach back that far, or
// MaxWindowBytes if it is longer. Memory is taken by the first stream.
func NewEncoder(level int, windowBytes uint32) (*Encoder, error) {
	at := slices.Index(Levels, level)
	if at < 0 {
		return nil, fmt.Errorf("zstd level %d: want one of %v", level, Levels)
	}
	enc, err := zstd.NewWriter(nil,
		zstd.WithEncoderLevel(efforts[at]), zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true),
		zstd.WithWindowSize(int(min(windowBytes, MaxWindowBytes))), zstd.WithEncoderCRC(false))
	if err != nil {
		return nil, fmt.Errorf("make zstd encoder: %w", err)
	}
	return &Encoder{enc: enc}, nil
}

// Begin forgets the stream; the next Append starts another.
func (e *Encoder) Begin(protocol.Timeline, protocol.LSN) { e.enc.Reset(&e.out) }

// Append appends to dst the payload that carries wal as the next piece of the stream, and returns the extended buffer. wal is
// not retained. After an error the stream is unusable until Begin.
func (e *Encoder) Append(dst, wal []byte) ([]byte, error) {
	e.out.buf = dst
	_, err := e.enc.Write(wal)
	if err == nil {
		err = e.enc.Flush()
	}
	dst, e.out.buf = e.out.buf, nil
	if err != nil {
		return dst, fmt.Errorf("encode zstd: %w", err)
	}
	return dst, nil
}

// appender is the io.Writer behind an encoder: it appends to the buffer of the call in progress.
type appender struct{ buf []byte }

func (a *appender) Write(p []byte) (int, error) {
	a.buf = append(a.buf, p...)
	return len(p), nil
}
