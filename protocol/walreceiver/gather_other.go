//go:build !linux

package walreceiver

import "net"

// gather is not done on this system.
func gather(net.Conn, int) {}
