package walsender_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/jackc/pgx/v5/pgproto3"

	"walproxy/protocol"
	"walproxy/protocol/walsender"
)

// relayed is a Relay whose upstream is a script.
type relayed struct {
	script func(server net.Conn) // plays the upstream of each connection
	dial   func() net.Conn       // instead of script: a connection that is idle
	isNode bool
	err    error

	mu       sync.Mutex
	asked    []walsender.SQLSession
	reserved []protocol.LSN
	canceled chan struct{} // closed by the first cancel request
	closed   chan struct{} // closed when the first connection is
}

func newRelayed(script func(net.Conn)) *relayed {
	return &relayed{script: script, canceled: make(chan struct{}), closed: make(chan struct{})}
}

func (r *relayed) Backup(context.Context) (walsender.Upstream, error) {
	if r.err != nil {
		return nil, r.err
	}
	if r.dial != nil {
		return &upstream{Conn: r.dial(), of: r}, nil
	}
	client, server := net.Pipe()
	go func() {
		r.script(server)
		_ = server.Close()
	}()
	return &upstream{Conn: client, of: r}, nil
}

func (r *relayed) Reserve(_ context.Context, _ int32, _ protocol.Timeline, start protocol.LSN) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reserved = append(r.reserved, start)
	return nil
}

func (r *relayed) SQL(ctx context.Context, want walsender.SQLSession) (walsender.Upstream, error) {
	r.mu.Lock()
	r.asked = append(r.asked, want)
	r.mu.Unlock()
	return r.Backup(ctx)
}

type upstream struct {
	net.Conn
	of *relayed
}

func (u *upstream) Peer() string { return "upstream" }
func (u *upstream) Parameters() map[string]string {
	return map[string]string{"server_version": "15.99"}
}
func (u *upstream) IsNode() bool { return u.of.isNode }
func (u *upstream) Gather(int)   {}

func (u *upstream) Cancel(context.Context) error {
	u.of.mu.Lock()
	defer u.of.mu.Unlock()
	select {
	case <-u.of.canceled:
	default:
		close(u.of.canceled)
	}
	return nil
}

func (u *upstream) Close() error {
	u.of.mu.Lock()
	defer u.of.mu.Unlock()
	select {
	case <-u.of.closed:
	default:
		close(u.of.closed)
	}
	return u.Conn.Close()
}

func typed(kind byte, body []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{kind}, uint32(4+len(body))), body...)
}

// readMessage reads one message of a frontend.
func readMessage(conn io.Reader) (byte, []byte, error) {
	head := make([]byte, 5)
	if _, err := io.ReadFull(conn, head); err != nil {
		return 0, nil, err
	}
	body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
	_, err := io.ReadFull(conn, body)
	return head[0], body, err
}

func encoded(messages ...pgproto3.BackendMessage) []byte {
	var b []byte
	for _, m := range messages {
		b, _ = m.Encode(b)
	}
	return b
}

// backupAnswer is what a server says to BASE_BACKUP, without ReadyForQuery.
func backupAnswer(size int) []byte {
	rnd := rand.New(rand.NewPCG(1, 2))
	b := protocol.AppendRowDescription(nil, protocol.IdentifySystemColumns(15))
	b = protocol.AppendDataRow(b, []byte("0/2000028"), []byte("1"))
	b = protocol.AppendCommandComplete(b, "SELECT")
	b = append(b, encoded(&pgproto3.CopyOutResponse{})...)
	for n := 0; n < size; {
		data := make([]byte, rnd.IntN(60000))
		for i := range data {
			data[i] = "abc"[rnd.IntN(3)]
		}
		b = append(b, typed('d', data)...)
		n += len(data)
	}
	b = append(b, typed('c', nil)...)
	b = protocol.AppendDataRow(b, []byte("0/3000028"), []byte("1"))
	return protocol.AppendCommandComplete(b, "BASE_BACKUP")
}

// play answers each command by what it maps to, and ReadyForQuery.
func play(t *testing.T, answers map[string][]byte) func(net.Conn) {
	return func(server net.Conn) {
		for {
			kind, body, err := readMessage(server)
			if err != nil {
				return
			}
			answer, known := answers[strings.TrimRight(string(body), "\x00")]
			if kind != 'Q' || !known {
				t.Errorf("the upstream got %q %q", kind, body)
				return
			}
			if _, err := server.Write(append(bytes.Clone(answer), encoded(&pgproto3.ReadyForQuery{TxStatus: 'I'})...)); err != nil {
				return
			}
		}
	}
}

// chained makes h the upstream node of a server, over a link.
func (h *harness) chained(t *testing.T) *relayed {
	r := newRelayed(nil)
	r.isNode = true
	r.dial = func() net.Conn {
		c := newClient(t, h.dial(t))
		c.startup(3<<16, "user", "node_b", "replication", "true", "_pq_.walproxy_link", "1")
		for {
			kind, _, err := readMessage(c.conn)
			if err != nil {
				t.Errorf("connect to the upstream node: %v", err)
			}
			if kind == 'Z' || err != nil {
				return c.conn
			}
		}
	}
	return r
}

// readAnswer returns the bytes of an answer without its ReadyForQuery.
func readAnswer(t *testing.T, conn io.Reader) []byte {
	t.Helper()
	var all []byte
	for {
		kind, body, err := readMessage(conn)
		if err != nil {
			t.Fatalf("behind %d bytes: %v", len(all), err)
		}
		if kind == 'Z' {
			return all
		}
		all = append(all, typed(kind, body)...)
	}
}

// TestBackupIsRelayed: behind one, two and three nodes a client gets what the server said, byte for byte, twice in one session; and the
// node reserves WAL before the client knows where the backup begins.
func TestBackupIsRelayed(t *testing.T) {
	want := backupAnswer(700 << 10)
	script := func(answers map[string][]byte) func(net.Conn) {
		answers["BASE_BACKUP (LABEL 'x')"] = append(bytes.Clone(want), encoded(&pgproto3.ParameterStatus{Name: "in_hot_standby", Value: "off"})...)
		return play(t, answers)
	}
	refusal := encoded(&pgproto3.NoticeResponse{Severity: "WARNING", Code: "01000", Message: "careful"},
		&pgproto3.ErrorResponse{Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: "XX001", Message: "checksum", UnknownFields: map[byte]string{'p': "12"}})
	for nodes := 1; nodes <= 3; nodes++ {
		relay := newRelayed(script(map[string][]byte{"BASE_BACKUP": refusal}))
		last := relay
		var h *harness
		for range nodes {
			last = relay
			h = serveTCP(t, newNode("15.9", begin, wal(begin, 1000)), walsender.Options{Link: true, Relay: relay})
			relay = h.chained(t)
		}
		c := h.connect(t)
		for range 2 {
			c.query("BASE_BACKUP (LABEL 'x')")
			if got := readAnswer(t, c.conn); !bytes.Equal(got, want) {
				t.Fatalf("%d nodes: %d bytes, want %d", nodes, len(got), len(want))
			}
			c.query("BASE_BACKUP")
			if got := readAnswer(t, c.conn); !bytes.Equal(got, refusal) {
				t.Fatalf("%d nodes: %q, want %q", nodes, got, refusal)
			}
		}
		last.mu.Lock()
		if len(last.reserved) != 2 || last.reserved[0] != 0x2000028 {
			t.Errorf("%d nodes: reserved %v", nodes, last.reserved)
		}
		last.mu.Unlock()
		if got := c.run("IDENTIFY_SYSTEM"); !strings.HasSuffix(got, "C(IDENTIFY_SYSTEM) Z(I)") {
			t.Errorf("afterwards: %s", got)
		}
		h.stop()
	}
}

// TestManifestIsUploaded: what the client copies in arrives as it is, and the backup comes by the same connection.
func TestManifestIsUploaded(t *testing.T) {
	manifest := bytes.Repeat([]byte("manifest "), 200000)
	got := make(chan []byte, 1)
	relay := newRelayed(func(server net.Conn) {
		kind, body, _ := readMessage(server)
		if kind != 'Q' || string(body) != "UPLOAD_MANIFEST\x00" {
			t.Errorf("the upstream got %q %q", kind, body)
		}
		_, _ = server.Write(encoded(&pgproto3.CopyInResponse{}))
		var all []byte
		for {
			kind, body, err := readMessage(server)
			if kind != 'd' || err != nil {
				break
			}
			all = append(all, body...)
		}
		got <- all
		_, _ = server.Write(encoded(&pgproto3.CommandComplete{CommandTag: []byte("UPLOAD_MANIFEST")}, &pgproto3.ReadyForQuery{TxStatus: 'I'}))
		play(t, map[string][]byte{"BASE_BACKUP (INCREMENTAL)": backupAnswer(1000)})(server)
	})
	h := serveTCP(t, newNode("17.2", begin, wal(begin, 1000)), walsender.Options{Relay: relay})
	c := h.connect(t)
	c.query("UPLOAD_MANIFEST")
	if kind, _, err := readMessage(c.conn); kind != 'G' || err != nil {
		t.Fatalf("%q, %v", kind, err)
	}
	for piece := manifest; len(piece) > 0; piece = piece[min(len(piece), 65536):] {
		c.copyData(piece[:min(len(piece), 65536)])
	}
	c.message('c', nil)
	if answer := readAnswer(t, c.conn); !bytes.Equal(answer, encoded(&pgproto3.CommandComplete{CommandTag: []byte("UPLOAD_MANIFEST")})) {
		t.Errorf("answer %q", answer)
	}
	if !bytes.Equal(<-got, manifest) {
		t.Error("the manifest arrived changed")
	}
	c.query("BASE_BACKUP (INCREMENTAL)")
	if !bytes.Equal(readAnswer(t, c.conn), backupAnswer(1000)) {
		t.Error("the backup came changed")
	}
}

// TestBackupEnds: whatever ends a backup early ends it upstream, and the client learns why if it is there.
func TestBackupEnds(t *testing.T) {
	begun := backupAnswer(0)
	begun = begun[:bytes.Index(begun, typed('c', nil))]
	hang := func(server net.Conn, canceled <-chan struct{}) {
		_, _, _ = readMessage(server)
		_, _ = server.Write(begun)
		<-canceled
	}
	for name, c := range map[string]struct {
		end  func(t *testing.T, h *harness, c *client)
		want string
	}{
		"cancel":    {func(t *testing.T, h *harness, c *client) { h.cancelRequest(t, c) }, "E(ERROR 57014) Z(I)"},
		"terminate": {func(t *testing.T, h *harness, c *client) { h.server.Terminate(int32(c.pid)) }, "E(FATAL 57P01) closed"},
		"shutdown":  {func(t *testing.T, h *harness, c *client) { h.shutdown() }, "E(FATAL 57P01) closed"},
		"gone":      {func(_ *testing.T, _ *harness, c *client) { _ = c.conn.Close() }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				relay := newRelayed(nil)
				relay.script = func(server net.Conn) {
					hang(server, relay.canceled)
					if name == "cancel" {
						_, _ = server.Write(encoded(&pgproto3.ErrorResponse{Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: "57014", Message: "canceled"},
							&pgproto3.ReadyForQuery{TxStatus: 'I'}))
					}
					<-relay.closed
				}
				h := servePipe(t, newNode("15.9", begin, wal(begin, 1000)), walsender.Options{Relay: relay})
				client := h.connect(t)
				client.query("BASE_BACKUP")
				if kind, _ := client.receive(); kind != 'T' {
					t.Fatalf("first message %q", kind)
				}
				if got := client.until('?'); !strings.Contains(got, "CopyOut") {
					t.Fatalf("then %s", got)
				}
				c.end(t, h, client)
				if c.want != "" {
					if got := client.until('Z'); got != c.want {
						t.Errorf("got %s, want %s", got, c.want)
					}
				}
				<-relay.canceled
				<-relay.closed
				_ = client.conn.Close()
				h.stop()
			})
		})
	}
}

func (h *harness) cancelRequest(t testing.TB, c *client) {
	other := newClient(t, h.dial(t))
	other.raw(packet(1234<<16|5678, append(binary.BigEndian.AppendUint32(nil, c.pid), c.key...)))
	if got := other.until(); got != "closed" {
		t.Errorf("a cancel request is answered by %s", got)
	}
}

// TestBackupWithoutUpstream: an upstream that cannot be reached, or that breaks off, is an error of the command, behind a link too.
func TestBackupWithoutUpstream(t *testing.T) {
	half := func(cut int) *relayed {
		return newRelayed(func(server net.Conn) {
			_, _, _ = readMessage(server)
			answer := backupAnswer(300 << 10)
			_, _ = server.Write(answer[:bytes.Index(answer, typed('c', nil))-cut])
		})
	}
	unreachable := newRelayed(nil)
	unreachable.err = errors.New("no route")
	fatal := newRelayed(func(server net.Conn) {
		_, _, _ = readMessage(server)
		_, _ = server.Write(encoded(&pgproto3.ErrorResponse{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: "57P01", Message: "shutting down"}))
	})
	for want, relay := range map[string]*relayed{
		"E(ERROR 08006) Z(I)": half(0), "closed": half(1), "E(ERROR 08001) Z(I)": unreachable, "E(FATAL 57P01) closed": fatal,
	} {
		for range 2 {
			h := serveTCP(t, newNode("15.9", begin, wal(begin, 1000)), walsender.Options{Link: true, Relay: relay})
			c := h.connect(t)
			c.query("BASE_BACKUP")
			got := c.until('Z')
			if i := strings.LastIndex(got, "E("); want == "closed" && i >= 0 || !strings.HasSuffix(got, want) {
				t.Errorf("want %s, got ...%s", want, got[max(0, len(got)-200):])
			}
			relay = h.chained(t) // the second time, behind another node
		}
	}
}

// TestSQLSession: what the server reports and says reaches the client, what the client says the server; a shutdown is told.
func TestSQLSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		relay := newRelayed(nil)
		row := protocol.AppendDataRow(nil, bytes.Repeat([]byte("x"), 300000))
		relay.script = func(server net.Conn) {
			for {
				kind, body, err := readMessage(server)
				if err != nil || kind == 'X' {
					return
				}
				switch {
				case kind == 'Q' && string(body) == "SELECT pg_sleep(9)\x00":
					<-relay.canceled
					_, _ = server.Write(encoded(&pgproto3.ErrorResponse{Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: "57014"}, &pgproto3.ReadyForQuery{TxStatus: 'I'}))
				default:
					_, _ = server.Write(append(bytes.Clone(row), encoded(&pgproto3.ReadyForQuery{TxStatus: 'T'})...))
				}
			}
		}
		h := servePipe(t, newNode("15.9", begin, wal(begin, 1000)), walsender.Options{Relay: relay, SQL: true})
		c := newClient(t, h.dial(t))
		c.startup(3<<16, "user", "rewind", "database", "db", "work_mem", "4MB", "options", "-c geqo=off")
		if got := c.until('Z'); got != "R(0) K(4) Z(I)" || c.status["server_version"] != "15.99" {
			t.Fatalf("got %s, parameters %v", got, c.status)
		}
		relay.mu.Lock()
		if want := relay.asked[0]; want.User != "rewind" || want.Database != "db" || want.Parameters["work_mem"] != "4MB" || want.Parameters["options"] != "-c geqo=off" {
			t.Errorf("asked for %+v", want)
		}
		relay.mu.Unlock()
		c.message('P', []byte("\x00SELECT 1\x00\x00\x00"))
		if got := readAnswer(t, c.conn); !bytes.Equal(got, row) {
			t.Errorf("%d bytes came back", len(got))
		}
		c.query("SELECT pg_sleep(9)")
		h.cancelRequest(t, c)
		if got := c.until('Z'); got != "E(ERROR 57014) Z(I)" {
			t.Errorf("after a cancel request: %s", got)
		}
		h.shutdown()
		if got := c.until('Z'); got != "E(FATAL 57P01) closed" {
			t.Errorf("after the shutdown: %s", got)
		}
		h.stop()
	})
}
