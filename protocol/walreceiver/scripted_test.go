package walreceiver_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"walproxy/protocol"
	"walproxy/protocol/walreceiver"
)

// somewal returns n bytes that differ from place to place.
func somewal(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8)
	}
	return b
}

// TestEndOfCopy: the end of a timeline in every order that is legal, or nearly so; no byte is lost and the next timeline
// begins at the switch point.
func TestEndOfCopy(t *testing.T) {
	data := somewal(300)
	first, rest := data[:100], data[100:]
	fork := fakeBegin + 300
	end := row("2", fork.String())
	started, replication := tag("START_STREAMING"), tag("START_REPLICATION")
	done := message('c')
	notice := message('N', append([]byte("SNOTICE\x00"), 0)...)
	status := message('S', append(text("in_hot_standby"), text("off")...)...)
	scripts := map[string]func(c *fakeConn){
		"stock": func(c *fakeConn) {
			c.send(copyBoth, wal(fakeBegin, first), wal(fakeBegin+100, rest), done)
			c.readKind('c')
			c.send(description(2), end, started, replication, status, ready)
		},
		"in flight": func(c *fakeConn) {
			c.send(copyBoth, wal(fakeBegin, first), done, wal(fakeBegin+100, rest))
			c.readKind('c')
			c.send(description(2), end, started, replication, ready)
		},
		"all at once": func(c *fakeConn) {
			c.send(bytes.Join([][]byte{copyBoth, wal(fakeBegin, data), keepalive(fork, true), done, description(2), end, started, replication, ready}, nil))
			c.readKind('c')
		},
		"between": func(c *fakeConn) {
			c.send(notice, copyBoth, notice, wal(fakeBegin, data), status, done, notice)
			c.readKind('c')
			c.send(status, description(2), notice, end, started, ready)
		},
		"closed behind the row": func(c *fakeConn) {
			c.send(copyBoth, wal(fakeBegin, data), done)
			c.readKind('c')
			c.send(description(2), end, started)
			c.Close()
		},
		"sent too far": func(c *fakeConn) {
			c.send(copyBoth, wal(fakeBegin, data), wal(fork, somewal(50)), done)
			c.readKind('c')
			c.send(description(2), end, started, replication, ready)
		},
	}
	for name, script := range scripts {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, func(c *fakeConn, command string) {
				if strings.HasSuffix(command, "TIMELINE 1") {
					script(c)
					c.f.mu.Lock()
					c.f.timeline = 2
					c.f.mu.Unlock()
					return
				}
				c.send(copyBoth, wal(fork, first))
				c.idle()
			})
			f.histories["2"] = "1\t" + fork.String() + "\treason\n"
			sink := newMemSink()
			start(t, walreceiver.Options{Conninfo: f.conninfo()}, sink)
			sink.waitFor(t, 2, fork+100)
			if !bytes.Equal(sink.spans[0].wal, data) || sink.spans[0].start != fakeBegin || !bytes.Equal(sink.spans[1].wal, first) {
				t.Fatalf("held: %d bytes, then %d", len(sink.spans[0].wal), len(sink.spans[1].wal))
			}
			starts := f.started()
			if want := fmt.Sprintf("START_REPLICATION PHYSICAL %s TIMELINE 2", fork); starts[len(starts)-1] != want {
				t.Errorf("started by %q, want %q", starts[len(starts)-1], want)
			}
		})
	}
}

// TestStartAtSwitchPoint: a start exactly where a historic timeline ended is answered by rows and no copy (pglogrepl#60).
func TestStartAtSwitchPoint(t *testing.T) {
	fork := fakeBegin + 64
	f := newFake(t, func(c *fakeConn, command string) {
		if strings.HasSuffix(command, "TIMELINE 1") {
			c.send(description(2), row("2", fork.String()), tag("START_STREAMING"), tag("START_REPLICATION"), ready)
			return
		}
		c.send(copyBoth, wal(fork, somewal(10)))
		c.idle()
	})
	f.timeline = 2
	f.histories["2"] = "1\t" + fork.String() + "\n"
	f.columns = []string{"dbname", "one more"}
	sink := newMemSink()
	sink.spans = []*span{{timeline: 1, start: fakeBegin, wal: somewal(64)}}
	start(t, walreceiver.Options{Conninfo: f.conninfo()}, sink)
	sink.waitFor(t, 2, fork+10)
	if content, _ := sink.History(2); string(content) != f.histories["2"] {
		t.Errorf("history %q", content)
	}
}

// TestDiverged: the upstream has other bytes than what is held; the error names the first of them, and Run ends.
func TestDiverged(t *testing.T) {
	held := somewal(300 << 10)
	const at = 250 << 10
	f := newFake(t, func(c *fakeConn, command string) {
		theirs := bytes.Clone(held)
		theirs[at]++
		lsn, err := protocol.ParseLSN(strings.Fields(command)[2])
		if err != nil {
			t.Error(err)
		}
		c.send(copyBoth)
		for from := int(lsn - fakeBegin); from < len(theirs); from += 10000 {
			c.send(wal(fakeBegin+protocol.LSN(from), theirs[from:min(from+10000, len(theirs))]))
		}
		c.idle()
	})
	sink := newMemSink()
	sink.spans = []*span{{timeline: 1, start: fakeBegin, wal: held}}
	wait, _ := start(t, walreceiver.Options{Conninfo: f.conninfo()}, sink)
	err := wait()
	var diverged *walreceiver.DivergedError
	if !errors.As(err, &diverged) || diverged.LSN != fakeBegin+at || diverged.Timeline != 1 || diverged.Peer == "" {
		t.Fatalf("got %v, want a *DivergedError at %s", err, fakeBegin+at)
	}
	if want := "START_REPLICATION PHYSICAL 0/102A000 TIMELINE 1"; f.started()[0] != want { // (300-128) KiB, a page boundary
		t.Errorf("started by %q, want %q", f.started()[0], want)
	}
}

// TestReportsWhileBlocked: the upstream hears of us in time although the sink takes nothing.
func TestReportsWhileBlocked(t *testing.T) {
	reports := make(chan protocol.Status, 100)
	f := newFake(t, func(c *fakeConn, _ string) {
		c.send(copyBoth, wal(fakeBegin, somewal(10)), keepalive(fakeBegin+10, true))
		for {
			body, err := c.readKind('r')
			if err != nil {
				return
			}
			status, err := protocol.ParseStatus(body)
			if err != nil {
				t.Error(err)
			}
			reports <- status
		}
	})
	sink := newMemSink()
	open := make(chan struct{})
	sink.gate = func(ctx context.Context) error {
		select {
		case <-open:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	begun := time.Now()
	start(t, walreceiver.Options{Conninfo: f.conninfo(), StatusInterval: time.Hour}, sink)
	for range 5 {
		if got := <-reports; got.Write != 0 {
			t.Fatalf("reported %s although nothing was taken", got.Write)
		}
	}
	if took := time.Since(begun); took > 3*time.Second {
		t.Errorf("five reports took %s with a wal_sender_timeout of 300ms", took)
	}
	close(open)
	for got := range reports {
		if got.Write == fakeBegin+10 && got.Flush == got.Write && got.Apply == 0 {
			break
		}
	}
}

// TestAnswersWhileBlocked: pings of the upstream are answered within a second although nobody can read them, because the sink
// blocks, and however long the upstream would wait.
func TestAnswersWhileBlocked(t *testing.T) {
	answered := make(chan time.Duration, 1)
	f := newFake(t, func(c *fakeConn, _ string) {
		c.send(copyBoth, wal(fakeBegin, somewal(10)))
		if _, err := c.readKind('r'); err != nil { // the one at the start
			return
		}
		asked := time.Now()
		c.send(keepalive(fakeBegin+10, true))
		if _, err := c.readKind('r'); err == nil {
			answered <- time.Since(asked)
		}
		_, _ = c.readKind('r')
	})
	f.senderTimeout = "1h"
	sink := newMemSink()
	sink.gate = func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	start(t, walreceiver.Options{Conninfo: f.conninfo(), StatusInterval: time.Hour}, sink)
	if took := <-answered; took > 1200*time.Millisecond {
		t.Errorf("the answer to a ping took %s", took)
	}
}

// TestStopWhileBlocked: a receiver whose sink blocks ends with its context.
func TestStopWhileBlocked(t *testing.T) {
	f := newFake(t, func(c *fakeConn, _ string) {
		c.send(copyBoth, wal(fakeBegin, somewal(10)))
		c.idle()
	})
	sink := newMemSink()
	blocked := make(chan struct{})
	sink.gate = func(ctx context.Context) error {
		close(blocked)
		<-ctx.Done()
		return ctx.Err()
	}
	_, stop := start(t, walreceiver.Options{Conninfo: f.conninfo()}, sink)
	<-blocked
	must(t, stopQuietly(stop))
}

// TestPing: a ping is answered at once, a silent upstream is pinged at half the timeout and left at the whole.
func TestPing(t *testing.T) {
	pinged := make(chan bool, 10)
	f := newFake(t, func(c *fakeConn, _ string) {
		c.send(copyBoth)
		c.readKind('r') // the first report, unasked
		c.send(keepalive(fakeBegin, true))
		if _, err := c.readKind('r'); err != nil {
			t.Error("no answer to a ping")
		}
		for {
			body, err := c.readKind('r')
			if err != nil {
				pinged <- false
				return
			}
			if status, err := protocol.ParseStatus(body); err == nil && status.ReplyRequested {
				pinged <- true
			}
		}
	})
	f.parameters["server_version"] = "13.23"
	start(t, walreceiver.Options{Conninfo: f.conninfo(), StatusInterval: time.Hour, ReceiverTimeout: time.Second}, newMemSink())
	if !<-pinged || <-pinged {
		t.Error("want one ping, then the end of the connection")
	}
}

// TestFeedback: hot standby feedback goes up unchanged.
func TestFeedback(t *testing.T) {
	got := make(chan protocol.HSFeedback, 10)
	f := newFake(t, func(c *fakeConn, _ string) {
		c.send(copyBoth)
		body, err := c.readKind('h')
		if err != nil {
			t.Error(err)
		}
		feedback, err := protocol.ParseHSFeedback(body)
		if err != nil {
			t.Error(err)
		}
		got <- feedback
		c.idle()
	})
	sink := newMemSink()
	sink.feedback = &protocol.HSFeedback{Xmin: 7, XminEpoch: 1, CatalogXmin: 5, CatalogEpoch: 2}
	start(t, walreceiver.Options{Conninfo: f.conninfo()}, sink)
	feedback := <-got
	feedback.SendTime = time.Time{}
	if feedback != *sink.feedback {
		t.Errorf("got %+v, want %+v", feedback, *sink.feedback)
	}
}

// TestHosts: what makes the receiver go on to the next host.
func TestHosts(t *testing.T) {
	good := func(c *fakeConn, _ string) {
		c.send(copyBoth, wal(fakeBegin+100, somewal(10)))
		c.idle()
	}
	refusing := func(code string) func(c *fakeConn, _ string) {
		return func(c *fakeConn, _ string) {
			c.send(copyBoth, errorResponse(protocol.Errorf(code, "no")), ready)
		}
	}
	tests := map[string]struct {
		first  func(f *fake)
		start  func(c *fakeConn, _ string)
		attrs  string
		second func(f *fake)
	}{
		"starting up":       {first: func(f *fake) { f.refuse = protocol.Fatalf(protocol.CodeCannotConnectNow, "starting up") }},
		"behind":            {start: refusing(protocol.CodeInternalError)},
		"removed":           {start: refusing(protocol.CodeUndefinedFile)},
		"older timeline":    {first: func(f *fake) { f.timeline = 1 }},
		"other history":     {first: func(f *fake) { f.histories["2"] = "1\t0/50\n" }},
		"other branch":      {first: func(f *fake) { f.timeline, f.histories["3"] = 3, "1\t0/1000064\n" }},
		"no IDENTIFY":       {first: func(f *fake) { f.timeline = 0 }},
		"standby":           {attrs: " target_session_attrs=primary", first: func(f *fake) { f.parameters["in_hot_standby"] = "on" }},
		"primary":           {attrs: " target_session_attrs=standby", second: func(f *fake) { f.parameters["in_hot_standby"] = "on" }},
		"preferred standby": {attrs: " target_session_attrs=prefer-standby", second: func(f *fake) { f.parameters["in_hot_standby"] = "on" }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if test.start == nil {
				test.start = func(c *fakeConn, _ string) { t.Error("started on the first host") }
			}
			a, b := newFake(t, test.start), newFake(t, good)
			for _, f := range []*fake{a, b} {
				f.timeline, f.histories["2"] = 2, "1\t0/1000064\n"
			}
			if test.first != nil {
				test.first(a)
			}
			if test.second != nil {
				test.second(b)
			}
			sink := newMemSink()
			sink.histories[2] = []byte("1\t0/1000064\n")
			sink.spans = []*span{{timeline: 2, start: fakeBegin + 100}}
			start(t, walreceiver.Options{Conninfo: twoHosts(a, b) + test.attrs}, sink)
			sink.waitFor(t, 2, fakeBegin+110)
		})
	}
}

// TestPreferStandbyAlone: a primary will do where there is no standby.
func TestPreferStandbyAlone(t *testing.T) {
	f := newFake(t, func(c *fakeConn, _ string) {
		c.send(copyBoth, wal(fakeBegin, somewal(10)))
		c.idle()
	})
	sink := newMemSink()
	start(t, walreceiver.Options{Conninfo: f.conninfo() + " target_session_attrs=prefer-standby"}, sink)
	sink.waitFor(t, 1, fakeBegin+10)
}

// TestBroken: whatever breaks a stream, the receiver comes back and goes on where it was.
func TestBroken(t *testing.T) {
	data := somewal(1000)
	scripts := map[string]func(c *fakeConn){
		"gap":       func(c *fakeConn) { c.send(copyBoth, wal(fakeBegin, data[:10]), wal(fakeBegin+20, data[20:30])) },
		"again":     func(c *fakeConn) { c.send(copyBoth, wal(fakeBegin, data[:10]), wal(fakeBegin, data[:10])) },
		"cut":       func(c *fakeConn) { c.send(copyBoth, wal(fakeBegin, data[:10])[:20]) },
		"oversized": func(c *fakeConn) { c.send(copyBoth, []byte{'d', 0x7f, 0xff, 0xff, 0xff}) },
		"negative":  func(c *fakeConn) { c.send(copyBoth, []byte{'d', 0xff, 0xff, 0xff, 0xff}) },
		"short":     func(c *fakeConn) { c.send(copyBoth, message('d', 'w', 1, 2)) },
		"empty":     func(c *fakeConn) { c.send(copyBoth, message('d')) },
		"unknown":   func(c *fakeConn) { c.send(copyBoth, message('d', 'q')) },
		"no copy":   func(c *fakeConn) { c.send(message('G', 0, 0, 0)) },
		"long ping": func(c *fakeConn) { c.send(copyBoth, message('d', append([]byte{'k'}, make([]byte, 18)...)...)) },
		"terminated": func(c *fakeConn) {
			c.send(copyBoth, errorResponse(protocol.Fatalf(protocol.CodeAdminShutdown, "terminated")))
		},
		"shutdown":    func(c *fakeConn) { c.send(copyBoth, wal(fakeBegin, data[:10]), tag("COPY 0")) },
		"end, no row": func(c *fakeConn) { c.send(copyBoth, message('c'), tag("START_REPLICATION"), ready); c.readKind('c') },
		"bad row":     func(c *fakeConn) { c.send(copyBoth, message('c'), description(1), row("2"), ready); c.readKind('c') },
		"end too far": func(c *fakeConn) {
			c.send(copyBoth, message('c'), description(2), row("2", "0/2000000"), ready)
			c.readKind('c')
		},
		"end backward": func(c *fakeConn) {
			c.send(copyBoth, message('c'), description(2), row("1", "0/1000000"), ready)
			c.readKind('c')
		},
		"busy slot": func(c *fakeConn) { c.send(errorResponse(protocol.Errorf(protocol.CodeObjectInUse, "busy")), ready) },
	}
	for name, script := range scripts {
		t.Run(name, func(t *testing.T) {
			var broken atomic.Bool
			f := newFake(t, func(c *fakeConn, command string) {
				if broken.CompareAndSwap(false, true) {
					script(c)
					c.Close()
					return
				}
				lsn, err := protocol.ParseLSN(strings.Fields(command)[2])
				if err != nil {
					t.Error(err)
				}
				c.send(copyBoth, wal(lsn, data[lsn-fakeBegin:]))
				c.idle()
			})
			sink := newMemSink()
			start(t, walreceiver.Options{Conninfo: f.conninfo()}, sink)
			sink.waitFor(t, 1, fakeBegin+1000)
			if !bytes.Equal(sink.spans[0].wal, data) || len(sink.spans) != 1 {
				t.Error("the WAL held differs from what was sent")
			}
		})
	}
}

// TestFarewell: a receiver that is stopped reports what it has, and says goodbye.
func TestFarewell(t *testing.T) {
	last := make(chan protocol.Status, 1)
	f := newFake(t, func(c *fakeConn, _ string) {
		c.send(copyBoth, wal(fakeBegin, somewal(10)))
		var status protocol.Status
		for {
			kind, body, err := c.read()
			if err != nil {
				t.Errorf("no goodbye: %v", err)
			}
			if err != nil || kind == 'X' {
				last <- status
				return
			}
			if status, err = protocol.ParseStatus(body); err != nil {
				t.Error(err)
			}
		}
	})
	sink := newMemSink()
	_, stop := start(t, walreceiver.Options{Conninfo: f.conninfo()}, sink)
	sink.waitFor(t, 1, fakeBegin+10)
	must(t, stopQuietly(stop))
	if got := <-last; got.Write != fakeBegin+10 || got.Flush != got.Write {
		t.Errorf("last report: written %s, flushed %s", got.Write, got.Flush)
	}
}

// TestReleasesWhenAsked: what the sink keeps back is taken in before the upstream gets the answer to its question.
func TestReleasesWhenAsked(t *testing.T) {
	answered := make(chan struct{})
	sink := newMemSink()
	f := newFake(t, func(c *fakeConn, _ string) {
		c.send(copyBoth, wal(fakeBegin, somewal(10)))
		if _, err := c.readKind('r'); err != nil { // the one at the start
			return
		}
		if n := sink.released.Load(); n != 0 {
			t.Errorf("%d releases without a question", n)
		}
		c.send(keepalive(fakeBegin+10, true))
		for sink.released.Load() == 0 {
			if _, err := c.readKind('r'); err != nil {
				return
			}
		}
		close(answered)
		_, _ = c.readKind('r')
	})
	start(t, walreceiver.Options{Conninfo: f.conninfo(), StatusInterval: time.Hour}, sink)
	<-answered
}

// TestReleasesBetweenStreams: what the sink keeps back is taken in when the connection breaks, before the next stream is asked for.
func TestReleasesBetweenStreams(t *testing.T) {
	again := make(chan struct{})
	sink := newMemSink()
	streams := 0
	f := newFake(t, func(c *fakeConn, _ string) {
		if streams++; streams == 1 {
			c.send(copyBoth, wal(fakeBegin, somewal(10)))
			sink.waitFor(t, 1, fakeBegin+10)
			_ = c.Close()
			return
		}
		if sink.released.Load() == 0 {
			t.Error("another stream was asked for, and nothing was released")
		}
		c.send(copyBoth)
		close(again)
		c.idle()
	})
	start(t, walreceiver.Options{Conninfo: f.conninfo(), StatusInterval: time.Hour}, sink)
	<-again
}
