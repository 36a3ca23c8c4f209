// Package socket asks and tells the operating system what net has no name for.
package socket

import (
	"fmt"
	"net"
	"os/user"
	"strconv"
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
	raw, err := socket.SyscallConn()
	if err != nil {
		return "", fmt.Errorf("ask for the peer: %w", err)
	}
	var credentials *unix.Ucred
	var errSocket error
	err = raw.Control(func(fd uintptr) {
		credentials, errSocket = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err == nil {
		err = errSocket
	}
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
	raw, err := conn.SyscallConn()
	if err != nil {
		return fmt.Errorf("set the timeout of a connection: %w", err)
	}
	var errSocket error
	err = raw.Control(func(fd uintptr) {
		errSocket = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(limit.Milliseconds()))
	})
	if err == nil {
		err = errSocket
	}
	if err != nil {
		return fmt.Errorf("set the timeout of a connection: %w", err)
	}
	return nil
}
