package ship_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/protocol/ship"
)

func serverHello(change func(*link.ServerHello)) []byte {
	h := link.ServerHello{SystemID: system, Timeline: 1, Start: begin, ResetDistance: distance}
	change(&h)
	return h.Append(nil)
}

func framesMessage(frames ...link.Frame) []byte {
	var cursor link.Cursor
	msg := []byte{link.MessageFrames}
	for i := range frames {
		msg = cursor.Append(msg, &frames[i])
	}
	return msg
}

// TestBadServer: whatever is wrong with what an upstream node says is a *PeerError that holds the place.
func TestBadServer(t *testing.T) {
	frames := makeFrames(1, 3)
	good := serverHello(func(*link.ServerHello) {})
	version := append([]byte(nil), good...)
	version[1] = 9
	flipped := framesMessage(frames[0])
	flipped[len(flipped)-1] ^= 1
	other := frames[1]
	other.Timeline = 2
	other.Seal()
	end, err := link.NewTimelineEnd(1, begin, 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	late, err := link.NewTimelineEnd(1, begin+1, 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string][][]byte{
		"empty":              {{}},
		"garbage":            {[]byte("GET / HTTP/1.1\r\n")},
		"plain WAL":          {good, protocol.AppendXLogDataHeader(nil, begin, begin, time.Time{})},
		"frames first":       {framesMessage(frames[0])},
		"version":            {version},
		"short hello":        {good[:10]},
		"second hello":       {good, good},
		"other system":       {serverHello(func(h *link.ServerHello) { h.SystemID++ })},
		"other timeline":     {serverHello(func(h *link.ServerHello) { h.Timeline++ })},
		"other start":        {serverHello(func(h *link.ServerHello) { h.Start++ })},
		"windows too large":  {serverHello(func(h *link.ServerHello) { h.ResetDistance *= 2 })},
		"no frames":          {good, {link.MessageFrames}},
		"cut frame":          {good, flipped[:len(flipped)-1]},
		"flipped bit":        {good, flipped},
		"gap":                {good, framesMessage(frames[1])},
		"timeline changes":   {good, framesMessage(frames[0], other)},
		"frame again":        {good, framesMessage(frames[0]), framesMessage(frames[0])},
		"frame behind end":   {good, framesMessage(end, frames[0])},
		"message behind end": {good, framesMessage(end), framesMessage(frames[0])},
		"end too far":        {good, framesMessage(late)},
	}
	for name, messages := range tests {
		t.Run(name, func(t *testing.T) {
			k := newSink(0)
			_, client := newPair(newSource(nil), k, begin)
			for i, msg := range messages {
				err := client.Message(t.Context(), msg)
				if i+1 < len(messages) {
					if err != nil {
						t.Fatal(err)
					}
					continue
				}
				var peer *ship.PeerError
				if !errors.As(err, &peer) || peer.Peer != "up" || peer.LSN != client.Received() {
					t.Fatalf("got %v, want a *PeerError", err)
				}
				var fatal interface{ Fatal() bool }
				if errors.As(err, &fatal) {
					t.Error("a peer's fault is fatal")
				}
			}
		})
	}
}

// TestBadClient: whatever is wrong with what a downstream node says is a *PeerError that can be sent to it.
func TestBadClient(t *testing.T) {
	good := link.ClientHello{ResetDistance: distance, WindowBytes: 1000}.Append(nil)
	tests := map[string][][]byte{
		"short hello":      {good[:4]},
		"version":          {append([]byte{'L', 7, 0}, good[3:]...)},
		"no window":        {link.ClientHello{ResetDistance: distance}.Append(nil)},
		"second hello":     {good, good},
		"short ack":        {good, {link.MessageAck, 1}},
		"too much":         {good, link.AppendAck(nil, 1)},
		"ack before hello": {link.AppendAck(nil, 1)},
	}
	for name, messages := range tests {
		t.Run(name, func(t *testing.T) {
			out, _ := newPair(newSource(nil), newSink(0), begin)
			for i, msg := range messages {
				handled, err := out.Incoming(msg)
				if !handled {
					t.Fatalf("message %q is not handled", msg)
				}
				if i+1 < len(messages) {
					if err != nil {
						t.Fatal(err)
					}
					continue
				}
				var peer *ship.PeerError
				var sent *protocol.Error
				if !errors.As(err, &peer) || !errors.As(err, &sent) || sent.Code != protocol.CodeProtocolViolation {
					t.Fatalf("got %v", err)
				}
			}
		})
	}
	out, _ := newPair(newSource(nil), newSink(0), begin)
	for _, msg := range [][]byte{nil, {'r', 1}, {'h'}} {
		if handled, err := out.Incoming(msg); handled || err != nil {
			t.Errorf("%q: handled %t, %v", msg, handled, err)
		}
	}
}

// TestSmallWindows: a node that takes only smaller windows is refused in words.
func TestSmallWindows(t *testing.T) {
	k := newSink(0)
	k.hello.ResetDistance = 1 << 20
	out, client := newPair(newSource(nil), k, begin)
	replies(t, out, client)
	var sent *protocol.Error
	for range 2 {
		if _, _, err := out.Next(t.Context(), nil); !errors.As(err, &sent) {
			t.Fatalf("got %v", err)
		}
	}
}

// TestSinkErrors: a frame that does not decode is the peer's fault, a full disk is not.
func TestSinkErrors(t *testing.T) {
	full := errors.New("no space left on device")
	tests := []struct {
		err   error
		fatal bool
	}{
		{&link.CorruptError{Timeline: 1, LSN: begin}, false},
		{&link.UnseenStreamError{Timeline: 1, LSN: begin}, false},
		{&link.VersionError{What: "codec", Got: 9}, false},
		{full, true},
	}
	for _, test := range tests {
		k := newSink(0)
		k.fail = test.err
		_, client := newPair(newSource(nil), k, begin)
		if err := client.Message(t.Context(), serverHello(func(*link.ServerHello) {})); err != nil {
			t.Fatal(err)
		}
		err := client.Message(t.Context(), framesMessage(makeFrames(1, 1)...))
		var fatal interface{ Fatal() bool }
		if !errors.Is(err, test.err) || errors.As(err, &fatal) != test.fatal {
			t.Errorf("%v became %v", test.err, err)
		}
		if client.Received() != begin {
			t.Errorf("received %s although the frame was refused", client.Received())
		}
	}
	k := newSink(0)
	ctx, cancel := context.WithCancel(t.Context())
	k.block = func(ctx context.Context) error { cancel(); return ctx.Err() }
	_, client := newPair(newSource(nil), k, begin)
	if err := client.Message(ctx, serverHello(func(*link.ServerHello) {})); err != nil {
		t.Fatal(err)
	}
	if err := client.Message(ctx, framesMessage(makeFrames(1, 1)...)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the end of the context", err)
	}
}

// TestNoAllocation: frames cost no allocation on either end.
func TestNoAllocation(t *testing.T) {
	frames := makeFrames(5, 1000)
	s, k := newSource(frames), &countingSink{hello: link.ClientHello{ResetDistance: distance, WindowBytes: 64 << 20}}
	out := ship.NewOutgoing(s, link.ServerHello{SystemID: system, Timeline: 1, Start: begin, ResetDistance: distance}, "down")
	client := ship.NewClient(k, ship.Stream{Peer: "up", SystemID: system, Timeline: 1, Start: begin})
	replies(t, out, client)
	buffer := make([]byte, 0, 8<<20)
	step := func() {
		msg, _, err := out.Next(t.Context(), buffer)
		if err == nil {
			err = client.Message(t.Context(), msg)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	step()
	if n := testing.AllocsPerRun(20, step); n != 0 {
		t.Errorf("%.1f allocations per message", n)
	}
	if k.count < 100 {
		t.Errorf("only %d frames measured", k.count)
	}
}

// countingSink counts frames.
type countingSink struct {
	hello link.ClientHello
	count int
}

func (s *countingSink) Hello() link.ClientHello { return s.hello }

func (s *countingSink) Accept(link.ServerHello) error { return nil }

func (s *countingSink) Frame(context.Context, *link.Frame) error { s.count++; return nil }

// FuzzMessages: no sequence of messages makes either end panic.
func FuzzMessages(f *testing.F) {
	f.Add(serverHello(func(*link.ServerHello) {}), framesMessage(makeFrames(1, 3)...))
	f.Add(link.ClientHello{ResetDistance: distance, WindowBytes: 1}.Append(nil), link.AppendAck(nil, 0))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		out, client := newPair(newSource(nil), newSink(0), begin)
		for _, msg := range [][]byte{a, b} {
			before := client.Received()
			if err := client.Message(t.Context(), msg); err != nil && client.Received() < before {
				t.Error("went back")
			}
			if _, err := out.Incoming(msg); err != nil {
				return
			}
		}
	})
}
