package walreceiver_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/protocol/ship"
	"walproxy/protocol/walreceiver"
)

// frameSink puts raw frames into a memSink.
type frameSink struct{ *memSink }

func (s frameSink) Accept(link.ServerHello) error { return nil }

func (s frameSink) Hello() link.ClientHello {
	return link.ClientHello{ResetDistance: 4 << 20, WindowBytes: 10000}
}

func (s frameSink) Frame(ctx context.Context, f *link.Frame) error {
	if f.Codec == link.CodecTimelineEnd {
		end, err := f.TimelineEnd()
		if err != nil {
			return err
		}
		return s.EndTimeline(ctx, f.Timeline, f.Start, end.Next, end.History)
	}
	return s.WAL(ctx, f.Timeline, f.Start, f.Payload)
}

// frameSource cuts WAL into raw frames and ends the timeline behind them; without a next timeline it waits.
type frameSource struct {
	timeline, next protocol.Timeline
	start          protocol.LSN
	wal            []byte
	frame          link.Frame
}

func (s *frameSource) Begin(link.ClientHello) error { return nil }

func (s *frameSource) Ready() bool { return len(s.wal) > 0 || s.next != 0 }

func (s *frameSource) Next(ctx context.Context) (*link.Frame, error) {
	if len(s.wal) == 0 && s.next == 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if len(s.wal) == 0 {
		var err error
		s.frame, err = link.NewTimelineEnd(s.timeline, s.start, s.next, []byte(fmt.Sprintf("%d\t%s\n", s.timeline, s.start)))
		return &s.frame, err
	}
	n := min(len(s.wal), 700)
	s.frame = link.Frame{Timeline: s.timeline, Start: s.start, RawLen: uint32(n), RawSum: link.Checksum(s.wal[:n]), Payload: s.wal[:n]}
	s.frame.Seal()
	s.wal, s.start = s.wal[n:], s.start+protocol.LSN(n)
	return &s.frame, nil
}

func (s *frameSource) Close() error { return nil }

// serveFrames is a node's walsender in short: frames down, hello and acknowledgements up, the end of the timeline. Every
// connection is cut after cut messages, 0 for never.
func serveFrames(t *testing.T, c *fakeConn, source *frameSource, cut int) {
	ctx, cancel := context.WithCancel(t.Context())
	out := ship.NewOutgoing(source, link.ServerHello{
		SystemID: 7000000000000000001, Timeline: source.timeline, Start: source.start, ResetDistance: 4 << 20,
	}, "test")
	c.send(copyBoth)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	done := make(chan struct{})
	wg.Go(func() {
		defer cancel()
		for {
			kind, body, err := c.read()
			if err != nil {
				return
			}
			if kind == 'c' {
				close(done)
				return
			}
			if _, err := out.Incoming(body); err != nil {
				t.Error(err)
			}
		}
	})
	for messages := 1; ; messages++ {
		body, _, err := out.Next(ctx, nil)
		var ended *protocol.TimelineEndError
		if errors.As(err, &ended) {
			c.send(message('c'))
			<-done
			c.send(description(2), row(fmt.Sprint(ended.Next), ended.At.String()), tag("START_STREAMING"), tag("START_REPLICATION"), ready)
			return
		}
		if err != nil {
			return
		}
		c.send(message('d', body...), keepalive(0, true))
		if messages == cut {
			c.Close()
			return
		}
	}
}

// TestLink: a node as upstream is asked for frames; they arrive through cuts and over the end of a timeline. Without a Link
// option, or with a stock server, the same receiver streams plainly.
func TestLink(t *testing.T) {
	data := somewal(100000)
	fork := fakeBegin + 60000
	f := newFake(t, nil)
	f.parameters[link.LinkParameter] = link.LinkVersion
	f.histories["2"] = "1\t" + fork.String() + "\n"
	f.start = func(c *fakeConn, command string) {
		fields := strings.Fields(command)
		lsn, err := protocol.ParseLSN(fields[2])
		if err != nil {
			t.Error(err)
		}
		source := &frameSource{timeline: 2, start: lsn, wal: data[lsn-fakeBegin:]}
		if fields[4] == "1" {
			source = &frameSource{timeline: 1, next: 2, start: lsn, wal: data[lsn-fakeBegin : 60000]}
		}
		serveFrames(t, c, source, 3)
		if fields[4] == "1" && source.frame.Codec == link.CodecTimelineEnd {
			c.f.mu.Lock()
			c.f.timeline = 2
			c.f.mu.Unlock()
		}
	}
	sink := newMemSink()
	start(t, walreceiver.Options{Conninfo: f.conninfo(), Link: func(r walreceiver.LinkRequest) walreceiver.LinkStream {
		return ship.NewClient(frameSink{sink}, ship.Stream{Peer: r.Peer, SystemID: r.SystemID, Timeline: r.Timeline, Start: r.Start})
	}}, sink)
	sink.waitFor(t, 2, fakeBegin+100000)
	if string(sink.spans[0].wal)+string(sink.spans[1].wal) != string(data) || sink.spans[1].start != fork {
		t.Error("the WAL held differs from what was sent")
	}
	if n := len(f.started()); n < 3 {
		t.Errorf("%d connections, want the link to have been cut", n)
	}
}

// TestLinkVersion: an upstream that answers with another version is named, and not streamed from.
func TestLinkVersion(t *testing.T) {
	f := newFake(t, func(*fakeConn, string) { t.Error("started") })
	f.parameters[link.LinkParameter] = "2"
	logger, logs := observe()
	start(t, walreceiver.Options{Conninfo: f.conninfo(), Logger: logger, Link: func(walreceiver.LinkRequest) walreceiver.LinkStream {
		t.Error("asked for a stream")
		return nil
	}}, newMemSink())
	logs.await(t, "link version")
}
