package link_test

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"testing"

	"walproxy/protocol"
	"walproxy/protocol/link"
)

// known reports whether err is of a class that decoders may return.
func known(err error) bool {
	var version *link.VersionError
	var unseen *link.UnseenStreamError
	return errors.Is(err, link.ErrShort) || errors.Is(err, link.ErrCorrupt) || errors.As(err, &version) || errors.As(err, &unseen)
}

// FuzzFrames: whatever decodes keeps the rules and encodes to the same frame; whatever does not has an error of a class.
func FuzzFrames(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(encode(makeFrames(rand.New(rand.NewPCG(seed, 3)), 6)))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		frames, err := decode(b)
		if err != nil && !known(err) {
			t.Fatalf("an error of no class: %v", err)
		}
		for i := range frames {
			g := frames[i]
			g.Seal()
			if g.Sum != frames[i].Sum || g.Start.Floor(link.MinResetDistance) != (g.End()-min(1, protocol.LSN(g.RawLen))).Floor(link.MinResetDistance) {
				t.Fatalf("frame %d breaks a rule: %+v", i, frames[i])
			}
			if g.Codec == link.CodecTimelineEnd {
				if _, err := g.TimelineEnd(); err != nil && !known(err) {
					t.Fatal(err)
				}
			}
		}
		again, err := decode(encode(frames))
		if err != nil || len(frames) > 0 && !reflect.DeepEqual(again, frames) {
			t.Fatalf("not the same after a round trip: %v", err)
		}
	})
}

// TestReseal finds inputs for FuzzFrames' interesting half: valid checksums over mutated headers.
func TestReseal(t *testing.T) {
	random := seeded(t)
	for range 20000 {
		g := link.Frame{
			Timeline: protocol.Timeline(random.IntN(3)), Start: protocol.LSN(random.Uint64() >> random.IntN(64)),
			RawLen: random.Uint32() >> random.IntN(32), Codec: link.Codec(random.IntN(16)), Starts: random.IntN(3) == 0,
			Continues: random.IntN(3) == 0, Payload: make([]byte, random.IntN(40)),
		}
		if g.Continues {
			g.Stream = random.Uint32()
		}
		g.Seal()
		b := new(link.Cursor).Append(nil, &g)
		got, n, err := new(link.Cursor).Decode(b)
		if err != nil && !known(err) || err == nil && (n != len(b) || !reflect.DeepEqual(got, g)) {
			t.Fatalf("%+v became %+v, %v", g, got, err)
		}
	}
}

func FuzzWindowHeader(f *testing.F) {
	h := link.WindowHeader{Kind: link.WindowLive, SystemID: 1, Timeline: 1, SegmentSize: 16 << 20, WALBlockSize: 8192, ResetDistance: 4 << 20, Start: 5}
	f.Add(h.Append(nil))
	h.Kind, h.End, h.IndexOffset, h.IndexBytes = link.WindowSealed, 10, 100, 21
	f.Add(h.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := link.DecodeWindowHeader(b)
		if err != nil && !known(err) {
			t.Fatal(err)
		}
		if err == nil && string(h.Append(nil)) != string(b[:link.WindowHeaderBytes]) {
			t.Fatalf("%+v does not encode to what it came from", h)
		}
	})
}

// TestWindowHeaderBits: no single bit of a header flips unnoticed.
func TestWindowHeaderBits(t *testing.T) {
	h := link.WindowHeader{Kind: link.WindowSealed, SystemID: 1, Timeline: 1, SegmentSize: 1 << 20, WALBlockSize: 8192,
		ResetDistance: 1 << 20, Start: 1 << 20, End: 2 << 20, IndexOffset: 1000, IndexBytes: 34}
	b := h.Append(nil)
	if got, err := link.DecodeWindowHeader(b); err != nil || got != h {
		t.Fatalf("got %+v, %v", got, err)
	}
	for bit := range 8 * len(b) {
		b[bit/8] ^= 1 << (bit % 8)
		if _, err := link.DecodeWindowHeader(b); !known(err) {
			t.Fatalf("bit %d: %v", bit, err)
		}
		b[bit/8] ^= 1 << (bit % 8)
	}
	for n := range len(b) {
		if _, err := link.DecodeWindowHeader(b[:n]); !errors.Is(err, link.ErrShort) {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
}

func FuzzMessages(f *testing.F) {
	f.Add(link.ClientHello{Stream: 1, ResetDistance: 4 << 20, WindowBytes: 10}.Append(nil))
	f.Add(link.ServerHello{SystemID: 1, Timeline: 1, Start: 10, ResetDistance: 4 << 20}.Append(nil))
	f.Add(link.AppendAck(nil, 77))
	f.Fuzz(func(t *testing.T, b []byte) {
		client, err := link.DecodeClientHello(b)
		if err == nil && string(client.Append(nil)) != string(b) || err != nil && !known(err) {
			t.Fatalf("client hello %+v, %v", client, err)
		}
		server, err := link.DecodeServerHello(b)
		if err == nil && string(server.Append(nil)) != string(b) || err != nil && !known(err) {
			t.Fatalf("server hello %+v, %v", server, err)
		}
		consumed, err := link.DecodeAck(b)
		if err == nil && string(link.AppendAck(nil, consumed)) != string(b) || err != nil && !known(err) {
			t.Fatalf("ack %d, %v", consumed, err)
		}
	})
}

func FuzzTimelineEnd(f *testing.F) {
	f.Add(uint32(1), uint64(5), uint32(2), []byte("1\t0/5\n"))
	f.Fuzz(func(t *testing.T, tli uint32, at uint64, next uint32, history []byte) {
		end, err := link.NewTimelineEnd(protocol.Timeline(tli), protocol.LSN(at), protocol.Timeline(next), history)
		if err != nil {
			return
		}
		got, err := end.TimelineEnd()
		if err != nil || got.Next != protocol.Timeline(next) || string(got.History) != string(history) {
			t.Fatalf("got %+v, %v", got, err)
		}
		bare := link.Frame{Timeline: protocol.Timeline(tli), Start: protocol.LSN(at), Codec: link.CodecTimelineEnd, Payload: history}
		if _, err := bare.TimelineEnd(); err != nil && !known(err) {
			t.Fatal(err)
		}
	})
}
