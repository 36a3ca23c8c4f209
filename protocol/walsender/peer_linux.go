package walsender

import (
	"fmt"
	"net"
	"os/user"
	"strconv"

	"golang.org/x/sys/unix"
)

// peerOf returns the user of the operating system at the other end of a unix socket.
//
// Source: PostgreSQL src/backend/libpq/auth.c, auth_peer (13-18).
func peerOf(conn net.Conn) (string, error) {
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
