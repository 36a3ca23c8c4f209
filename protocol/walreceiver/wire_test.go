package walreceiver

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"testing"
	"time"

	"walproxy/protocol"
)

func framed(kind byte, body []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{kind}, uint32(4+len(body))), body...)
}

// scripted is a connection that gives bytes in given pieces.
type scripted struct {
	net.Conn
	data  []byte
	piece func() int
}

func (s *scripted) RemoteAddr() net.Addr { return &net.TCPAddr{} }

func (s *scripted) Read(p []byte) (int, error) {
	if len(s.data) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.data[:min(len(s.data), s.piece())])
	s.data = s.data[n:]
	return n, nil
}

// TestNext: messages arrive whole however the bytes are cut, also those that are larger than the buffer.
func TestNext(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var data []byte
	var bodies [][]byte
	for range 200 {
		body := make([]byte, random.IntN(3000))
		if random.IntN(20) == 0 {
			body = make([]byte, random.IntN(3*readBufferBytes))
		}
		for i := range body {
			body[i] = byte(i * len(body))
		}
		bodies = append(bodies, body)
		data = append(data, framed('d', body)...)
	}
	c := newWire(&scripted{data: data, piece: func() int { return 1 + random.IntN(70000) }})
	for i, want := range bodies {
		kind, body, err := c.next(4 * readBufferBytes)
		if err != nil || kind != 'd' || !bytes.Equal(body, want) {
			t.Fatalf("message %d of %d bytes: %q, %d bytes, %v", i, len(want), kind, len(body), err)
		}
	}
	if _, _, err := c.next(10); !errors.Is(err, io.EOF) {
		t.Fatalf("at the end: %v", err)
	}
}

// TestTakeOver: a reader of pgconn's that still waits is ended; neither it nor an earlier one takes bytes of later messages.
func TestTakeOver(t *testing.T) {
	client, server := net.Pipe()
	defer client.Close()
	defer server.Close()
	c := newWire(client)
	go server.Write(append(framed('Z', []byte{'I'}), framed('N', []byte("later"))...))
	got := make([]byte, 100)
	n, err := io.ReadAtLeast(c, got, 6)
	if err != nil || n != 6 {
		t.Fatalf("pgconn got %d bytes, %v", n, err)
	}
	stolen := make(chan error, 1)
	first := make([]byte, 100)
	if n, err := c.Read(first[:3]); n != 3 || err != nil { // it reads into the next message as well, if it is there
		t.Fatal(n, err)
	}
	if n, err := io.ReadFull(c, first[:7]); n != 7 || err != nil {
		t.Fatal(n, err)
	}
	go func() {
		_, err := c.Read(make([]byte, 100))
		stolen <- err
	}()
	if err := c.takeOver(); err != nil {
		t.Fatal(err)
	}
	if err := <-stolen; err == nil {
		t.Fatal("a reader got bytes after the connection was taken over")
	}
	go server.Write(framed('W', []byte{0, 0, 0}))
	if kind, body, err := c.next(10); err != nil || kind != 'W' || len(body) != 3 {
		t.Fatalf("got %q, %d bytes, %v", kind, len(body), err)
	}
	c.abort()
	if err := c.readWithin(time.Hour); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.next(10); err == nil {
		t.Fatal("read after an abort")
	}
}

// background reads ahead of its user, as pgconn's reader does once a write took long, until a read fails.
type background struct {
	net.Conn
	ahead chan []byte // closed at the end
}

func (b *background) run() {
	defer close(b.ahead)
	for {
		piece := make([]byte, 100)
		n, err := b.Conn.Read(piece)
		if n > 0 {
			b.ahead <- piece[:n]
		}
		if err != nil {
			return
		}
	}
}

func (b *background) Read(p []byte) (int, error) {
	if piece, ok := <-b.ahead; ok {
		return copy(p, piece), nil
	}
	return b.Conn.Read(p)
}

// TestTakeOverFromBackground: a goroutine of pgconn's that reads the connection itself is over before the connection is used further.
func TestTakeOverFromBackground(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for round := range 200 {
		client, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		server, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		c := newWire(client)
		b := &background{client, make(chan []byte)}
		c.source = b
		go b.run()
		if round%2 == 1 { // something that pgconn has not read yet
			if _, err := server.Write(framed('N', []byte("early"))); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.takeOver(); err != nil {
			t.Fatal(err)
		}
		if _, err := server.Write(framed('W', []byte{0, 0, 0})); err != nil {
			t.Fatal(err)
		}
		if err := c.readWithin(10 * time.Second); err != nil {
			t.Fatal(err)
		}
		kind, _, err := c.next(100)
		if err == nil && kind == 'N' && round%2 == 1 {
			kind, _, err = c.next(100)
		}
		if err != nil || kind != 'W' {
			t.Fatalf("round %d: %q, %v", round, kind, err)
		}
		_, _ = client.Close(), server.Close()
	}
}

// nullSink takes everything.
type nullSink struct {
	Sink
	bytes int
}

func (*nullSink) Ahead(protocol.LSN) {}

func (*nullSink) Release(context.Context) error { return nil }

func (n *nullSink) WAL(_ context.Context, _ protocol.Timeline, _ protocol.LSN, wal []byte) error {
	n.bytes += len(wal)
	return nil
}

// endless repeats a message of WAL, moving on its LSN.
type endless struct {
	net.Conn
	message []byte
	at      int
}

func (e *endless) RemoteAddr() net.Addr { return &net.TCPAddr{} }

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.message[e.at:])
	if e.at += n; e.at == len(e.message) {
		e.at = 0
		lsn := binary.BigEndian.Uint64(e.message[6:])
		binary.BigEndian.PutUint64(e.message[6:], lsn+uint64(len(e.message)-30))
	}
	return n, nil
}

func newEndless(bytes int) (*stream, *nullSink) {
	body := protocol.AppendXLogDataHeader(nil, 1<<24, 1<<24, time.Now())
	conn := &endless{message: framed('d', append(body, make([]byte, bytes)...))}
	sink := &nullSink{}
	metrics := NewMetrics(nil)
	return newStream(conn, sink, metrics), sink
}

func newStream(conn net.Conn, sink Sink, metrics *Metrics) *stream {
	c := newWire(conn)
	handler := newPlain(sink, metrics, "up", 1, 1<<24, 0, func() []byte { return c.following(msgCopyData) })
	return &stream{wire: c, metrics: metrics, handler: handler, reporter: &reporter{begun: time.Now()}, arrived: func(time.Time) {}}
}

// once gives what it holds, as much of it as is asked for.
type once struct {
	net.Conn
	rest []byte
}

func (o *once) RemoteAddr() net.Addr { return &net.TCPAddr{} }

func (o *once) Read(p []byte) (n int, err error) {
	if len(o.rest) == 0 {
		return 0, io.EOF
	}
	n = copy(p, o.rest)
	o.rest = o.rest[n:]
	return n, nil
}

// pieces remembers the pieces of WAL that it got.
type pieces struct {
	nullSink
	lengths []int
	wal     []byte
}

func (s *pieces) WAL(_ context.Context, _ protocol.Timeline, start protocol.LSN, wal []byte) error {
	if want := protocol.LSN(1<<24 + len(s.wal)); start != want {
		return fmt.Errorf("WAL at %s, want %s", start, want)
	}
	s.lengths = append(s.lengths, len(wal))
	s.wal = append(s.wal, wal...)
	return nil
}

// TestGathers: WAL that has arrived is handed on in large pieces; nothing waits for what has not.
func TestGathers(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var all, stream []byte
	for _, bytes := range []int{1000, 2000, 128 << 10, 128 << 10, 0, -1, 5, 100 << 10, 128 << 10} {
		if bytes < 0 { // ends a gathering
			stream = append(stream, framed('d', protocol.Keepalive{}.Append(nil))...)
			continue
		}
		wal := make([]byte, bytes)
		for i := range wal {
			wal[i] = byte(random.Uint32())
		}
		body := protocol.AppendXLogDataHeader(nil, protocol.LSN(1<<24+len(all)), 0, time.Now())
		stream = append(stream, framed('d', append(body, wal...))...)
		all = append(all, wal...)
	}
	sink := &pieces{}
	s := newStream(&once{rest: stream[:len(stream)-1]}, sink, NewMetrics(nil)) // the last message is not complete
	for range 8 {
		if err := s.step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if want := []int{3000 + 128<<10, 128 << 10, 5 + 100<<10}; !slices.Equal(sink.lengths, want) {
		t.Errorf("pieces of %v bytes, want %v", sink.lengths, want)
	}
	if got := len(all) - 128<<10; len(sink.wal) != got || !bytes.Equal(sink.wal, all[:got]) {
		t.Errorf("%d bytes, want %d; or others", len(sink.wal), got)
	}
	if received := s.handler.Received(); received != protocol.LSN(1<<24+len(sink.wal)) {
		t.Errorf("received up to %s", received)
	}
}

func (s *stream) step(ctx context.Context) error {
	_, body, err := s.next(maxPlainBytes)
	if err != nil {
		return err
	}
	s.reporter.hear(false)
	err = s.data(ctx, body)
	s.reporter.hear(true)
	return err
}

// TestNoAllocation: WAL passes from the socket to the sink without an allocation.
func TestNoAllocation(t *testing.T) {
	s, sink := newEndless(128 << 10)
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() {
		if err := s.step(ctx); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%.1f allocations per message", n)
	}
	if sink.bytes < 100*128<<10 {
		t.Errorf("only %d bytes arrived", sink.bytes)
	}
}

func BenchmarkReceive(b *testing.B) {
	s, _ := newEndless(128 << 10)
	b.SetBytes(128 << 10)
	b.ReportAllocs()
	for b.Loop() {
		if err := s.step(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// FuzzServer: no bytes of a server make the reading of commands and streams panic or run for ever.
func FuzzServer(f *testing.F) {
	f.Add(framed('Z', []byte{'I'}))
	f.Add(append(framed('E', []byte("SERROR\x00C58P01\x00Mno\x00\x00")), framed('Z', []byte{'I'})...))
	f.Add(append(framed('D', []byte{0, 2, 0, 0, 0, 1, '2', 0, 0, 0, 3, '0', '/', '5'}), framed('Z', []byte{'I'})...))
	body := protocol.AppendXLogDataHeader(nil, 1<<24, 1<<24, time.Unix(0, 0))
	f.Add(append(framed('d', append(body, 1, 2, 3)), framed('c', nil)...))
	f.Fuzz(func(t *testing.T, data []byte) {
		reader := func() *wire { return newWire(&scripted{data: bytes.Clone(data), piece: func() int { return 7 }}) }
		var r result
		if err := reader().result(&r); err == nil {
			if row, err := r.one(3); err == nil {
				_, _ = parseIdentify(row)
			}
		}
		s, sink := newEndless(1)
		s.wire = reader()
		kind, body, err := s.copyLoop(t.Context())
		if err == nil && kind == msgCopyDone {
			_, _ = s.finish(t.Context())
		}
		if err == nil && kind == msgError {
			_ = decodeError(body)
		}
		if sink.bytes > len(data) {
			t.Error("more WAL than bytes")
		}
		_, _ = parseTimelineEnd(data)
	})
}
