package walsender

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
)

// TestAskIdent asks a server that answers as RFC 1413 says, and one that does not know.
func TestAskIdent(t *testing.T) {
	listen := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return l
	}
	service, ident := listen(), listen()
	client, err := net.Dial("tcp", service.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	conn, err := service.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, port, _ := net.SplitHostPort(ident.Addr().String())
	ports := fmt.Sprintf("%d,%d", client.LocalAddr().(*net.TCPAddr).Port, service.Addr().(*net.TCPAddr).Port)
	for answer, want := range map[string]string{" : USERID : UNIX :alice\r\n": "alice", " : ERROR : NO-USER\r\n": "", "": ""} {
		go func() {
			c, err := ident.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			if line, _ := bufio.NewReader(c).ReadString('\n'); strings.TrimSpace(line) == ports {
				_, _ = fmt.Fprintf(c, "%s%s", ports, answer) // the other end may be gone
			}
		}()
		name, err := askIdent(conn, port)
		if name != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", answer, name, err)
		}
	}
	if _, err := askIdent(conn, fmt.Sprint(client.LocalAddr().(*net.TCPAddr).Port)); err == nil {
		t.Error("without a server")
	}
}
