package node

import (
	"context"
	"math/rand/v2"
	"testing"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/protocol/ship"
	"walproxy/protocol/walsender"
	"walproxy/recompress"
	"walproxy/slots/feed"
	"walproxy/slots/spool"
)

// BenchmarkRelay has one goroutine carry WAL through all that two nodes do with it between their sockets: A's recompression and
// spool, the link, B's decoding and spool, and the messages for a standby. What it leaves out are the sockets and fsyncs.
func BenchmarkRelay(b *testing.B) {
	for _, codec := range []recompress.Codec{recompress.None, recompress.Zstd} {
		b.Run(codec.String(), func(b *testing.B) { benchRelay(b, codec) })
	}
}

const relayChunk = 128 << 10

func benchRelay(b *testing.B, codec recompress.Codec) {
	ctx := context.Background()
	logA, feedA := relayFeed(b, codec)
	logB, feedB := relayFeed(b, codec)
	wal := make([]byte, relayChunk)
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range wal {
		wal[i] = byte(rng.Uint32()) & 0x0f
	}
	start := protocol.LSN(0x1000000)
	take := func(at protocol.LSN) {
		if err := feedA.WAL(ctx, 1, at, wal); err != nil {
			b.Fatal(err)
		}
	}
	take(start)
	frames, err := feedA.OpenFrames(1, start)
	if err != nil {
		b.Fatal(err)
	}
	out := ship.NewOutgoing(frames, link.ServerHello{SystemID: 7, Timeline: 1, Start: start, ResetDistance: spool.DefaultResetDistance}, "B")
	defer out.Close()
	client := ship.NewClient(feedB, ship.Stream{Peer: "A", SystemID: 7, Timeline: 1, Start: start})
	reply := func() {
		if err := client.Replies(func(body []byte) error { _, err := out.Incoming(body); return err }); err != nil {
			b.Fatal(err)
		}
	}
	reply()
	var message, xlog []byte
	pass := func(upTo protocol.LSN) {
		for client.Received() < upTo {
			if message, _, err = out.Next(ctx, message[:0]); err != nil {
				b.Fatal(err)
			}
			if err := client.Message(ctx, message); err != nil {
				b.Fatal(err)
			}
			reply()
		}
	}
	pass(start + relayChunk)
	reader, err := feedB.OpenWAL(1, start)
	if err != nil {
		b.Fatal(err)
	}
	plain, err := walsender.NewPlain(reader, start, 8192, func() protocol.LSN { _, end := feedB.Position(); return end })
	if err != nil {
		b.Fatal(err)
	}
	defer plain.Close()
	b.SetBytes(relayChunk)
	b.ReportAllocs()
	next, sent := start+relayChunk, protocol.LSN(0)
	for b.Loop() {
		take(next)
		next += relayChunk
		pass(next)
		for sent < next {
			if xlog, sent, err = plain.Next(ctx, xlog[:0]); err != nil {
				b.Fatal(err)
			}
		}
		if uint64(next)%(64<<20) == 0 {
			b.StopTimer()
			for _, l := range []*spool.Log{logA, logB} {
				if err := l.Sync(); err != nil {
					b.Fatal(err)
				}
				if err := l.Retain(next); err != nil {
					b.Fatal(err)
				}
			}
			b.StartTimer()
		}
	}
}

func relayFeed(b *testing.B, codec recompress.Codec) (*spool.Log, *feed.Feed) {
	log, err := spool.Open(b.TempDir(), spool.Options{NoSync: true})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = log.Close() })
	if err := log.SetIdentity(protocol.Identity{SystemID: 7, SegmentSize: 16 << 20, WALBlockSize: 8192, ServerVersion: "15.1"}); err != nil {
		b.Fatal(err)
	}
	f, err := feed.New(log, feed.Options{Recompress: recompress.Options{Codec: codec, ResetDistance: spool.DefaultResetDistance}})
	if err != nil {
		b.Fatal(err)
	}
	return log, f
}
