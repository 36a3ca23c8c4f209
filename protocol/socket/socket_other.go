//go:build !linux

// Package socket asks and tells the operating system what net has no name for.
package socket

import (
	"errors"
	"net"
	"time"
)

// Peer is not possible on this system.
func Peer(net.Conn) (string, error) {
	return "", errors.New("ask for the peer: not supported on this operating system")
}

// SetUserTimeout does nothing: libpq, too, overlooks the parameter where there is no such timeout.
func SetUserTimeout(*net.TCPConn, time.Duration) error { return nil }

// Gather is not done on this system.
func Gather(net.Conn, int) {}
