package pgcluster

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
)

// Ports are drawn from below the range that the kernel gives to outgoing connections (32768 and up by default), so that
// no connection takes a server's port while the server is down.
const (
	firstPort = 12000
	lastPort  = 32000
)

var (
	portsMu sync.Mutex
	ports   = map[int]int{} // handed out by this process: port to the socket that keeps it
)

// FreePort returns a TCP port of 127.0.0.1 that nobody uses. It stays ours until this process ends, server up or down: no call
// of FreePort returns it again, in this process or another. Servers that set SO_REUSEADDR, as all do that are to be
// restarted, can listen on it. Safe for concurrent use.
func FreePort() (int, error) {
	portsMu.Lock()
	defer portsMu.Unlock()
	var last error
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		socket, err := keepPort(port)
		if err != nil {
			last = err
			continue
		}
		ports[port] = socket
		return port, nil
	}
	return 0, fmt.Errorf("find a free port: %w", last)
}

// keepPort returns a socket that is bound to a port and does not listen. While it is open, only sockets with SO_REUSEADDR can
// be bound to the port; it is bound without, and so fails where another socket is, of a server or of keepPort.
func keepPort(port int) (socket int, err error) {
	socket, err = syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("socket: %w", err)
	}
	if err = syscall.Bind(socket, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err == nil {
		err = syscall.SetsockoptInt(socket, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	}
	if err != nil {
		syscall.Close(socket)
		return 0, fmt.Errorf("keep port %d: %w", port, err)
	}
	return socket, nil
}
