package walsender_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"walproxy/protocol"
	"walproxy/protocol/walsender"
)

const begin = protocol.LSN(0x1000000)

func status(write, flush protocol.LSN, reply bool) []byte {
	return protocol.Status{Write: write, Flush: flush, SendTime: time.Now(), ReplyRequested: reply}.Append(nil)
}

// start begins a stream and reads CopyBothResponse.
func (c *client) start(command string) {
	c.t.Helper()
	c.query(command)
	c.expect(command, "W")
}

func TestStreamIsContiguousAndExact(t *testing.T) {
	content := wal(begin, 3<<20+5000)
	for _, offset := range []protocol.LSN{0, 1, 8191, 8192, 12345, 1 << 20, 3<<20 + 4999} {
		n := newNode("15.18", begin, bytes.Clone(content))
		h := serveTCP(t, n, walsender.Options{})
		c := h.connect(t)
		from := begin + offset
		c.start(fmt.Sprintf("START_REPLICATION %s TIMELINE 1", from))
		more := wal(n.wal[1].endLSN(), 300)
		var got []byte
		for end := begin + protocol.LSN(len(content)); from+protocol.LSN(len(got)) < end; {
			message, err := c.frontend.Receive()
			if err != nil {
				t.Fatal(err)
			}
			x, err := protocol.ParseXLogData(copyBody(t, message))
			if err != nil {
				t.Fatal(err)
			}
			last := x.Start + protocol.LSN(len(x.Data))
			switch {
			case x.Start != from+protocol.LSN(len(got)):
				t.Fatalf("chunk at %s, want %s", x.Start, from+protocol.LSN(len(got)))
			case len(x.Data) > 16*pageBytes:
				t.Fatalf("chunk of %d bytes", len(x.Data))
			case last%pageBytes != 0 && last != end:
				t.Fatalf("chunk ends at %s, inside a page", last)
			case x.WALEnd != end:
				t.Fatalf("end of WAL is %s, want %s", x.WALEnd, end)
			}
			got = append(got, x.Data...)
		}
		n.grow(more)
		c.expect("growth", fmt.Sprintf("w(%s+300)", begin+protocol.LSN(len(content))))
		if !bytes.Equal(got, content[offset:]) {
			t.Errorf("from %s: the bytes differ", from)
		}
		c.message('c', nil)
		c.expect("end", "c C(START_STREAMING) C(START_REPLICATION) Z(I)")
	}
}

func TestTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode("15.18", begin, wal(begin, 100))
		h := servePipe(t, n, walsender.Options{})
		c := h.connect(t, "options", "-c wal_sender_timeout=10s")
		if got := c.run("SHOW wal_sender_timeout"); got != "T(wal_sender_timeout:25) D(10s) C(SHOW) Z(I)" {
			t.Error(got)
		}
		began := time.Now()
		elapsed := func(what string, want time.Duration) {
			t.Helper()
			if got := time.Since(began); got != want {
				t.Errorf("%s after %s, want %s", what, got, want)
			}
		}
		c.start("START_REPLICATION 0/1000000")
		c.expect("WAL", "w(0/1000000+100)")
		time.Sleep(4 * time.Second) // of the bubble's clock
		c.copyData(status(begin, 0, false))
		c.expect("ping", "k(0/1000064 true)")
		elapsed("first ping", 9*time.Second)
		c.copyData(status(begin, 0, true))
		c.expect("answer", "k(0/1000064 false)")
		elapsed("answer", 9*time.Second)
		c.expect("ping", "k(0/1000064 true)")
		elapsed("second ping", 14*time.Second)
		if got := c.until('Z'); got != "closed" {
			t.Errorf("got %s, want silence and the end", got)
		}
		elapsed("end", 19*time.Second)
		h.stop()
	})
}

func TestNoTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode("15.18", begin, nil)
		h := servePipe(t, n, walsender.Options{})
		c := h.connect(t, "wal_sender_timeout", "0")
		c.start("START_REPLICATION 0/1000000")
		time.AfterFunc(24*time.Hour, func() { n.grow(wal(begin, 10)) })
		c.expect("WAL of the next day", "w(0/1000000+10)")
		c.conn.Close()
		h.stop()
	})
}

// A client that does not read is ended, and the session lets go of everything.
func TestStuckClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode("15.18", begin, wal(begin, 1<<20))
		h := servePipe(t, n, walsender.Options{})
		c := h.connect(t)
		c.start("START_REPLICATION 0/1000000")
		began := time.Now()
		eventually(t, n, "end of the stream", func() bool { return len(n.consumers) == 1 && n.consumers[0].closed })
		if d := time.Since(began); d != time.Minute {
			t.Errorf("ended after %s", d)
		}
		h.stop()
	})
}

// A shutdown does not wait for a client that never reads, not even one without a timeout.
func TestShutdownWithStuckClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode("15.18", begin, wal(begin, 1<<20))
		h := servePipe(t, n, walsender.Options{WALSenderTimeout: -1, DrainTimeout: 5 * time.Second})
		c := h.connect(t)
		c.start("START_REPLICATION 0/1000000")
		c.copyData(status(begin, 0, true))
		began := time.Now()
		h.stop()
		if d := time.Since(began); d != 6*time.Second {
			t.Errorf("ended after %s", d)
		}
	})
}

// Requests for a reply are answered while there is no WAL and while the reader of WAL hangs.
func TestReplyWhileStalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := servePipe(t, newNode("15.18", begin, nil), walsender.Options{})
		c := h.connect(t)
		c.start("START_REPLICATION 0/1000000")
		for range 1000 {
			began := time.Now()
			c.copyData(status(begin, begin, true))
			c.expect("answer", "k(0/1000000 false)")
			if time.Since(began) != 0 {
				t.Fatalf("answered after %s", time.Since(began))
			}
		}
		c.conn.Close()
		h.stop()
	})
}

func TestWhatEndsACopy(t *testing.T) {
	const idle = "T(wal_block_size:25) D(8192) C(SHOW) Z(I)"
	long := append(status(begin, 0, true), 0)
	tests := map[string]struct {
		kind byte
		body []byte
		want string // up to Z or the end
		next bool   // the session goes on
	}{
		"CopyDone":       {'c', nil, "c C(START_STREAMING) C(START_REPLICATION) Z(I)", true},
		"CopyFail":       {'f', []byte("no\x00"), "E(FATAL 08P01) closed", false},
		"Query":          {'Q', []byte("IDENTIFY_SYSTEM\x00"), "E(FATAL 08P01) closed", false},
		"Terminate":      {'X', nil, "closed", false},
		"unknown":        {'d', []byte("?"), "closed", false},
		"empty":          {'d', nil, "E(ERROR 08P01) Z(I)", true},
		"short report":   {'d', []byte("r123"), "E(ERROR 08P01) Z(I)", true},
		"short feedback": {'d', []byte("h123"), "E(ERROR 08P01) Z(I)", true},
		"long report":    {'d', long, "k(0/1000000 false)", false},
		"unknown kind":   {'@', nil, "E(FATAL 08P01) closed", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			n := newNode("15.18", begin, nil)
			h := servePipe(t, n, walsender.Options{})
			c := h.connect(t)
			c.run("CREATE_REPLICATION_SLOT s PHYSICAL")
			c.run("CREATE_REPLICATION_SLOT temp TEMPORARY PHYSICAL")
			c.start("START_REPLICATION SLOT s 0/1000000")
			c.message(test.kind, test.body)
			if name == "long report" {
				c.expect(name, test.want)
				return
			}
			if got := c.until('Z'); got != test.want {
				t.Fatalf("got %s, want %s", got, test.want)
			}
			eventually(t, n, "release", func() bool { return n.slots["s"].pid == 0 && n.consumers[0].closed })
			temporary := n.slots["temp"] != nil
			if wantTemporary := name == "CopyDone"; temporary != wantTemporary {
				t.Errorf("temporary slot there: %v", temporary)
			}
			if test.next {
				c.message('d', status(begin, 0, true)) // late, ignored
				c.message('c', nil)
				if got := c.run("SHOW wal_block_size"); got != idle {
					t.Errorf("afterwards: %s", got)
				}
			}
		})
	}
}

func TestStartChecks(t *testing.T) {
	n := newNode("15.18", begin, wal(begin, 1<<20+5000))
	n.fork(2, begin+1<<20+1000)
	n.grow(wal(n.wal[2].endLSN(), 200))
	h := servePipe(t, n, walsender.Options{})
	c := h.connect(t)
	for _, test := range []struct{ command, want string }{
		{"START_REPLICATION SLOT s 0/1000000", "E(ERROR 42704) Z(I)"},
		{"START_REPLICATION 0/1000000 TIMELINE 3", "E(ERROR XX000) Z(I)"},
		{"START_REPLICATION 0/11003E9 TIMELINE 1", "E(ERROR XX000) Z(I)"},
		{"START_REPLICATION 0/11003E8 TIMELINE 1",
			"T(next_tli:20 next_tli_startpos:25) D(2 0/11003E8) C(START_STREAMING) C(START_REPLICATION) Z(I)"},
		{"START_REPLICATION 0/2000000 TIMELINE 2", "W E(ERROR XX000) Z(I)"},
		{"START_REPLICATION 0/2000000", "W E(ERROR XX000) Z(I)"},
		{"START_REPLICATION 0/10FFFFF TIMELINE 2", "W E(ERROR 58P01) Z(I)"}, // before the fork's segment
		{"START_REPLICATION 0/0 TIMELINE 1", "W E(ERROR 58P01) Z(I)"},
	} {
		if got := c.run(test.command); got != test.want {
			t.Errorf("%s:\n got %s\nwant %s", test.command, got, test.want)
		}
	}
	c.start("START_REPLICATION 0/1100000 TIMELINE 2")
	c.expect("the child's copy of the parent's bytes", "w(0/1100000+1200)")
	c.message('c', nil)
	c.expect("end", "c C(START_STREAMING) C(START_REPLICATION) Z(I)")
	c.start("START_REPLICATION 0/1100000 TIMELINE 1")
	c.expect("the rest of the parent", "w(0/1100000+1000) c")
	c.copyData(status(begin, 0, true)) // still allowed
	c.message('c', nil)
	c.expect("end", "T(next_tli:20 next_tli_startpos:25) D(2 0/11003E8) C(START_STREAMING) C(START_REPLICATION) Z(I)")
}

func TestTimelineEndsLive(t *testing.T) {
	n := newNode("15.18", begin, wal(begin, 1000))
	h := servePipe(t, n, walsender.Options{})
	c := h.connect(t)
	c.start("START_REPLICATION 0/1000000 TIMELINE 1")
	c.expect("WAL", "w(0/1000000+1000)")
	n.fork(2, begin+1000)
	n.grow(wal(begin+1000, 24))
	c.expect("end of the timeline", "c")
	c.message('c', nil)
	c.expect("where to go on", "T(next_tli:20 next_tli_startpos:25) D(2 0/10003E8) C(START_STREAMING) C(START_REPLICATION) Z(I)")
	if got := c.run("TIMELINE_HISTORY 2"); got != "T(filename:25 content:25) D(00000002.history 1\t0/10003E8\ttest\n) C(TIMELINE_HISTORY) Z(I)" {
		t.Error(got)
	}
	c.start("START_REPLICATION 0/1000000 TIMELINE 2")
	c.expect("WAL", "w(0/1000000+1024)")
}

// The client ends the copy of a historic timeline before all of it was sent.
func TestCopyDoneOnHistoricTimeline(t *testing.T) {
	n := newNode("15.18", begin, wal(begin, 1<<20))
	n.fork(2, begin+1<<20)
	h := servePipe(t, n, walsender.Options{})
	c := h.connect(t)
	c.start("START_REPLICATION 0/1000000 TIMELINE 1")
	go c.message('c', nil) // the pipe has no buffer: the server may be writing
	got := c.until('Z')
	if !strings.HasSuffix(got, "c T(next_tli:20 next_tli_startpos:25) D(2 0/1100000) C(START_STREAMING) C(START_REPLICATION) Z(I)") {
		t.Error(got)
	}
}

func TestConsumerSeesEverything(t *testing.T) {
	n := newNode("15.18", begin, wal(begin, 5000))
	h := serveTCP(t, n, walsender.Options{ProbeTimeout: -1})
	c := h.connect(t, "application_name", "standby1")
	c.run("CREATE_REPLICATION_SLOT s PHYSICAL")
	c.start("START_REPLICATION SLOT s 0/1000000")
	c.expect("WAL", "w(0/1000000+5000)")
	want := protocol.Status{Write: begin + 5000, Flush: begin + 4000, Apply: begin + 3000, SendTime: time.UnixMicro(1e15)}
	feedback := protocol.HSFeedback{SendTime: time.UnixMicro(1e15), Xmin: 7, XminEpoch: 1}
	c.copyData(want.Append(nil))
	c.copyData(feedback.Append(nil))
	eventually(t, n, "reports", func() bool { return len(n.consumers) == 1 && len(n.consumers[0].feedback) == 1 })
	consumer := n.consumers[0]
	if consumer.reports[0] != want || consumer.feedback[0] != feedback || n.slots["s"].restart != begin+4000 {
		t.Errorf("%+v, slot at %s", consumer, n.slots["s"].restart)
	}
	c.copyData(status(begin+5000, 0, false)) // leaves the slot alone
	c.copyData(status(begin+5000, begin+1000, false))
	eventually(t, n, "slot going back", func() bool { return n.slots["s"].restart == begin+1000 })
	eventually(t, n, "state", func() bool { return consumer.is(walsender.StateStreaming) && consumer.sent == begin+5000 })
	if consumer.states[0] != walsender.StateCatchup {
		t.Errorf("states %v", consumer.states)
	}
	info := consumer.info
	if info.Peer == "" || info.Peer != c.conn.LocalAddr().String() {
		t.Errorf("peer %q", info.Peer)
	}
	info.Peer = ""
	if info != (walsender.Info{PID: int32(c.pid), User: "postgres", ApplicationName: "standby1", Slot: "s", Timeline: 1, Start: begin}) {
		t.Errorf("%+v", info)
	}
	other := h.connect(t)
	if got := other.run("START_REPLICATION SLOT s 0/1000000"); got != "E(ERROR 55006) Z(I)" {
		t.Errorf("slot in use: %s", got)
	}
	c.conn.Close()
	eventually(t, n, "end", func() bool { return consumer.closed && n.slots["s"].pid == 0 })
}

func TestCancelAndTerminate(t *testing.T) {
	n := newNode("15.18", begin, wal(begin, 100))
	h := serveTCP(t, n, walsender.Options{})
	c := h.connect(t)
	request := func(key []byte) {
		other := newClient(t, h.dial(t))
		other.raw(packet(80877102, append(binary.BigEndian.AppendUint32(nil, c.pid), key...)))
		if got := other.until('Z'); got != "closed" {
			t.Errorf("cancel request answered by %s", got)
		}
	}
	request(c.key) // nothing to cancel
	c.start("START_REPLICATION 0/1000000")
	c.expect("WAL", "w(0/1000000+100)")
	request([]byte{c.key[0] + 1, c.key[1], c.key[2], c.key[3]})
	n.grow(wal(begin+100, 1))
	c.expect("WAL after a wrong key", "w(0/1000064+1)")
	request(c.key)
	c.expect("canceled", "E(ERROR 57014) Z(I)")
	c.start("START_REPLICATION 0/1000065")
	if !h.server.Terminate(int32(c.pid)) || h.server.Terminate(0) {
		t.Error("Terminate is wrong about who is there")
	}
	if got := c.until('Z'); got != "E(FATAL 57P01) closed" {
		t.Errorf("terminated: %s", got)
	}
}

func TestShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode("15.18", begin, wal(begin, 100))
		h := servePipe(t, n, walsender.Options{DrainTimeout: 5 * time.Second})
		idle, good, mute := h.connect(t), h.connect(t), h.connect(t)
		early := newClient(t, h.dial(t))
		for _, c := range []*client{good, mute} {
			c.start("START_REPLICATION 0/1000000")
			c.expect("WAL", "w(0/1000000+100)")
		}
		synctest.Wait() // early's session has begun
		began := time.Now()
		h.shutdown()
		if got := idle.until('Z'); got != "E(FATAL 57P01) closed" {
			t.Errorf("idle: %s", got)
		}
		if got := early.until('Z'); got != "E(FATAL 57P03) closed" {
			t.Errorf("before its startup packet: %s", got)
		}
		good.expect("drain", "k(0/1000064 true)")
		good.copyData(status(begin+100, begin+50, false))
		good.expect("not yet", "k(0/1000064 true)")
		good.copyData(status(begin+100, begin+100, false))
		good.expect("confirmed", "C(COPY 0) closed")
		if time.Since(began) != 0 {
			t.Errorf("took %s", time.Since(began))
		}
		mute.expect("no answer", "k(0/1000064 true) C(COPY 0) closed")
		if time.Since(began) != 5*time.Second {
			t.Errorf("took %s", time.Since(began))
		}
		h.stop()
		for _, c := range n.consumers {
			if !c.closed || !c.is(walsender.StateStopping) {
				t.Errorf("%+v", c.states)
			}
		}
	})
}

// What is there when the shutdown begins is still sent.
func TestShutdownSendsTheRest(t *testing.T) {
	n := newNode("15.18", begin, wal(begin, 8<<20))
	h := serveTCP(t, n, walsender.Options{})
	c := h.connect(t)
	c.start("START_REPLICATION 0/1000000")
	h.shutdown()
	next := begin
	for {
		kind, text := c.receive()
		if kind == 'C' {
			break
		}
		var start string
		var length int
		if _, err := fmt.Sscanf(strings.NewReplacer("(", " ", "+", " ", ")", "").Replace(text), "w %s %d", &start, &length); err == nil {
			if start != next.String() {
				t.Fatalf("%s, want %s", text, next)
			}
			next += protocol.LSN(length)
		} else if strings.HasPrefix(text, "k(") {
			c.copyData(status(next, next, false))
		} else {
			t.Fatal(text)
		}
	}
	if next != begin+8<<20 {
		t.Errorf("the last byte is before %s", next)
	}
}

func TestListenNeedsAuthentication(t *testing.T) {
	n := newNode("15.18", begin, nil)
	for _, test := range []struct {
		address          string
		users, plaintext bool
		ok               bool
	}{{"127.0.0.1:0", false, false, true}, {"0.0.0.0:0", false, true, false}, {"0.0.0.0:0", true, true, true}, {":0", false, false, false},
		{"127.0.0.1:0", true, false, true}, {"0.0.0.0:0", true, false, false}} {
		l, err := net.Listen("tcp", test.address)
		if err != nil {
			t.Fatal(err)
		}
		var options walsender.Options
		if test.users {
			users, err := walsender.NewUsers(nil)
			if err != nil {
				t.Fatal(err)
			}
			options.Access = passwords(users)
		}
		options.Access.Plaintext = test.plaintext
		if err := options.Validate(l.Addr()); (err == nil) != test.ok {
			t.Errorf("%s: Validate: %v", test.address, err)
		}
		server, err := walsender.New(n, n, n, options, nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := server.Serve(ctx, l); (err == nil) != test.ok {
			t.Errorf("%s: Serve: %v", test.address, err)
		}
	}
}
