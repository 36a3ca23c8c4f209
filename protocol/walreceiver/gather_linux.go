package walreceiver

import (
	"crypto/tls"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// gather has the kernel wake a reader of conn only when that many bytes have arrived, or the stream is over. The kernel goes below
// where the socket has no room for as many. Without an effect on other sockets than TCP's.
func gather(conn net.Conn, bytes int) {
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT, bytes) // it is as fast without, nearly
	})
}
