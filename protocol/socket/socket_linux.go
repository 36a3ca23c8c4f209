// Package socket asks and tells the operating system what net has no name for.
package socket

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os/user"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Peer returns the user of the operating system at the other end of a unix socket.
//
// Source: PostgreSQL src/backend/libpq/auth.c, auth_peer (13-18).
func Peer(conn net.Conn) (string, error) {
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return "", fmt.Errorf("ask for the peer: not a unix socket")
	}
	var credentials *unix.Ucred
	err := control(socket, func(fd int) (err error) {
		credentials, err = unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("ask for the peer: %w", err)
	}
	known, err := user.LookupId(strconv.FormatUint(uint64(credentials.Uid), 10))
	if err != nil {
		return "", fmt.Errorf("ask for the peer: %w", err)
	}
	return known.Username, nil
}

// SetUserTimeout has a connection end when what was sent is not acknowledged for that long.
//
// Source: PostgreSQL src/interfaces/libpq/fe-connect.c, setTCPUserTimeout (13-18).
func SetUserTimeout(conn *net.TCPConn, limit time.Duration) error {
	err := control(conn, func(fd int) error {
		return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(limit.Milliseconds()))
	})
	if err != nil {
		return fmt.Errorf("set the timeout of a connection: %w", err)
	}
	return nil
}

// Gather has the kernel wake a reader of conn, below TLS too, only when that many bytes have arrived, the stream is over or its deadline is.
// The kernel goes below where the socket has no room for as many. 1 undoes it, also for a reader that waits. Where it cannot be had,
// reading is as right without.
func Gather(conn net.Conn, bytes int) {
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
	if socket, ok := conn.(syscall.Conn); ok {
		_ = control(socket, func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVLOWAT, bytes) })
	}
}

func control(socket syscall.Conn, do func(fd int) error) error {
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	var done error
	err = raw.Control(func(fd uintptr) { done = do(int(fd)) })
	return errors.Join(err, done)
}
