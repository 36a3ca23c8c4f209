package ship_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/protocol/ship"
)

const (
	begin    = protocol.LSN(0x3000000)
	distance = 4 << 20
	system   = protocol.SystemID(42)
)

// makeFrames returns count frames, contiguous from begin, that obey the rules of the format; some are as large as frames get.
func makeFrames(seed uint64, count int) []link.Frame {
	random := rand.New(rand.NewPCG(seed, 1))
	frames := make([]link.Frame, 0, count)
	lsn, stream := begin, uint32(0)
	for range count {
		room := int(distance - uint64(lsn)%distance)
		f := link.Frame{Timeline: 1, Start: lsn, RawLen: uint32(1 + random.IntN(min(room, 30000)))}
		if random.IntN(50) == 0 {
			f.RawLen = uint32(room)
		}
		if uint64(lsn)%distance == 0 {
			stream = 0
		}
		switch kind := random.IntN(3); {
		case kind == 0 || f.RawLen < 3:
			f.Payload = make([]byte, f.RawLen)
		case kind == 1 || stream == 0:
			f.Codec, f.Starts, f.Payload = link.CodecZstd, true, make([]byte, f.RawLen/2)
		default:
			f.Codec, f.Continues, f.Stream, f.Payload = link.CodecZstd, true, stream, make([]byte, f.RawLen/3)
		}
		for i := 0; i < len(f.Payload); i += 64 { // sparse: filling is not what is tested
			f.Payload[i] = byte(random.Uint32())
		}
		f.RawSum = random.Uint32()
		f.Seal()
		if f.Starts {
			stream = f.Sum
		}
		frames = append(frames, f)
		lsn = f.End()
	}
	return frames
}

// source gives frames that grow.
type source struct {
	mu      sync.Mutex
	frames  []link.Frame
	next    int
	changed chan struct{}
	hello   *link.ClientHello
	err     error // after the last frame, instead of waiting
	closed  bool
	current link.Frame
}

func newSource(frames []link.Frame) *source {
	return &source{frames: frames, changed: make(chan struct{})}
}

func (s *source) Begin(h link.ClientHello) error { s.hello = &h; return nil }

func (s *source) Ready() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next < len(s.frames) || s.err != nil
}

func (s *source) Next(ctx context.Context) (*link.Frame, error) {
	for {
		s.mu.Lock()
		if s.next < len(s.frames) {
			s.current = s.frames[s.next]
			s.next++
			s.mu.Unlock()
			return &s.current, nil
		}
		err, changed := s.err, s.changed
		s.mu.Unlock()
		if err != nil {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-changed:
		}
	}
}

func (s *source) add(frames ...link.Frame) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frames = append(s.frames, frames...)
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *source) Close() error { s.closed = true; return nil }

// sink keeps what it is given.
type sink struct {
	hello    link.ClientHello
	accepted []link.ServerHello
	frames   []link.Frame
	fail     error
	block    func(context.Context) error
}

func (s *sink) Hello() link.ClientHello { return s.hello }

func (s *sink) Accept(h link.ServerHello) error { s.accepted = append(s.accepted, h); return nil }

func (s *sink) Frame(ctx context.Context, f *link.Frame) error {
	if s.block != nil {
		if err := s.block(ctx); err != nil {
			return err
		}
	}
	if s.fail != nil {
		return s.fail
	}
	kept := *f
	kept.Payload = bytes.Clone(f.Payload)
	s.frames = append(s.frames, kept)
	return nil
}

func newSink(window uint32) *sink {
	return &sink{hello: link.ClientHello{ResetDistance: distance, WindowBytes: window}}
}

func newPair(s *source, k *sink, start protocol.LSN) (*ship.Outgoing, *ship.Client) {
	out := ship.NewOutgoing(s, link.ServerHello{SystemID: system, Timeline: 1, Start: start, ResetDistance: distance}, "down")
	return out, ship.NewClient(k, ship.Stream{Peer: "up", SystemID: system, Timeline: 1, Start: start})
}

func equal(t *testing.T, got, want []link.Frame) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d frames arrived, want %d", len(got), len(want))
	}
	for i := range got {
		g, w := got[i], want[i]
		payloads := bytes.Equal(g.Payload, w.Payload)
		g.Payload, w.Payload = nil, nil
		if !payloads || !reflect.DeepEqual(g, w) {
			t.Fatalf("frame %d is %+v, want %+v; payloads equal: %t", i, g, w, payloads)
		}
	}
}

// replies carries what the client has to say to the server.
func replies(t *testing.T, out *ship.Outgoing, c *ship.Client) {
	t.Helper()
	if err := c.Replies(func(body []byte) error {
		handled, err := out.Incoming(body)
		if !handled && err == nil {
			t.Errorf("message %q is not handled", body[0])
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// TestCarry: all frames arrive as they were, whatever the window, and the window holds.
func TestCarry(t *testing.T) {
	for _, window := range []uint32{1, 1000, 100 << 10, 1 << 20, ship.DefaultWindowBytes, 0} {
		t.Run(fmt.Sprint(window), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				frames := makeFrames(uint64(window), 500)
				end, err := link.NewTimelineEnd(1, frames[499].Start, 3, []byte("1\t0/3000000\n"))
				if err != nil {
					t.Fatal(err)
				}
				frames = append(frames, end)
				s, k := newSource(nil), newSink(window)
				out, client := newPair(s, k, begin)
				messages := make(chan []byte) // unbuffered: a network of no capacity
				var wg sync.WaitGroup
				wg.Go(func() {
					defer close(messages)
					for {
						msg, _, err := out.Next(ctx, nil)
						var ended *protocol.TimelineEndError
						if errors.As(err, &ended) {
							if *ended != (protocol.TimelineEndError{Timeline: 1, Next: 3, At: frames[499].Start}) {
								t.Errorf("got %v", ended)
							}
							return
						}
						if err != nil {
							t.Error(err)
							return
						}
						messages <- msg
					}
				})
				wg.Go(func() {
					for i, f := range frames {
						s.add(f)
						if i%10 == 9 {
							synctest.Wait()
						}
					}
				})
				replies(t, out, client)
				wg.Go(func() {
					for {
						select {
						case <-client.Wake():
							replies(t, out, client)
						case <-ctx.Done():
							return
						}
					}
				})
				for msg := range messages {
					if err := client.Message(ctx, msg); err != nil {
						t.Fatal(err)
					}
				}
				cancel()
				wg.Wait()
				equal(t, k.frames, frames)
				if client.Received() != frames[499].Start {
					t.Errorf("received %s", client.Received())
				}
			})
		})
	}
}

// TestWindowStalls: a downstream node that takes nothing gets no more than the window; an acknowledgement lets it go on.
func TestWindowStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const window = 600 << 10
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		frames := makeFrames(3, 300)
		s, k := newSource(frames), newSink(window)
		out, client := newPair(s, k, begin)
		replies(t, out, client)
		sent := make(chan []byte, 1000)
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		wg.Go(func() {
			for {
				msg, _, err := out.Next(ctx, nil)
				if err != nil {
					if !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
					return
				}
				sent <- msg
			}
		})
		synctest.Wait()
		total := 0
		var taken uint64
		for range len(sent) {
			msg := <-sent
			total += len(msg)
			if err := client.Message(ctx, msg); err != nil {
				t.Fatal(err)
			}
		}
		total -= len(link.ServerHello{}.Append(nil))
		taken = uint64(total)
		if total > window || total < window/2 {
			t.Fatalf("%d bytes left without an acknowledgement, the window is %d", total, window)
		}
		before := client.Received()
		if _, err := out.Incoming(link.AppendAck(nil, taken)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(sent) == 0 {
			t.Fatal("nothing left after the acknowledgement")
		}
		if err := client.Message(ctx, <-sent); err != nil || client.Received() <= before {
			t.Fatalf("received %s after %s: %v", client.Received(), before, err)
		}
	})
}

// TestResume: a link that is cut after any message goes on behind the last frame that was taken.
func TestResume(t *testing.T) {
	frames := makeFrames(9, 60)
	k := newSink(0)
	for at := 0; at < len(frames); {
		start := frames[at].Start
		s := newSource(frames[at:])
		s.err = errors.New("cut")
		out, client := newPair(s, k, start)
		replies(t, out, client)
		hello, _, err := out.Next(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		body, sent, err := out.Next(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, msg := range [][]byte{hello, body} {
			if err := client.Message(t.Context(), msg); err != nil {
				t.Fatal(err)
			}
		}
		if *s.hello != (link.ClientHello{ResetDistance: distance, WindowBytes: ship.DefaultWindowBytes}) || sent != client.Received() {
			t.Fatalf("source heard %+v; sent %s, received %s", *s.hello, sent, client.Received())
		}
		at = len(k.frames)
	}
	equal(t, k.frames, frames)
}

// TestInterrupted: an ended context loses no frame.
func TestInterrupted(t *testing.T) {
	frames := makeFrames(11, 20)
	s, k := newSource(frames), newSink(0)
	out, client := newPair(s, k, begin)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if msg, _, err := out.Next(ended, []byte("before")); !errors.Is(err, context.Canceled) || string(msg) != "before" {
		t.Fatalf("got %q, %v", msg, err)
	}
	replies(t, out, client)
	for len(k.frames) < len(frames) {
		msg, _, err := out.Next(ended, nil)
		if errors.Is(err, context.Canceled) {
			msg, _, err = out.Next(t.Context(), nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := client.Message(t.Context(), msg); err != nil {
			t.Fatal(err)
		}
	}
	equal(t, k.frames, frames)
	if err := out.Close(); err != nil || !s.closed {
		t.Error("the source is not closed")
	}
}
