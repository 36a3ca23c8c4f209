package zstd

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/klauspost/compress/zstd"

	"walproxy/protocol"
)

var (
	errEndsEarly = errors.New("payload ends before its WAL does")
	errTooLong   = errors.New("payload goes on behind its WAL")
)

// growBytes is how far the output is extended at a time, so that what is allocated follows what was decoded, not what a
// header claims.
const growBytes = 1 << 20

// Decoder undoes the payloads of a stream, one frame at a time. It keeps a history of MaxWindowBytes at most. Its buffers are
// reused from stream to stream. Not safe for concurrent use.
type Decoder struct {
	dec *zstd.Decoder
	in  feed
}

// NewDecoder returns a decoder. Memory is taken by the first stream, by the size of its window.
func NewDecoder() (*Decoder, error) {
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(false),
		zstd.WithDecoderMaxWindow(MaxWindowBytes), zstd.WithDecoderMaxMemory(MaxWindowBytes))
	if err != nil {
		return nil, fmt.Errorf("make zstd decoder: %w", err)
	}
	return &Decoder{dec: dec}, nil
}

// Begin forgets the stream; the next Append starts another.
func (d *Decoder) Begin(protocol.Timeline, protocol.LSN) error {
	d.in = nil
	if err := d.dec.Reset(&d.in); err != nil {
		return fmt.Errorf("begin zstd stream: %w", err)
	}
	return nil
}

// Append appends to dst the rawBytes bytes of WAL that payload carries as the next piece of the stream, and returns the
// extended buffer. It reads from payload alone, so it never waits. payload is not retained. An error, whatever its type, means
// that the payload is not what an encoder made at this point of the stream; the stream is unusable until Begin.
func (d *Decoder) Append(dst, payload []byte, rawBytes int) ([]byte, error) {
	d.in = payload
	for rawBytes > 0 {
		n := min(rawBytes, growBytes)
		dst = slices.Grow(dst, n)
		got, err := io.ReadFull(d.dec, dst[len(dst):len(dst)+n])
		dst, rawBytes = dst[:len(dst)+got], rawBytes-got
		switch {
		case err == nil:
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return dst, errEndsEarly
		default:
			return dst, fmt.Errorf("decode zstd: %w", err)
		}
	}
	rest := len(d.in)
	d.in = nil
	if rest > 0 {
		return dst, errTooLong
	}
	return dst, nil
}

// feed is what is left of the payload in progress. Its end is the end of the frame, so the decoder must not ask beyond it.
type feed []byte

func (f *feed) Read(p []byte) (int, error) {
	if len(*f) == 0 {
		return 0, io.EOF
	}
	n := copy(p, *f)
	*f = (*f)[n:]
	return n, nil
}
