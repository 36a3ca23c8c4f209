package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
)

// Address is where something listens: host:port, unix:/path of the socket, or for HTTP "off".
type Address string

// Off is the Address of what is not to listen.
const Off Address = "off"

const unixPrefix = "unix:"

// maxUnixPathBytes is the longest path of a unix socket. Source: Linux unix(7), sun_path with its terminating zero.
const maxUnixPathBytes = 107

// Network returns what net.Listen takes. The address has been checked.
func (a Address) Network() (network, address string) {
	if path, unix := strings.CutPrefix(string(a), unixPrefix); unix {
		return "unix", path
	}
	return "tcp", string(a)
}

// Local reports whether only this machine can reach the address, as far as its text tells.
func (a Address) Local() bool {
	network, address := a.Network()
	if network == "unix" || a == Off {
		return true
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

func (a Address) check() error {
	network, address := a.Network()
	if network == "unix" {
		switch {
		case !filepath.IsAbs(address):
			return fmt.Errorf("%q: the path of a unix socket must be absolute, as in unix:/run/walproxy/.s.PGSQL.5433", a)
		case len(address) > maxUnixPathBytes:
			return fmt.Errorf("%q: the path of a unix socket has at most %d bytes", a, maxUnixPathBytes)
		}
		return nil
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%q is not an address: want host:port or unix:/path", a)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 && port != "0" {
		return fmt.Errorf("%q: the port must be a number up to 65535", a)
	}
	return nil
}

func (a Address) checkHTTP() error {
	if a == Off {
		return nil
	}
	if network, _ := a.Network(); network == "unix" {
		return errors.New("a unix socket is not possible here: want host:port or off")
	}
	return a.check()
}
