//go:build !linux

package walsender

import (
	"errors"
	"net"
)

// peerOf is not possible on this system.
func peerOf(net.Conn) (string, error) {
	return "", errors.New("ask for the peer: not supported on this operating system")
}
