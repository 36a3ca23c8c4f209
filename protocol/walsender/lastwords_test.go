package walsender_test

import (
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"walproxy/protocol/link"
	"walproxy/protocol/walsender"
)

// TestNothingFollowsACutMessage: a client that stops reading in the middle of a message until the node gives it up must not
// find the reason in the message's rest.
func TestNothingFollowsACutMessage(t *testing.T) {
	noise := make([]byte, 50000)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
	flood := func(server net.Conn) { // a message that is never read to its end
		_, _, _ = readMessage(server)
		_, _ = server.Write(append(encoded(&pgproto3.CopyOutResponse{}), typed('d', noise)...))
		_, _ = io.Copy(io.Discard, server)
	}
	for name, test := range map[string]struct {
		patience time.Duration // of the node
		open     func(t *testing.T) (*harness, *client)
	}{
		"stream": {30 * time.Second, func(t *testing.T) (*harness, *client) {
			h := servePipe(t, newNode("15.9", begin, wal(begin, 5000)), walsender.Options{})
			c := h.connect(t)
			c.start("START_REPLICATION 0/1000000")
			return h, c
		}},
		"backup": {time.Second, func(t *testing.T) (*harness, *client) {
			h := servePipe(t, newNode("15.9", begin, nil), walsender.Options{Relay: newRelayed(flood)})
			c := h.connect(t)
			c.query("BASE_BACKUP")
			return h, c
		}},
		"backup for a node": {time.Second, func(t *testing.T) (*harness, *client) {
			h := servePipe(t, newNode("15.9", begin, nil), walsender.Options{Link: true, Relay: newRelayed(flood)})
			c := h.connect(t, link.StartupParameter, link.LinkVersion)
			c.query("BASE_BACKUP")
			return h, c
		}},
		"SQL": {time.Second, func(t *testing.T) (*harness, *client) {
			h := servePipe(t, newNode("15.9", begin, nil), walsender.Options{Relay: newRelayed(flood), SQL: true})
			c := newClient(t, h.dial(t))
			c.startup(3<<16, "user", "postgres", "database", "postgres")
			if got := c.until('Z', 'E'); !strings.HasSuffix(got, "Z(I)") {
				t.Fatalf("connect: %s", got)
			}
			c.query("SELECT")
			return h, c
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, c := test.open(t)
				if _, err := io.ReadFull(c.conn, make([]byte, 4900)); err != nil {
					t.Fatal(err)
				}
				h.server.Terminate(int32(c.pid))
				time.Sleep(test.patience + time.Second)
				if rest, err := io.ReadAll(c.conn); len(rest) != 0 || err != nil {
					t.Errorf("%q follows, %v", rest, err)
				}
			})
		})
	}
}

// TestLastWordsReachABusyClient: a client that is behind, and whose reports come while the session ends, learns why, having been sent
// every message before that to its end.
func TestLastWordsReachABusyClient(t *testing.T) {
	h := serveTCP(t, newNode("15.18", begin, wal(begin, 16<<20)), walsender.Options{})
	for round := range 20 {
		c := h.connect(t)
		c.start("START_REPLICATION 0/1000000")
		if !h.server.Terminate(int32(c.pid)) {
			t.Fatal("no session")
		}
		for range 100 {
			c.copyData(status(begin, begin, true))
		}
		if got := c.until('E'); !strings.HasSuffix(got, "E(FATAL 57P01)") {
			t.Fatalf("round %d: the stream ended with %s", round, got[max(0, len(got)-200):])
		}
		_ = c.conn.Close()
	}
}
