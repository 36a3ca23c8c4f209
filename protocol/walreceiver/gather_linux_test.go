package walreceiver

import (
	"crypto/tls"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestGather: the kernel knows how much a reader waits for, below TLS too; and a reader that waits gets what there is once it is told to.
func TestGather(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	client, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	server, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }()

	c, secured := &Connection{&conn{wire: newWire(client)}}, &Connection{&conn{wire: newWire(tls.Client(client, nil))}}
	for _, by := range []*Connection{c, secured} {
		for _, want := range []int{1000, 1} {
			if by.Gather(want); lowWater(t, client) != want {
				t.Errorf("the kernel waits for %d bytes, want %d", lowWater(t, client), want)
			}
		}
	}

	c.Gather(1000)
	if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	got := make(chan int, 1) // bytes of one Read
	go func() {
		n, err := c.Read(make([]byte, 100))
		if err != nil {
			t.Errorf("read: %v", err)
		}
		got <- n
	}()
	if _, err := server.Write(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	c.Gather(1)
	if n := <-got; n != 10 {
		t.Errorf("read %d bytes of 10", n)
	}
}

func lowWater(t *testing.T, conn net.Conn) (n int) {
	t.Helper()
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var errSocket error
	err = raw.Control(func(fd uintptr) { n, errSocket = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT) })
	if err != nil || errSocket != nil {
		t.Fatal(err, errSocket)
	}
	return n
}
