package faultproxy_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"walproxy/integration/faultproxy"
)

// patience bounds every wait of these tests for something that must happen; silence is how long one watches that
// nothing happens.
const (
	patience = 20 * time.Second
	silence  = 50 * time.Millisecond
)

// link is a client that is connected through a proxy, and the server's end of that connection.
type link struct {
	proxy          *faultproxy.Proxy
	client, server *net.TCPConn
}

func connect(t *testing.T) link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer listener.Close()
	proxy, err := faultproxy.Listen(listener.Addr().String())
	must(t, err)
	t.Cleanup(func() { must(t, proxy.Close()) })
	client, err := net.Dial("tcp", proxy.Addr())
	must(t, err)
	server, err := listener.Accept()
	must(t, err)
	t.Cleanup(func() { _, _ = client.Close(), server.Close() })
	for _, end := range []net.Conn{client, server} {
		must(t, end.SetDeadline(time.Now().Add(patience)))
	}
	return link{proxy, client.(*net.TCPConn), server.(*net.TCPConn)}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// pass sends a text from one end and expects it at the other.
func pass(t *testing.T, from, to net.Conn, text string) {
	t.Helper()
	_, err := from.Write([]byte(text))
	must(t, err)
	got := make([]byte, len(text))
	_, err = io.ReadFull(to, got)
	must(t, err)
	if string(got) != text {
		t.Fatalf("got %q, want %q", got, text)
	}
}

// silent checks that nothing arrives, neither bytes nor the end of the connection.
func silent(t *testing.T, end net.Conn) {
	t.Helper()
	must(t, end.SetReadDeadline(time.Now().Add(silence)))
	n, err := end.Read(make([]byte, 1))
	if n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read %d bytes, error %v; want silence", n, err)
	}
	must(t, end.SetReadDeadline(time.Now().Add(patience)))
}

func wantReset(t *testing.T, end net.Conn) {
	t.Helper()
	if _, err := end.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("error %v, want a reset", err)
	}
}

// TestTransparent passes random bytes both ways at once, each way ended by a half close, and compares them.
func TestTransparent(t *testing.T) {
	l := connect(t)
	up, down := make([]byte, 3<<20), make([]byte, 5<<20)
	_, _ = rand.Read(up)
	_, _ = rand.Read(down)
	var work sync.WaitGroup
	send := func(end *net.TCPConn, data []byte) {
		if _, err := end.Write(data); err != nil {
			t.Error(err)
		}
		if err := end.CloseWrite(); err != nil {
			t.Error(err)
		}
	}
	receive := func(end *net.TCPConn, want []byte) {
		got, err := io.ReadAll(end)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d of %d bytes or other bytes, error %v", len(got), len(want), err)
		}
	}
	work.Go(func() { send(l.client, up) })
	work.Go(func() { send(l.server, down) })
	work.Go(func() { receive(l.server, up) })
	work.Go(func() { receive(l.client, down) })
	work.Wait()
	if a, b := l.proxy.Passed(faultproxy.Up), l.proxy.Passed(faultproxy.Down); a != 3<<20 || b != 5<<20 {
		t.Errorf("passed %d and %d bytes", a, b)
	}
}

func TestCut(t *testing.T) {
	l := connect(t)
	pass(t, l.client, l.server, "before")
	l.proxy.Cut()
	wantReset(t, l.client)
	wantReset(t, l.server)
}

func TestStall(t *testing.T) {
	l := connect(t)
	l.proxy.Stall(faultproxy.Up, true)
	_, err := l.client.Write([]byte("held"))
	must(t, err)
	silent(t, l.server)
	pass(t, l.server, l.client, "the other way is free")
	l.proxy.Stall(faultproxy.Up, false)
	held := make([]byte, 4)
	_, err = io.ReadFull(l.server, held)
	must(t, err)
	if string(held) != "held" {
		t.Fatalf("got %q", held)
	}
}

func TestStallBlocksTheSender(t *testing.T) {
	l := connect(t)
	l.proxy.StallAll(true)
	must(t, l.client.SetWriteDeadline(time.Now().Add(10*silence)))
	n, err := l.client.Write(make([]byte, 256<<20))
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%d bytes sent into a stalled connection, error %v", n, err)
	}
	l.proxy.Cut() // also ends stalled connections
	wantReset(t, l.server)
}

func TestHalfOpen(t *testing.T) {
	l := connect(t)
	pass(t, l.client, l.server, "before")
	l.proxy.HalfOpen()
	wantReset(t, l.server)
	silent(t, l.client)
	_, err := l.client.Write([]byte("into the void"))
	must(t, err)
	silent(t, l.client)
	if n := l.proxy.Connections(); n != 1 {
		t.Fatalf("%d connections, want the half-open one", n)
	}
	l.proxy.Cut()
	wantReset(t, l.client)
}

func TestHalfOpenDown(t *testing.T) {
	l := connect(t)
	pass(t, l.client, l.server, "before")
	l.proxy.HalfOpenDown()
	wantReset(t, l.client)
	silent(t, l.server)
	_, err := l.server.Write([]byte("into the void"))
	must(t, err)
	silent(t, l.server)
}

func TestRefuse(t *testing.T) {
	l := connect(t)
	l.proxy.Refuse(true)
	second, err := net.Dial("tcp", l.proxy.Addr())
	must(t, err)
	defer second.Close()
	must(t, second.SetDeadline(time.Now().Add(patience)))
	if n, err := second.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read %d bytes, error %v; want the end", n, err)
	}
	pass(t, l.client, l.server, "the first one stays")
}

func TestDelay(t *testing.T) {
	l := connect(t)
	l.proxy.Delay(silence)
	start := time.Now()
	pass(t, l.client, l.server, "ping")
	pass(t, l.server, l.client, "pong")
	if took := time.Since(start); took < 2*silence {
		t.Fatalf("there and back in %v, want at least %v", took, 2*silence)
	}
	l.proxy.Delay(0)
}

func TestCloseEndsEverything(t *testing.T) {
	l := connect(t)
	l.proxy.StallAll(true)
	_, err := l.client.Write([]byte("held"))
	must(t, err)
	must(t, l.proxy.Close())
	must(t, l.proxy.Close())
	wantReset(t, l.server)
	if _, err := net.Dial("tcp", l.proxy.Addr()); err == nil {
		t.Fatal("the proxy listens after Close")
	}
}
