package walsender

import (
	"bufio"
	"context"
	"encoding/binary"
	"net"
	"testing"
	"time"

	"walproxy/protocol"
)

// endless is WAL without end, always the same bytes.
type endless struct {
	next protocol.LSN
	data []byte
}

func (e *endless) Append(ctx context.Context, dst []byte, limit int) (protocol.LSN, []byte, error) {
	if err := ctx.Err(); err != nil {
		return 0, nil, err
	}
	start, wal := e.next, e.data[:min(limit, len(e.data))]
	e.next += protocol.LSN(len(wal))
	return start, append(dst, wal...), nil
}

func (e *endless) Close() error { return nil }

// endlessNode serves endless WAL.
type endlessNode struct {
	emptyNode
	chunk int
}

func (n endlessNode) Position() (protocol.Timeline, protocol.LSN) { return 1, 1 << 62 }
func (n endlessNode) Open(_ context.Context, _ protocol.Timeline, start protocol.LSN, _ bool) (Outgoing, error) {
	return NewPlain(&endless{next: start, data: make([]byte, n.chunk)}, start, 8192, func() protocol.LSN { return 1 << 62 })
}

// streaming connects to a server of endless WAL and returns the connection behind CopyBothResponse.
func streaming(tb testing.TB, chunk int) (net.Conn, *bufio.Reader) {
	tb.Helper()
	node := endlessNode{chunk: chunk}
	server, err := New(node, node, node, Options{}, nil)
	if err != nil {
		tb.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, l) }()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		conn.Close()
		cancel()
		if err := <-served; err != nil {
			tb.Error(err)
		}
	})
	body := append(binary.BigEndian.AppendUint32(nil, 3<<16), "user\x00u\x00replication\x001\x00\x00"...)
	query := "START_REPLICATION 0/1000000\x00"
	out := append(binary.BigEndian.AppendUint32(nil, uint32(4+len(body))), body...)
	out = append(binary.BigEndian.AppendUint32(append(out, 'Q'), uint32(4+len(query))), query...)
	if _, err := conn.Write(out); err != nil {
		tb.Fatal(err)
	}
	r := bufio.NewReaderSize(conn, 1<<20)
	for kind := byte(0); kind != 'W'; {
		head, err := r.Peek(5)
		if err != nil {
			tb.Fatal(err)
		}
		kind = head[0]
		if _, err := r.Discard(1 + int(binary.BigEndian.Uint32(head[1:]))); err != nil {
			tb.Fatal(err)
		}
	}
	return conn, r
}

// TestNoAllocationPerMessage covers a whole message: read from the log, framed, sent, and the reports that come back.
func TestNoAllocationPerMessage(t *testing.T) {
	conn, r := streaming(t, 4096)
	report := protocol.Status{Write: 1, Flush: 1, SendTime: time.Now()}.Append(nil)
	message := append(binary.BigEndian.AppendUint32([]byte{'d'}, uint32(4+len(report))), report...)
	perRun := testing.AllocsPerRun(2000, func() {
		if _, err := conn.Write(message); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			skip(t, r)
		}
	})
	t.Logf("%.2f allocations for ten messages and one report, the client's included", perRun)
	if perRun >= 1 {
		t.Errorf("%.2f allocations for ten messages and one report", perRun)
	}
}

// skip reads over one message.
func skip(tb testing.TB, r *bufio.Reader) {
	head, err := r.Peek(5)
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := r.Discard(1 + int(binary.BigEndian.Uint32(head[1:]))); err != nil {
		tb.Fatal(err)
	}
}

func BenchmarkStream(b *testing.B) {
	for _, test := range []struct {
		name  string
		chunk int
	}{{"chunk=128KiB", 128 << 10}, {"chunk=8KiB", 8 << 10}, {"chunk=256B", 256}} {
		b.Run(test.name, func(b *testing.B) {
			_, r := streaming(b, test.chunk)
			b.SetBytes(int64(test.chunk))
			b.ReportAllocs()
			for b.Loop() {
				skip(b, r)
			}
		})
	}
}
