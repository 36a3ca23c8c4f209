package walsender_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest"
	"go.uber.org/zap/zaptest/observer"

	"walproxy/protocol"
	"walproxy/protocol/walsender"
)

// harness is a server of a node with one listener, in memory (pipes) or on a loopback port.
type harness struct {
	server   *walsender.Server
	node     *node
	listener net.Listener
	shutdown context.CancelFunc
	served   chan error // of Serve
	warnings *observer.ObservedLogs
}

func serve(t testing.TB, n *node, l net.Listener, options walsender.Options) *harness {
	t.Helper()
	core, warnings := observer.New(zap.WarnLevel)
	both := zap.WrapCore(func(shown zapcore.Core) zapcore.Core { return zapcore.NewTee(shown, core) })
	server, err := walsender.New(n, n, n, options, zaptest.NewLogger(t, zaptest.Level(levelOfTests), zaptest.WrapOptions(both)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	h := &harness{server: server, node: n, listener: l, shutdown: cancel, served: make(chan error, 1), warnings: warnings}
	go func() { h.served <- server.Serve(ctx, l) }()
	t.Cleanup(h.stop)
	return h
}

// stop shuts the server down and waits for it; it may be called again.
func (h *harness) stop() {
	h.shutdown()
	if err, open := <-h.served; open {
		if err != nil {
			panic(err)
		}
		close(h.served)
	}
}

func servePipe(t testing.TB, n *node, options walsender.Options) *harness {
	return serve(t, n, newPipes(), options)
}

func serveTCP(t testing.TB, n *node, options walsender.Options) *harness {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serve(t, n, l, options)
}

func (h *harness) port() int { return h.listener.Addr().(*net.TCPAddr).Port }

func (h *harness) conninfo() string {
	return fmt.Sprintf("host=127.0.0.1 port=%d user=postgres sslmode=prefer", h.port())
}

// dial opens a connection without saying anything.
func (h *harness) dial(t testing.TB) net.Conn {
	t.Helper()
	var conn net.Conn
	var err error
	if p, ok := h.listener.(*pipes); ok {
		conn, err = p.dial()
	} else {
		conn, err = net.Dial("tcp", h.listener.Addr().String())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// pipes is a listener whose connections are net.Pipes, which synctest can follow. It counts as a unix socket.
type pipes struct {
	conns chan net.Conn // taken by Accept
	once  sync.Once
	done  chan struct{}
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) dial() (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

// client is a frontend for tests: it sends bytes and prints every message that comes, in a short form.
type client struct {
	t        testing.TB
	conn     net.Conn
	frontend *pgproto3.Frontend
	pid      uint32
	key      []byte
	status   map[string]string
	verbose  bool // receive tells types and the words of errors too
}

func newClient(t testing.TB, conn net.Conn) *client {
	return &client{t: t, conn: conn, frontend: pgproto3.NewFrontend(conn, conn), status: map[string]string{}}
}

// connect opens a physical replication session.
func (h *harness) connect(t testing.TB, parameters ...string) *client {
	t.Helper()
	c := newClient(t, h.dial(t))
	c.startup(3<<16, append([]string{"user", "postgres", "replication", "true"}, parameters...)...)
	if got := c.until('Z', 'E'); !strings.HasSuffix(got, "Z(I)") {
		t.Fatalf("connect: %s", got)
	}
	return c
}

func (c *client) startup(version uint32, parameters ...string) {
	var body []byte
	for _, p := range parameters {
		body = append(append(body, p...), 0)
	}
	c.raw(packet(version, append(body, 0)))
}

// packet is an untyped packet.
func packet(code uint32, body []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(8+len(body)))
	return append(binary.BigEndian.AppendUint32(b, code), body...)
}

func (c *client) raw(b []byte) {
	c.t.Helper()
	if _, err := c.conn.Write(b); err != nil {
		c.t.Fatalf("write %q: %v", b, err)
	}
}

func (c *client) message(kind byte, body []byte) {
	c.t.Helper()
	c.raw(append(binary.BigEndian.AppendUint32([]byte{kind}, uint32(4+len(body))), body...))
}

func (c *client) query(sql string)  { c.message('Q', append([]byte(sql), 0)) }
func (c *client) copyData(b []byte) { c.message('d', b) }

// run sends a query and returns everything up to ReadyForQuery.
func (c *client) run(sql string) string {
	c.t.Helper()
	c.query(sql)
	return c.until('Z')
}

// receive returns the next message in short form: its kind and what it says.
func (c *client) receive() (kind byte, text string) {
	message, err := c.frontend.Receive()
	if err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || strings.Contains(err.Error(), "reset by peer") {
			return '-', "closed"
		}
		return '!', err.Error()
	}
	switch m := message.(type) {
	case *pgproto3.AuthenticationOk:
		return 'R', "R(0)"
	case *pgproto3.AuthenticationSASL:
		return 'R', fmt.Sprintf("R(%v)", m.AuthMechanisms)
	case *pgproto3.AuthenticationSASLContinue:
		return 'R', "R(continue)"
	case *pgproto3.ParameterStatus:
		c.status[m.Name] = m.Value
		return 'S', ""
	case *pgproto3.BackendKeyData:
		c.pid, c.key = m.ProcessID, append([]byte{}, m.SecretKey...)
		return 'K', fmt.Sprintf("K(%d)", len(m.SecretKey))
	case *pgproto3.ReadyForQuery:
		return 'Z', fmt.Sprintf("Z(%c)", m.TxStatus)
	case *pgproto3.ErrorResponse:
		if c.verbose {
			return 'E', fmt.Sprintf("E(%s/%s %s %q %q %q)", m.Severity, m.SeverityUnlocalized, m.Code, m.Message, m.Detail, m.Hint)
		}
		return 'E', fmt.Sprintf("E(%s %s)", m.Severity, m.Code)
	case *pgproto3.NoticeResponse:
		if c.verbose {
			return 'N', fmt.Sprintf("N(%s/%s %s %q)", m.Severity, m.SeverityUnlocalized, m.Code, m.Message)
		}
		return 'N', fmt.Sprintf("N(%s %s)", m.Severity, m.Code)
	case *pgproto3.RowDescription:
		var names []string
		for _, f := range m.Fields {
			name := fmt.Sprintf("%s:%d", f.Name, f.DataTypeOID)
			if c.verbose {
				name = fmt.Sprintf("%s:%d:%d:%d:%d", f.Name, f.DataTypeOID, f.DataTypeSize, f.TypeModifier, f.Format)
			}
			names = append(names, name)
		}
		return 'T', "T(" + strings.Join(names, " ") + ")"
	case *pgproto3.DataRow:
		var values []string
		for _, v := range m.Values {
			if v == nil {
				values = append(values, "NULL")
			} else {
				values = append(values, string(v))
			}
		}
		return 'D', "D(" + strings.Join(values, " ") + ")"
	case *pgproto3.CommandComplete:
		return 'C', "C(" + string(m.CommandTag) + ")"
	case *pgproto3.CopyBothResponse:
		return 'W', "W"
	case *pgproto3.CopyDone:
		return 'c', "c"
	case *pgproto3.CopyData:
		return 'd', copyText(m.Data)
	case *pgproto3.NegotiateProtocolVersion:
		return 'v', fmt.Sprintf("v(%x %v)", m.NewestMinorProtocol, m.UnrecognizedOptions)
	}
	return '?', fmt.Sprintf("%T", message)
}

func copyText(b []byte) string {
	if x, err := protocol.ParseXLogData(b); err == nil {
		return fmt.Sprintf("w(%s+%d)", x.Start, len(x.Data))
	}
	if k, err := protocol.ParseKeepalive(b); err == nil {
		return fmt.Sprintf("k(%s %v)", k.WALEnd, k.ReplyRequested)
	}
	return fmt.Sprintf("d(%q)", b)
}

// until returns the messages up to the first of these kinds, or to the end of the connection, separated by blanks.
func (c *client) until(kinds ...byte) string {
	c.t.Helper()
	var all []string
	for {
		kind, text := c.receive()
		if text != "" {
			all = append(all, text)
		}
		if strings.IndexByte(string(kinds)+"-!", kind) >= 0 {
			return strings.Join(all, " ")
		}
	}
}

// expect reads as many messages as want has words of its own ("w(0/1+2) c") and compares them.
func (c *client) expect(what, want string) {
	c.t.Helper()
	var got string
	for len(got) < len(want) {
		kind, text := c.receive()
		got = strings.TrimSpace(got + " " + text)
		if kind == '-' || kind == '!' {
			break
		}
	}
	if got != want {
		c.t.Fatalf("%s:\n got %s\nwant %s", what, got, want)
	}
}

// wal returns n bytes of what stands for WAL: every byte tells its place.
func wal(begin protocol.LSN, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		at := uint64(begin) + uint64(i)
		b[i] = byte(at*2654435761>>13) ^ byte(at)
	}
	return b
}

func eventually(t testing.TB, n *node, what string, condition func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := n.until(ctx, condition); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func copyBody(t testing.TB, message pgproto3.BackendMessage) []byte {
	t.Helper()
	d, ok := message.(*pgproto3.CopyData)
	if !ok {
		t.Fatalf("got %#v, want CopyData", message)
	}
	return d.Data
}
