package recompress

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/protocol/wal/waltest"
	"walproxy/recompress/zstd"
)

func heapBytes() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// What a Writer and a Reader keep, after whole windows at the default reset distance in chunks of 128 KiB.
func TestMemory(t *testing.T) {
	r := waltest.Random(t)
	all := makeWAL(r, 8*mib)
	tested := []Options{{Codec: Model, Level: 3}, {Codec: Model, Level: 16}}
	for _, level := range zstd.Levels {
		tested = append(tested, Options{Codec: Zstd, Level: level})
	}
	for _, o := range tested {
		codec, level, wal := o.Codec, o.Level, all
		if codec == Model {
			wal = all[:9*mib/2] // it is slow on bytes that are no WAL
		}
		before := heapBytes()
		w := mustWriter(t, o)
		var frames []link.Frame
		for at := 0; at < len(wal); at += 128 << 10 {
			frames = append(frames, write(t, w, protocol.LSN(at), wal[at:at+128<<10])...)
		}
		held := int64(0)
		for i := range frames {
			held += int64(cap(frames[i].Payload))
		}
		writer := heapBytes() - before - held
		before = heapBytes()
		reader := mustReader(t, Options{})
		var out []byte
		for i := range frames {
			var err error
			if out, err = reader.Decode(out[:0], &frames[i]); err != nil {
				t.Fatal(err)
			}
		}
		reading := heapBytes() - before
		runtime.KeepAlive(frames)
		runtime.KeepAlive(w)
		runtime.KeepAlive(reader)
		t.Logf("%-5s level %2d: writer %4.1f MiB, reader %4.1f MiB, ratio %.2f", codec, level, float64(writer)/mib, float64(reading)/mib,
			float64(len(wal))/float64(held))
		limit := int64(40 * mib)
		if codec == Zstd && level >= 10 {
			limit = 64 * mib // the tables of the widest search are 34 MiB
		}
		if writer > limit || reading > 16*mib {
			t.Errorf("%s, level %d: writer %d bytes, limit %d; reader %d bytes", codec, level, writer, limit, reading)
		}
	}
}

// A long run with one Writer and one Reader over windows of every kind: nothing goes wrong in reuse, and nothing grows.
func TestReuseSoak(t *testing.T) {
	r := waltest.Random(t)
	o := Options{Codec: Zstd, Level: 1, ResetDistance: mib}
	w, reader := mustWriter(t, o), mustReader(t, o)
	var out, want []byte
	start, base := protocol.LSN(0), int64(0)
	for round := range 120 {
		chunk := makeWAL(r, 100_000+r.IntN(900_000))
		if round%7 == 3 {
			copy(chunk, noise(r, 60_000))
		}
		if round%11 == 5 {
			start += protocol.LSN(r.IntN(5 * mib))
		}
		want, out = chunk, out[:0]
		for len(chunk) > 0 {
			n := min(1+r.IntN(90_000), len(chunk))
			err := w.Write(1, start, chunk[:n], func(f *link.Frame) (err error) {
				out, err = reader.Decode(out, f)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			chunk, start = chunk[n:], start+protocol.LSN(n)
		}
		if !bytes.Equal(out, want) {
			t.Fatalf("round %d: the WAL came back changed", round)
		}
		if round == 40 {
			base = heapBytes()
		}
	}
	if grown := heapBytes() - base; grown > mib {
		t.Errorf("the heap grew by %d bytes in 80 rounds", grown)
	}
	if s := w.Stats(); s.Mismatches != 0 {
		t.Errorf("stats %+v", s)
	}
}

// Once warm, nothing is allocated per record or per frame, in either direction, by any codec on real WAL. A zstd stream takes a few for its beginning, and
// the model keeps the names of the kinds of records that a stream meets.
func TestNoAllocationPerFrame(t *testing.T) {
	sample := waltest.Named(t, "oltp")
	const chunk = 700
	for codec, most := range map[Codec]float64{None: 0, Zstd: 4, LZ4: 0, Model: 60} {
		w, reader := mustWriter(t, Options{Codec: codec}), mustReader(t, Options{})
		out, frames := []byte(nil), 0
		emit := func(f *link.Frame) (err error) {
			frames++
			out, err = reader.Decode(out[:0], f)
			return err
		}
		run := func() {
			frames = 0
			w.Reset()
			for at := 0; at < len(sample.WAL); at += chunk {
				if err := w.Write(1, sample.Start+protocol.LSN(at), sample.WAL[at:min(at+chunk, len(sample.WAL))], emit); err != nil {
					t.Fatal(err)
				}
			}
		}
		for range 3 {
			run()
		}
		if allocs := testing.AllocsPerRun(5, run); allocs > most {
			t.Errorf("%s: %.1f allocations for %d frames, at most %.0f are expected", codec, allocs, frames, most)
		} else {
			t.Logf("%s: %.1f allocations for %d frames", codec, allocs, frames)
		}
	}
}

func BenchmarkWrite(b *testing.B) {
	wal := makeWAL(waltest.Random(b), 4*mib)
	for _, o := range []Options{{Codec: None}, {Level: 1}, {Level: 3}, {Level: 5}, {Level: 10}} {
		for _, chunk := range []int{8 << 10, 128 << 10} {
			b.Run(fmt.Sprintf("%s/level=%d/chunk=%dKiB", o.Codec, o.Level, chunk>>10), func(b *testing.B) {
				w := mustWriter(b, o)
				b.SetBytes(int64(len(wal)))
				b.ReportAllocs()
				for n := range b.N {
					for at := 0; at < len(wal); at += chunk {
						_ = w.Write(1, protocol.LSN(n*len(wal)+at), wal[at:at+chunk], func(*link.Frame) error { return nil })
					}
				}
				s := w.Stats()
				b.ReportMetric(float64(s.RawBytes)/float64(s.PayloadBytes), "ratio")
			})
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	r := waltest.Random(b)
	wal := makeWAL(r, 4*mib)
	w := mustWriter(b, Options{Codec: Zstd})
	var frames []link.Frame
	for at := 0; at < len(wal); at += 128 << 10 {
		frames = append(frames, write(b, w, protocol.LSN(at), wal[at:at+128<<10])...)
	}
	reader := mustReader(b, Options{})
	var out []byte
	b.SetBytes(int64(len(wal)))
	b.ReportAllocs()
	for range b.N {
		for i := range frames {
			var err error
			if out, err = reader.Decode(out[:0], &frames[i]); err != nil {
				b.Fatal(err)
			}
		}
	}
}
