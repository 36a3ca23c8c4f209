package spool

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"walproxy/protocol"
	"walproxy/protocol/link"
)

// chain makes frames that follow each other; it reuses one frame.
type chain struct{ frame link.Frame }

func newChain(payload int) *chain {
	c := &chain{}
	c.frame = *coded(1, DefaultResetDistance, 2*payload, 0)
	c.frame.Payload = c.frame.Payload[:payload:payload]
	return c
}

// next seals the frame for the position behind the last one, shortened at a boundary.
func (c *chain) next(at protocol.LSN) *link.Frame {
	full := cap(c.frame.Payload)
	room := int(at.Next(DefaultResetDistance) - at)
	c.frame.Start = at
	c.frame.RawLen = uint32(min(2*full, room))
	c.frame.Payload = c.frame.Payload[:min(full, int(c.frame.RawLen)-1)]
	if c.frame.RawLen == 1 {
		c.frame.Codec, c.frame.Starts, c.frame.Payload = link.CodecRaw, false, c.frame.Payload[:1]
	} else {
		c.frame.Codec, c.frame.Starts = link.CodecZstd, true
	}
	c.frame.Seal()
	return &c.frame
}

func (c *chain) append(t testing.TB, l *Log) {
	at := l.State().End
	if at == 0 {
		at = DefaultResetDistance
	}
	mustAppend(t, l, c.next(at))
}

func benchAppend(b *testing.B, payload int) {
	l := openLog(b, b.TempDir(), Options{ResetDistance: DefaultResetDistance, NoSync: true})
	c := newChain(payload)
	b.SetBytes(int64(payload))
	b.ReportAllocs()
	for b.Loop() {
		c.append(b, l)
		if l.State().Bytes > 256<<20 {
			b.StopTimer()
			if err := errors.Join(l.Sync(), l.Retain(l.State().End)); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
	}
}

func BenchmarkAppend200(b *testing.B) { benchAppend(b, 200) }

func BenchmarkAppend32K(b *testing.B) { benchAppend(b, 32<<10) }

func benchRead(b *testing.B, payload int) {
	l := openLog(b, b.TempDir(), Options{ResetDistance: DefaultResetDistance, NoSync: true})
	c := newChain(payload)
	count := 0
	for l.State().Bytes < 32<<20 {
		c.append(b, l)
		count++
	}
	b.SetBytes(l.State().Bytes / int64(count))
	b.ReportAllocs()
	r := openReader(b, l, 1, l.State().Begin)
	n := 0
	for b.Loop() {
		if n == count {
			r, n = openReader(b, l, 1, l.State().Begin), 0
		}
		if _, err := r.Next(context.Background()); err != nil {
			b.Fatal(err)
		}
		n++
	}
}

func BenchmarkRead200(b *testing.B) { benchRead(b, 200) }

func BenchmarkRead32K(b *testing.B) { benchRead(b, 32<<10) }

// BenchmarkTailWakeup measures from Append to the frame in a waiting reader's hands, and back.
func BenchmarkTailWakeup(b *testing.B) {
	l := openLog(b, b.TempDir(), Options{ResetDistance: DefaultResetDistance, NoSync: true})
	c := newChain(200)
	c.append(b, l)
	r := openReader(b, l, 1, l.State().End)
	got := make(chan error) // one per frame; closed by nobody
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{}) // closed when the reader ends
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_, err := r.Next(ctx)
			select {
			case got <- err:
			case <-ctx.Done():
			}
		}
	}()
	for b.Loop() {
		c.append(b, l)
		if err := <-got; err != nil {
			b.Fatal(err)
		}
	}
	cancel()
	<-done
}

func benchSync(b *testing.B, payload int) {
	l := openLog(b, b.TempDir(), Options{ResetDistance: DefaultResetDistance})
	c := newChain(payload)
	times := make([]time.Duration, 0, b.N)
	for b.Loop() {
		began := time.Now()
		c.append(b, l)
		if err := l.Sync(); err != nil {
			b.Fatal(err)
		}
		times = append(times, time.Since(began))
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Microseconds()), "p50-µs")
}

func BenchmarkSync200(b *testing.B) { benchSync(b, 200) }

func BenchmarkSync8K(b *testing.B) { benchSync(b, 8<<10) }

// TestNoAllocationPerFrame holds for appending and reading within a window.
func TestNoAllocationPerFrame(t *testing.T) {
	l := openLog(t, t.TempDir(), Options{ResetDistance: DefaultResetDistance, NoSync: true})
	c := newChain(200)
	for range 10 {
		c.append(t, l)
	}
	r := openReader(t, l, 1, l.State().Begin)
	if _, err := r.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Sealing, checking at Append and checking at Next are one checksum each, which is package link's to make cheap.
	checksum := testing.AllocsPerRun(100, c.frame.Seal)
	if n := testing.AllocsPerRun(500, func() {
		c.append(t, l)
		if _, err := r.Next(context.Background()); err != nil {
			t.Fatal(err)
		}
	}); n > 3*checksum {
		t.Fatalf("%v allocations per frame", n)
	}
}
