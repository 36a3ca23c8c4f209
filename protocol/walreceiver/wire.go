package walreceiver

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	readBufferBytes = 512 << 10
	headerBytes     = 1 + 4 // kind and length of a message
	// longBytes is the length of a message behind which others are not read ahead.
	longBytes = 192 << 10
	// maxUnasked bounds what a server says by itself between the end of the login and the first command.
	maxUnasked = 64 << 10
	// maxCommandBytes bounds a message outside of a stream; a timeline history is the largest that is expected.
	maxCommandBytes = 2 << 20
	// maxPlainBytes bounds a message of a plain stream: 16 WAL pages of at most 64 KiB behind a header, doubled.
	maxPlainBytes = 2 << 20
)

var errTakenOver = errors.New("connection taken over")

// wire is a connection to a PostgreSQL server, read message by message into one reused buffer.
//
// pgconn makes the connection and authenticates through Read; it never gets a byte that belongs to a later message, so that
// takeOver loses none. After takeOver only next may be used for reading. One goroutine may read while another one writes.
type wire struct {
	net.Conn
	source io.Reader // what fill reads: pgconn's reader of Conn, and from takeOver on Conn
	peer   string

	mu    sync.Mutex // held while reading on pgconn's behalf
	taken atomic.Bool
	left  int // bytes of the current message that pgconn has not got yet
	buf   []byte
	r, w  int // buf[r:w] has been read from Conn and not been used

	deadline sync.Mutex // guards aborted and goes with the read deadline
	aborted  bool

	out []byte // messages to send
}

func newWire(conn net.Conn) *wire {
	peer := "unknown"
	if addr := conn.RemoteAddr(); addr != nil {
		peer = addr.String()
	}
	return &wire{Conn: conn, source: conn, peer: peer, buf: make([]byte, readBufferBytes)}
}

// Read is for pgconn. It returns bytes of one message only.
func (c *wire) Read(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.taken.Load() {
		return 0, errTakenOver
	}
	if c.left == 0 {
		if err := c.fill(headerBytes); err != nil {
			return 0, err
		}
		length := int64(int32(binary.BigEndian.Uint32(c.buf[c.r+1:])))
		if length < 4 || length > maxCommandBytes {
			return 0, &ProtocolError{Peer: c.peer, What: fmt.Sprintf("message of %d bytes", length)}
		}
		c.left = int(length) + 1
	}
	if err := c.fill(1); err != nil {
		return 0, err
	}
	if c.taken.Load() {
		return 0, errTakenOver // the bytes stay in buf for next
	}
	n := copy(p, c.buf[c.r:min(c.w, c.r+c.left)])
	c.r += n
	c.left -= n
	return n, nil
}

// takeOver ends the use of Read and of Conn, also one that is waiting in a goroutine of pgconn's, and keeps what that has read. pgconn
// must be idle.
func (c *wire) takeOver() error {
	c.taken.Store(true)
	if err := c.SetReadDeadline(time.Unix(1, 0)); err != nil {
		return fmt.Errorf("take over connection: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.drain(); err != nil {
		return fmt.Errorf("take over connection: %w", err)
	}
	c.source = c.Conn
	return c.SetReadDeadline(time.Time{})
}

// drain reads from pgconn's reader until the deadline of Conn, which is over, comes through. Before that the reader's goroutine has ended,
// which pgconn starts when a write takes long and leaves reading: were the deadline lifted earlier, it might never notice.
func (c *wire) drain() error {
	for {
		if err := c.fill(c.w - c.r + 1); errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		} else if err != nil {
			return err
		}
		if c.w-c.r > maxUnasked {
			return &ProtocolError{Peer: c.peer, What: "much that was not asked for, after the connection was made"}
		}
	}
}

// abort makes next fail, now and for ever. Safe for concurrent use.
func (c *wire) abort() {
	c.deadline.Lock()
	defer c.deadline.Unlock()
	c.aborted = true
	c.SetReadDeadline(time.Unix(1, 0)) // an error means that the connection is closed: next fails anyway
}

// readWithin bounds the reads that follow to d from now on; 0 lifts the bound. An abort stays in force.
func (c *wire) readWithin(d time.Duration) error {
	c.deadline.Lock()
	defer c.deadline.Unlock()
	switch {
	case c.aborted:
		return nil
	case d == 0:
		return c.SetReadDeadline(time.Time{})
	}
	return c.SetReadDeadline(time.Now().Add(d))
}

// fill reads until at least n bytes, at most len(buf), are in buf. Behind a long message it reads no more than the beginning of
// the next one, so that little has to move to the front of buf.
func (c *wire) fill(n int) error {
	if c.r == c.w {
		c.r, c.w = 0, 0
	}
	if c.r+n > len(c.buf) || n > longBytes && c.w-c.r <= headerBytes { // the caches hold the beginning of buf
		c.w = copy(c.buf, c.buf[c.r:c.w])
		c.r = 0
	}
	for c.w-c.r < n {
		room := c.buf[c.w:]
		if end := c.r + n + headerBytes; n > longBytes && end < len(c.buf) {
			room = c.buf[c.w:end]
		}
		got, err := c.source.Read(room)
		c.w += got
		if err != nil && c.w-c.r < n {
			return err
		}
	}
	return nil
}

// next returns the type and body of the next message; its body may be limit bytes long. body is valid until the next call.
func (c *wire) next(limit int) (kind byte, body []byte, err error) {
	if err := c.fill(headerBytes); err != nil {
		return 0, nil, c.broken("read from", err)
	}
	length := int64(int32(binary.BigEndian.Uint32(c.buf[c.r+1:]))) - 4
	if length < 0 || length > int64(limit) {
		return 0, nil, &ProtocolError{Peer: c.peer, What: fmt.Sprintf("message %q of %d bytes, the limit is %d", c.buf[c.r], length, limit)}
	}
	total := headerBytes + int(length)
	if total > len(c.buf) {
		grown := make([]byte, total+readBufferBytes)
		c.w = copy(grown, c.buf[c.r:c.w])
		c.r, c.buf = 0, grown
	}
	if err := c.fill(total); err != nil {
		return 0, nil, c.broken("read from", err)
	}
	kind, body = c.buf[c.r], c.buf[c.r+headerBytes:c.r+total:c.r+total]
	c.r += total
	return kind, body, nil
}

// following returns the body of the message behind the one that next returned last, if it is of that kind and has arrived whole; else
// nil. A call of next returns it then, and leaves the body of the one before as it is.
func (c *wire) following(kind byte) []byte {
	b := c.buf[c.r:c.w]
	if len(b) < headerBytes || b[0] != kind {
		return nil
	}
	if total := 1 + int64(binary.BigEndian.Uint32(b[1:])); total >= headerBytes && total <= int64(len(b)) {
		return b[headerBytes:total]
	}
	return nil
}

// send writes the messages that add has gathered. It gives up after within.
func (c *wire) send(within time.Duration) error {
	if err := c.SetWriteDeadline(time.Now().Add(within)); err != nil {
		return c.broken("write to", err)
	}
	_, err := c.Write(c.out)
	c.out = c.out[:0]
	if err != nil {
		return c.broken("write to", err)
	}
	return nil
}

func (c *wire) broken(what string, err error) error {
	return fmt.Errorf("%s upstream %s: %w", what, c.peer, plainCause(err))
}

// add gathers one message for send.
func (c *wire) add(kind byte, body []byte) {
	c.out = append(c.out, kind)
	c.out = binary.BigEndian.AppendUint32(c.out, uint32(4+len(body)))
	c.out = append(c.out, body...)
}
