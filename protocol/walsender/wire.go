package walsender

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"walproxy/protocol"
)

// maxMessageBytes bounds what a client may send in one message: commands, passwords, reports and acknowledgements are all
// much shorter. It also bounds a startup packet, whose own limit is lower.
const maxMessageBytes = 16 << 10

// frontendMessages are the kinds of message that PostgreSQL reads at all.
//
// Source: PostgreSQL src/backend/tcop/postgres.c, SocketBackend (13-18).
const frontendMessages = "QFXBCDEHPScdfp"

// errClosed ends a session without a word to the client, as the server does for what it can only log.
var errClosed = errors.New("connection closed")

var be = binary.BigEndian

// wire is the connection of one session. One goroutine reads; that one also appends to out and flushes, while writes of
// a stream go around out.
type wire struct {
	raw    net.Conn // the socket: deadlines, addresses
	conn   net.Conn // raw, or TLS over it: reads, writes, Close
	in     *bufio.Reader
	unread int // length of the message that next returned last, still in the buffer
	out    []byte
	status byte // of ReadyForQuery

	mu          sync.Mutex
	interrupted bool
}

func newWire(conn net.Conn) *wire {
	return &wire{status: 'I', raw: conn, conn: conn, in: bufio.NewReaderSize(conn, 1+4+maxMessageBytes)}
}

// errUnencrypted is the class of errors about bytes that came before the encryption which they should have come under.
var errUnencrypted = errors.New("unencrypted data before the handshake")

// encrypt does the handshake of TLS, as its server; the deadline of reads bounds it. With replay what has arrived already is the
// handshake's beginning. Bytes that do not belong to it are of class errUnencrypted, which the client is still told.
//
// Source: PostgreSQL src/backend/libpq/be-secure.c, secure_open_server: with replay in 17-18, without in 13-16.
func (w *wire) encrypt(config *tls.Config, replay bool) (tls.ConnectionState, error) {
	if err := w.skip(); err != nil {
		return tls.ConnectionState{}, err
	}
	var below net.Conn = w.raw
	if replay {
		below = &resumed{w.raw, w.in}
	}
	conn := tls.Server(below, config)
	if err := w.raw.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return tls.ConnectionState{}, err
	}
	if err := conn.Handshake(); err != nil {
		return tls.ConnectionState{}, fmt.Errorf("TLS handshake: %w", err)
	}
	early := w.in.Buffered() > 0
	w.conn, w.in = conn, bufio.NewReaderSize(conn, 1+4+maxMessageBytes)
	if early {
		return tls.ConnectionState{}, errUnencrypted
	}
	return conn.ConnectionState(), nil
}

// resumed is a connection of which some bytes have been read into in. It reads no more into it.
type resumed struct {
	net.Conn
	in *bufio.Reader
}

func (r *resumed) Read(b []byte) (int, error) {
	if r.in.Buffered() > 0 {
		return r.in.Read(b)
	}
	return r.Conn.Read(b)
}

// next returns the next message; body is valid until the following call. A read that is interrupted or times out can be
// tried again: what has arrived stays in the buffer.
func (w *wire) next() (kind byte, body []byte, err error) {
	if err := w.skip(); err != nil {
		return 0, nil, err
	}
	head, err := w.in.Peek(1)
	if err != nil {
		return 0, nil, err
	}
	kind = head[0]
	if strings.IndexByte(frontendMessages, kind) < 0 {
		return 0, nil, protocol.Fatalf(protocol.CodeProtocolViolation, "invalid frontend message type %d", kind)
	}
	if head, err = w.peek(5); err != nil {
		return 0, nil, err
	}
	length := be.Uint32(head[1:])
	if length < 4 || length > 4+maxMessageBytes {
		return 0, nil, fmt.Errorf("%w: invalid message length %d", errClosed, length)
	}
	message, err := w.peek(1 + int(length))
	if err != nil {
		return 0, nil, err
	}
	w.unread = len(message)
	return kind, message[5:], nil
}

// peek waits for n bytes, of which some have come already.
func (w *wire) peek(n int) ([]byte, error) {
	b, err := w.in.Peek(n)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return b, err
}

// skip drops the message that was returned last.
func (w *wire) skip() error {
	_, err := w.in.Discard(w.unread) // it is in the buffer
	w.unread = 0
	return err
}

// readDeadline bounds reads; the zero time does not. It has no effect while the wire is interrupted.
func (w *wire) readDeadline(t time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.interrupted {
		return nil
	}
	return w.raw.SetReadDeadline(t)
}

// interrupt makes reads fail at once, now and until resume.
func (w *wire) interrupt() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.interrupted = true
	_ = w.raw.SetReadDeadline(time.Unix(1, 0)) // a connection that is closed needs no interruption
}

func (w *wire) resume() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.interrupted = false
	return w.raw.SetReadDeadline(time.Time{})
}

// encoder is a message of pgproto3.
type encoder interface{ Encode([]byte) ([]byte, error) }

// add appends messages to what flush will send.
func (w *wire) add(messages ...encoder) error {
	for _, m := range messages {
		out, err := m.Encode(w.out)
		if err != nil {
			return fmt.Errorf("encode message: %w", err)
		}
		w.out = out
	}
	return nil
}

// flush sends what was appended, within writeTimeout.
func (w *wire) flush() error {
	if len(w.out) == 0 {
		return nil
	}
	if err := w.raw.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	_, err := w.conn.Write(w.out)
	w.out = w.out[:0]
	return err
}

// linger says that nothing follows, and drops what the client still sends until it closes its side: a socket that is closed while
// bytes of the client are unread, or on their way, resets the connection, and what the client has not read by then is lost to it,
// the reason of the end too. It takes writeTimeout at most, lastWordTimeout once ctx has ended.
func (w *wire) linger(ctx context.Context) {
	if c, ok := w.conn.(*tls.Conn); ok && c.CloseWrite() != nil {
		return
	}
	half, ok := w.raw.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil || w.raw.SetReadDeadline(time.Now().Add(writeTimeout)) != nil {
		return
	}
	defer after(ctx, func() { _ = w.raw.SetReadDeadline(time.Now().Add(lastWordTimeout)) })()
	_, _ = io.Copy(io.Discard, w.raw) // whatever ends it
}

// writeTimeout bounds the sending of an answer that is not a stream.
const writeTimeout = 30 * time.Second

// ready appends ReadyForQuery and sends everything.
func (w *wire) ready() error {
	if err := w.add(&pgproto3.ReadyForQuery{TxStatus: w.status}); err != nil {
		return err
	}
	return w.flush()
}

// fail appends an ErrorResponse.
func (w *wire) fail(e *protocol.Error) error {
	return w.add(&pgproto3.ErrorResponse{
		Severity: e.Severity, SeverityUnlocalized: e.Severity, Code: e.Code, Message: e.Message, Detail: e.Detail, Hint: e.Hint,
	})
}

// notice appends a NoticeResponse.
func (w *wire) notice(e *protocol.Error) error {
	return w.add(&pgproto3.NoticeResponse{Severity: e.Severity, SeverityUnlocalized: e.Severity, Code: e.Code, Message: e.Message})
}

// maxCopyBytes bounds a message of a copy that a client sends, of which nothing is held.
//
// Source: PostgreSQL src/include/libpq/libpq.h, PQ_LARGE_MESSAGE_LIMIT (14-18).
const maxCopyBytes = 1<<30 - 1

// copyIn writes the client's messages to dst, up to the end of a copy: CopyDone, CopyFail, or a message that has no place in it,
// with which the upstream ends it. Errors: errClosed, or of the connections.
func (w *wire) copyIn(dst io.Writer) error {
	if err := w.skip(); err != nil {
		return err
	}
	out := bufio.NewWriterSize(dst, 64<<10)
	for {
		head, err := w.peek(copyHeaderBytes)
		if err != nil {
			return closed(err)
		}
		kind, length := head[0], int64(be.Uint32(head[1:]))
		if kind == 'X' || length < 4 || length > maxCopyBytes {
			return fmt.Errorf("%w: message %q of %d bytes in a copy", errClosed, kind, length)
		}
		if _, err := io.CopyN(out, w.in, 1+length); err != nil {
			return closed(err)
		}
		over := kind != 'd' && kind != 'H' && kind != 'S'
		if over || w.in.Buffered() == 0 {
			if err := out.Flush(); err != nil {
				return err
			}
		}
		if over {
			return nil
		}
	}
}
