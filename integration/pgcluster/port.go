package pgcluster

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// Ports are drawn from below the range that the kernel gives to outgoing connections (32768 and up by default), so that
// no connection takes a server's port while the server is down.
const (
	firstPort = 12000
	lastPort  = 32000
)

var (
	portsMu sync.Mutex
	ports   = map[int]bool{} // handed out by this process
)

// FreePort returns a TCP port of 127.0.0.1 on which nobody listens. This process never hands it out again.
// Safe for concurrent use.
func FreePort() (int, error) {
	portsMu.Lock()
	defer portsMu.Unlock()
	var last error
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		if ports[port] {
			continue
		}
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			last = err
			continue
		}
		ports[port] = true
		return port, listener.Close()
	}
	return 0, fmt.Errorf("find a free port: %w", last)
}
