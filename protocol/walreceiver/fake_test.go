package walreceiver_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"walproxy/protocol"
)

// fake is a scripted server. It answers startup, IDENTIFY_SYSTEM, SHOW and TIMELINE_HISTORY by itself and leaves
// START_REPLICATION to the test.
type fake struct {
	t          *testing.T
	listener   net.Listener
	wg         sync.WaitGroup
	parameters map[string]string
	refuse     *protocol.Error // instead of a login
	histories  map[string]string

	senderTimeout string

	mu       sync.Mutex
	timeline int
	columns  []string // of IDENTIFY_SYSTEM behind the third
	starts   []string
	start    func(c *fakeConn, command string)
	conns    []net.Conn
}

const (
	fakeSystem = "7000000000000000001"
	fakeBegin  = protocol.LSN(0x1000000)
)

func newFake(t *testing.T, start func(c *fakeConn, command string)) *fake {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	f := &fake{
		t: t, listener: listener, start: start, timeline: 1, histories: map[string]string{}, senderTimeout: "300ms",
		parameters: map[string]string{"server_version": "15.8", "in_hot_standby": "off", "default_transaction_read_only": "off"},
	}
	f.wg.Add(1)
	go f.accept()
	t.Cleanup(func() {
		listener.Close()
		f.mu.Lock()
		for _, c := range f.conns {
			c.Close()
		}
		f.mu.Unlock()
		f.wg.Wait()
	})
	return f
}

func (f *fake) port() int { return f.listener.Addr().(*net.TCPAddr).Port }

func (f *fake) conninfo() string {
	return fmt.Sprintf("host=127.0.0.1 port=%d user=u sslmode=disable", f.port())
}

// twoHosts is a conninfo with a first and then b.
func twoHosts(a, b *fake) string {
	return fmt.Sprintf("host=127.0.0.1,127.0.0.1 port=%d,%d user=u sslmode=disable", a.port(), b.port())
}

func (f *fake) accept() {
	defer f.wg.Done()
	for {
		conn, err := f.listener.Accept()
		if err != nil {
			return
		}
		f.mu.Lock()
		f.conns = append(f.conns, conn)
		f.mu.Unlock()
		f.wg.Add(1)
		go func() {
			defer f.wg.Done()
			defer conn.Close()
			(&fakeConn{Conn: conn, f: f}).serve()
		}()
	}
}

// started returns the START_REPLICATION commands so far.
func (f *fake) started() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.starts...)
}

// fakeConn is one session of a fake.
type fakeConn struct {
	net.Conn
	f *fake
}

func message(kind byte, body ...byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{kind}, uint32(4+len(body))), body...)
}

func text(s string) []byte { return append([]byte(s), 0) }

func (c *fakeConn) send(messages ...[]byte) {
	for _, m := range messages {
		if _, err := c.Write(m); err != nil {
			return // the receiver has gone; the test sees what it looks for or not
		}
	}
}

// read returns the next message of the client.
func (c *fakeConn) read() (kind byte, body []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return 0, nil, err
	}
	body = make([]byte, binary.BigEndian.Uint32(head[1:])-4)
	_, err = io.ReadFull(c, body)
	return head[0], body, err
}

// readKind skips messages of the client up to one whose type, or whose CopyData's type, is kind.
func (c *fakeConn) readKind(kind byte) ([]byte, error) {
	for {
		got, body, err := c.read()
		if err != nil {
			return nil, err
		}
		if got == 'd' && len(body) > 0 && kind != 'd' {
			got = body[0]
		}
		if got == kind {
			return body, nil
		}
	}
}

func (c *fakeConn) serve() {
	var head [4]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return
	}
	if _, err := io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint32(head[:]))-4); err != nil {
		return
	}
	if c.f.refuse != nil {
		c.send(errorResponse(c.f.refuse))
		return
	}
	out := message('R', 0, 0, 0, 0)
	for name, value := range c.f.parameters {
		out = append(out, message('S', append(text(name), text(value)...)...)...)
	}
	c.send(out, message('K', 0, 0, 0, 1, 0, 0, 0, 2), ready)
	for {
		kind, body, err := c.read()
		if err != nil || kind == 'X' {
			return
		}
		if kind == 'Q' {
			c.command(strings.TrimRight(string(body), "\x00"))
		}
	}
}

var ready = message('Z', 'I')

func errorResponse(e *protocol.Error) []byte {
	body := append([]byte{'S'}, text(e.Severity)...)
	body = append(append(body, 'V'), text(e.Severity)...)
	body = append(append(body, 'C'), text(e.Code)...)
	body = append(append(body, 'M'), text(e.Message)...)
	return message('E', append(body, 0)...)
}

func row(values ...string) []byte {
	body := binary.BigEndian.AppendUint16(nil, uint16(len(values)))
	for _, v := range values {
		body = binary.BigEndian.AppendUint32(body, uint32(len(v)))
		body = append(body, v...)
	}
	return message('D', body...)
}

// description is a RowDescription of text columns.
func description(columns int) []byte {
	body := binary.BigEndian.AppendUint16(nil, uint16(columns))
	for range columns {
		body = append(body, text("c")...)
		body = append(body, 0, 0, 0, 0, 0, 0, 0, 0, 0, 25, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0)
	}
	return message('T', body...)
}

func tag(s string) []byte { return message('C', text(s)...) }

func (c *fakeConn) rows(name string, values ...string) {
	c.send(description(len(values)), row(values...), tag(name), ready)
}

func (c *fakeConn) command(command string) {
	c.f.mu.Lock()
	timeline, columns := c.f.timeline, c.f.columns
	c.f.mu.Unlock()
	switch {
	case command == "IDENTIFY_SYSTEM":
		c.rows("IDENTIFY_SYSTEM", append([]string{fakeSystem, fmt.Sprint(timeline), "0/1000000"}, columns...)...)
	case command == "SHOW wal_segment_size":
		c.rows("SHOW", "16MB")
	case command == "SHOW wal_block_size":
		c.rows("SHOW", "8192")
	case command == "SHOW wal_sender_timeout":
		c.rows("SHOW", c.f.senderTimeout)
	case strings.HasPrefix(command, "TIMELINE_HISTORY "):
		n := strings.TrimPrefix(command, "TIMELINE_HISTORY ")
		content, ok := c.f.histories[n]
		if !ok {
			c.send(description(2), errorResponse(protocol.Errorf(protocol.CodeUndefinedFile, "no such file")), ready)
			return
		}
		c.rows("TIMELINE_HISTORY", fmt.Sprintf("%08s.history", n), content)
	case strings.HasPrefix(command, "START_REPLICATION"):
		c.f.mu.Lock()
		c.f.starts = append(c.f.starts, command)
		start := c.f.start
		c.f.mu.Unlock()
		start(c, command)
	default:
		c.send(errorResponse(protocol.Errorf(protocol.CodeUndefinedObject, "unrecognized: %s", command)), ready)
	}
}

var copyBoth = message('W', 0, 0, 0)

// wal is a CopyData message with WAL.
func wal(start protocol.LSN, data []byte) []byte {
	body := protocol.AppendXLogDataHeader(nil, start, start+protocol.LSN(len(data)), time.Now())
	return message('d', append(body, data...)...)
}

func keepalive(end protocol.LSN, reply bool) []byte {
	return message('d', protocol.Keepalive{WALEnd: end, SendTime: time.Now(), ReplyRequested: reply}.Append(nil)...)
}

// idle answers nothing and returns when the client has gone.
func (c *fakeConn) idle() {
	for {
		if _, _, err := c.read(); err != nil {
			return
		}
	}
}
