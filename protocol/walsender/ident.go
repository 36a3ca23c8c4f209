package walsender

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"walproxy/protocol/socket"
)

// identTimeout bounds the question to the client's machine, maxIdentBytes the answer.
const (
	identPort     = "113"
	identTimeout  = 5 * time.Second
	maxIdentBytes = 512
)

// systemUser returns the client's user of the operating system: as the kernel says for a unix socket, as the client's machine
// says for a TCP connection.
func (s *session) systemUser(method Method) (string, error) {
	if method == MethodPeer {
		return socket.Peer(s.wire.raw)
	}
	return askIdent(s.wire.raw, identPort)
}

// askIdent asks the client's machine by RFC 1413.
//
// Source: PostgreSQL src/backend/libpq/auth.c, ident_inet (13-18).
func askIdent(conn net.Conn, port string) (string, error) {
	remote, ok1 := conn.RemoteAddr().(*net.TCPAddr)
	local, ok2 := conn.LocalAddr().(*net.TCPAddr)
	if !ok1 || !ok2 {
		return "", fmt.Errorf("ask ident: not a TCP connection")
	}
	dialer := net.Dialer{Timeout: identTimeout, LocalAddr: &net.TCPAddr{IP: local.IP, Zone: local.Zone}}
	c, err := dialer.Dial("tcp", net.JoinHostPort(remote.IP.String(), port))
	if err != nil {
		return "", fmt.Errorf("ask ident: %w", err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(identTimeout)); err != nil {
		return "", fmt.Errorf("ask ident: %w", err)
	}
	if _, err := fmt.Fprintf(c, "%d,%d\r\n", remote.Port, local.Port); err != nil {
		return "", fmt.Errorf("ask ident: %w", err)
	}
	line, err := bufio.NewReader(io.LimitReader(c, maxIdentBytes)).ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("ask ident: %w", err)
	}
	return parseIdent(line)
}

// parseIdent reads an answer such as "6193, 23 : USERID : UNIX : stjohns".
func parseIdent(line string) (string, error) {
	parts := strings.SplitN(strings.TrimRight(line, "\r\n"), ":", 4)
	if len(parts) != 4 || strings.TrimSpace(parts[1]) != "USERID" {
		return "", fmt.Errorf("ask ident: the answer names no user")
	}
	name := strings.TrimLeft(parts[3], " \t")
	if name == "" {
		return "", fmt.Errorf("ask ident: the answer names no user")
	}
	return name, nil
}
