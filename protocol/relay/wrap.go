package relay

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/klauspost/compress/zstd"

	"walproxy/protocol/datapage"
	"walproxy/protocol/link"
)

const (
	windowBytes  = 512 << 10 // of the compression, and the most of it that a decoder holds
	payloadBytes = 64 << 10  // of one message at most
)

// Wrapper compresses the answer of an upstream for a downstream node: a zstd stream of blocks, cut into the CopyData messages that
// protocol/link/FORMAT.md describes. One goroutine uses it.
type Wrapper struct {
	encoder *zstd.Encoder
	answer  []byte // what no block holds yet
	block   []byte
	pages   datapage.Pages
	dirty   bool
}

// NewWrapper returns a wrapper whose messages go to dst, one Write each.
func NewWrapper(dst io.Writer) (*Wrapper, error) {
	encoder, err := zstd.NewWriter(&messageWriter{dst: dst}, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(windowBytes),
		zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false)) // blocks have checksums
	if err != nil {
		return nil, fmt.Errorf("wrap base backup: %w", err)
	}
	return &Wrapper{
		encoder: encoder, answer: make([]byte, 0, blockBytes), block: make([]byte, 0, blockHeaderBytes+maxFormBytes),
	}, nil
}

// Write takes messages as they come from the upstream.
func (w *Wrapper) Write(p []byte) (n int, err error) {
	w.dirty = true
	for n < len(p) {
		take := min(len(p)-n, blockBytes-len(w.answer))
		w.answer = append(w.answer, p[n:n+take]...)
		n += take
		if len(w.answer) == blockBytes {
			if err := w.encode(false); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// encode compresses a block of what there is; all of it, or what does not cut a page.
func (w *Wrapper) encode(all bool) error {
	if len(w.answer) == 0 {
		return nil
	}
	var taken int
	w.block, taken = appendBlock(w.block[:0], w.answer, &w.pages, all)
	w.answer = w.answer[:copy(w.answer, w.answer[taken:])]
	_, err := w.encoder.Write(w.block)
	return err
}

// Dirty reports whether there is something that Flush would send.
func (w *Wrapper) Dirty() bool { return w.dirty }

// Flush sends everything that was written.
func (w *Wrapper) Flush() error {
	w.dirty = false
	if err := w.encode(true); err != nil {
		return err
	}
	return w.encoder.Flush()
}

// Close sends the rest and the end of the zstd stream.
func (w *Wrapper) Close() error {
	if err := w.encode(true); err != nil {
		return err
	}
	return w.encoder.Close()
}

// messageWriter makes CopyData messages of what is written to it.
type messageWriter struct {
	dst io.Writer
	buf []byte
}

func (m *messageWriter) Write(p []byte) (n int, err error) {
	for n < len(p) {
		piece := p[n:min(len(p), n+payloadBytes)]
		m.buf = append(m.buf[:0], 'd', 0, 0, 0, 0, link.MessageBackup)
		m.buf = append(m.buf, piece...)
		be.PutUint32(m.buf[1:], uint32(len(m.buf)-1))
		if _, err := m.dst.Write(m.buf); err != nil {
			return n, err
		}
		n += len(piece)
	}
	return n, nil
}

// RefusedError is the error with which an upstream node itself, not the server behind it, ended its answer.
type RefusedError struct{ Message []byte } // the whole ErrorResponse

func (e *RefusedError) Error() string { return "the upstream node refused or broke off" }

// Unwrapper is the reader of what a Wrapper was given. One goroutine uses it.
type Unwrapper struct {
	messages *Scanner
	decoder  *zstd.Decoder
	zstd     []byte // of the message that arrived last
	form     []byte // of a block
	content  []byte // of the block in progress
	read     int    // bytes of it that were read
	pages    datapage.Pages
	err      error // what ended the answer
	ready    bool  // ReadyForQuery has arrived
}

// NewUnwrapper reads a node's answer from src. The caller closes it.
func NewUnwrapper(src io.Reader) (*Unwrapper, error) {
	u := &Unwrapper{messages: NewScanner(src, func(byte) bool { return true })}
	decoder, err := zstd.NewReader(&payload{u}, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(windowBytes),
		zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, fmt.Errorf("unwrap base backup: %w", err)
	}
	u.decoder = decoder
	return u, nil
}

// Read implements io.Reader. Errors: *RefusedError; io.EOF behind the end; of class ErrMessage; those of the source.
func (u *Unwrapper) Read(p []byte) (int, error) {
	if u.read == len(u.content) {
		h, err := u.next()
		switch {
		case err != nil && u.err != nil && !errors.Is(err, io.EOF):
			return 0, u.err
		case err != nil:
			return 0, err
		}
		if h.raw <= len(p) { // no need to copy it
			if _, err := h.appendContent(p[:0], u.form, &u.pages); err != nil {
				return 0, err
			}
			return h.raw, nil
		}
		u.read = 0
		if u.content, err = h.appendContent(u.content[:0], u.form, &u.pages); err != nil {
			u.content = u.content[:0]
			return 0, err
		}
	}
	n := copy(p, u.content[u.read:])
	u.read += n
	return n, nil
}

// next waits for the next block and reads its form. io.EOF says that the stream is over, and whole.
func (u *Unwrapper) next() (blockHeader, error) {
	u.form = slices.Grow(u.form[:0], blockHeaderBytes)[:blockHeaderBytes]
	if _, err := io.ReadFull(u.decoder, u.form); err != nil {
		return blockHeader{}, err
	}
	h, err := parseBlockHeader(u.form)
	if err != nil {
		return blockHeader{}, err
	}
	u.form = slices.Grow(u.form[:0], h.form)[:h.form]
	_, err = io.ReadFull(u.decoder, u.form)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return h, err
}

// Drain reads the answer up to ReadyForQuery, behind which the connection can be used again.
func (u *Unwrapper) Drain() error {
	for !u.ready {
		if _, err := u.message(); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
	}
	return nil
}

// Close releases the decoder.
func (u *Unwrapper) Close() { u.decoder.Close() }

// payload is the zstd stream in an answer.
type payload struct{ of *Unwrapper }

func (p *payload) Read(b []byte) (int, error) {
	u := p.of
	for len(u.zstd) == 0 {
		if u.err == nil {
			u.zstd, u.err = u.message()
		}
		if u.err != nil {
			return 0, u.err
		}
	}
	n := copy(b, u.zstd)
	u.zstd = u.zstd[n:]
	return n, nil
}

// message reads one message and returns the piece of the zstd stream in it, if any. io.EOF says that the stream is over.
func (u *Unwrapper) message() ([]byte, error) {
	m, err := u.messages.Next()
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		u.ready = true // there is no more to come
		return nil, err
	}
	switch m.Kind {
	case 'd':
		if body := m.Body(); len(body) > 0 && body[0] == link.MessageBackup {
			return body[1:], nil
		}
		return nil, fmt.Errorf("%w: CopyData that is no part of a base backup", ErrMessage)
	case 'E':
		return nil, &RefusedError{Message: append([]byte(nil), m.Bytes...)}
	case 'c':
		return nil, io.EOF
	case 'Z':
		u.ready = true
		return nil, io.EOF
	case 'H', 'C', 'N', 'S':
		return nil, nil
	}
	return nil, fmt.Errorf("%w: %q in a node's answer to BASE_BACKUP", ErrMessage, m.Kind)
}
