package walreceiver_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"walproxy/protocol"
	"walproxy/protocol/walreceiver"
)

// closedPort returns a port that nobody listens on.
func closedPort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	must(t, l.Close())
	return l.Addr().(*net.TCPAddr).Port
}

// TestConnectErrors: every host once, with what is wrong with it, however often it was tried.
func TestConnectErrors(t *testing.T) {
	f := newFake(t, nil)
	f.refuse = protocol.Fatalf(protocol.CodeTooManyConnections, "no room")
	closed := closedPort(t)
	for conninfo, want := range map[string]string{
		fmt.Sprintf("host=127.0.0.1,127.0.0.1,/none port=%d,%d,5", closed, f.port()): fmt.Sprintf("connect to upstream 127.0.0.1:%d: "+
			"connection refused; 127.0.0.1:%d: FATAL: no room (SQLSTATE 53300); /none/.s.PGSQL.5: no such file or directory", closed, f.port()),
		fmt.Sprintf("host=primary hostaddr=127.0.0.1 port=%d", closed): fmt.Sprintf("connect to upstream primary (127.0.0.1:%d): connection refused", closed),
	} {
		logger, logs := observe()
		start(t, walreceiver.Options{Conninfo: conninfo + " user=u sslmode=prefer", Logger: logger}, newMemSink())
		if got := <-logs.errors; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// TestConninfoFilesAreReadAgain: a service that moves is followed without a restart.
func TestConninfoFilesAreReadAgain(t *testing.T) {
	f := newFake(t, func(c *fakeConn, _ string) {
		c.send(copyBoth, wal(fakeBegin, somewal(10)))
		c.idle()
	})
	file := filepath.Join(t.TempDir(), "services")
	point := func(port int) {
		t.Helper()
		must(t, os.WriteFile(file+".new", fmt.Appendf(nil, "[up]\nhost=127.0.0.1\nport=%d\nuser=u\nsslmode=disable\n", port), 0o600))
		must(t, os.Rename(file+".new", file))
	}
	point(closedPort(t))
	t.Setenv("PGSERVICEFILE", file)
	logger, logs := observe()
	sink := newMemSink()
	start(t, walreceiver.Options{Conninfo: "service=up", Logger: logger}, sink)
	logs.await(t, "connection refused")
	must(t, os.Remove(file))
	logs.await(t, "failed to read service file")
	point(f.port())
	sink.waitFor(t, 1, fakeBegin+10)
}

// TestRememberedRemoval: a server that has the file again, and remembers that it removed it, answers XX000 as one that has not
// got so far; where the start lies tells them apart.
func TestRememberedRemoval(t *testing.T) {
	for begin, want := range map[protocol.LSN]string{
		fakeBegin - 0x1000: "stop the upstream, copy segment 000000010000000000000000 and those behind it",
		fakeBegin + 0x1000: "has not reached 0/1001000 on timeline 1 yet",
	} {
		f := newFake(t, func(c *fakeConn, _ string) {
			c.send(copyBoth, errorResponse(protocol.Errorf(protocol.CodeInternalError, "any language")), ready)
		})
		sink := newMemSink()
		sink.spans = []*span{{timeline: 1, start: begin}}
		logger, logs := observe()
		start(t, walreceiver.Options{Conninfo: f.conninfo(), Logger: logger}, sink)
		logs.await(t, want)
	}
}
