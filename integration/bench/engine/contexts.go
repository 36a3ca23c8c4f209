package main

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/recompress"
)

const (
	contextChunk = 16 << 10
	frameSize    = unsafe.Sizeof(link.Frame{})
)

// stretch is WAL, and the frames that were made of it.
type stretch struct {
	start  protocol.LSN
	wal    []byte
	frames []link.Frame
}

// contexts compares encoders and decoders that are used for one window after the other with fresh ones for each, and tells what
// they hold.
func (b *bench) contexts(ctx context.Context) error {
	names := b.only("oltp_nofpw", "mixed")
	if len(names) == 0 {
		return nil
	}
	b.report.Line("#### Contexts used again, and fresh ones for each window\n")
	b.report.Line("Windows of 1 MiB in chunks of 16 KiB, each a frame; MB/s. Memory is what an encoder (which has a decoder to check itself) and a reader\n" +
		"hold on the heap after all of it.\n")
	b.report.Line("| workload | codec | encode again | fresh | decode again | fresh | encoder MiB | reader MiB |\n|---|---|---:|---:|---:|---:|---:|---:|")
	for _, name := range names {
		dir, err := b.make(ctx, source{workload: name, compression: "off"})
		if err != nil {
			return err
		}
		s := &stretch{}
		if s.start, s.wal, err = readSegments(dir); err != nil {
			return err
		}
		for _, setting := range b.headline() {
			codec, err := recompress.ParseCodec(setting.codec)
			if err != nil {
				return err
			}
			if err := b.contextsOf(name, s, recompress.Options{Codec: codec, ResetDistance: 1 << 20}); err != nil {
				return fmt.Errorf("%s, %s: %w", name, setting, err)
			}
		}
	}
	b.report.Line("")
	return nil
}

func (b *bench) contextsOf(name string, s *stretch, o recompress.Options) error {
	var speed [4]float64 // encode again, fresh; decode again, fresh
	var held [2]int64
	for range b.rounds {
		for fresh := range 2 {
			before := heap()
			encode, writer, err := s.encode(o, fresh == 1)
			if err != nil {
				return err
			}
			if fresh == 0 {
				frames := int64(0)
				for i := range s.frames {
					frames += int64(cap(s.frames[i].Payload))
				}
				held[0] = heap() - before - frames - int64(cap(s.frames))*int64(frameSize)
			}
			runtime.KeepAlive(writer)
			before = heap()
			decode, reader, err := s.decode(o, fresh == 1)
			if err != nil {
				return err
			}
			if fresh == 0 {
				held[1] = heap() - before
			}
			runtime.KeepAlive(reader)
			speed[fresh], speed[2+fresh] = max(speed[fresh], encode), max(speed[2+fresh], decode)
		}
	}
	b.report.Line("| %s | %s | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f |", name, o.Codec, speed[0], speed[1], speed[2], speed[3],
		float64(held[0])/(1<<20), float64(held[1])/(1<<20))
	return nil
}

// encode makes the frames of s, with a new Writer at each boundary if fresh says so. It returns 10⁶ bytes per second.
func (s *stretch) encode(o recompress.Options, fresh bool) (speed float64, w *recompress.Writer, err error) {
	s.frames = nil
	var spent time.Duration
	for at := 0; at < len(s.wal); at += contextChunk {
		lsn, piece := s.start+protocol.LSN(at), s.wal[at:min(at+contextChunk, len(s.wal))]
		began := time.Now()
		if w == nil || fresh && uint64(lsn)%uint64(o.ResetDistance) == 0 {
			if w, err = recompress.NewWriter(o); err != nil {
				return 0, nil, err
			}
		}
		var kept time.Duration
		err = w.Write(1, lsn, piece, func(f *link.Frame) error {
			keeping := time.Now()
			s.frames = append(s.frames, *f)
			s.frames[len(s.frames)-1].Payload = bytes.Clone(f.Payload)
			kept += time.Since(keeping)
			return nil
		})
		if err != nil {
			return 0, nil, err
		}
		spent += time.Since(began) - kept
	}
	return float64(len(s.wal)) / 1e6 / spent.Seconds(), w, nil
}

// decode reads the frames of s, with a new Reader at each boundary if fresh says so. Errors: also if the WAL is another.
func (s *stretch) decode(o recompress.Options, fresh bool) (speed float64, r *recompress.Reader, err error) {
	var spent time.Duration
	var got []byte
	for i := range s.frames {
		f := &s.frames[i]
		began := time.Now()
		if r == nil || fresh && uint64(f.Start)%uint64(o.ResetDistance) == 0 {
			if r, err = recompress.NewReader(o); err != nil {
				return 0, nil, err
			}
		}
		if got, err = r.Decode(got[:0], f); err != nil {
			return 0, nil, err
		}
		spent += time.Since(began)
		if !bytes.Equal(got, s.wal[f.Start-s.start:][:f.RawLen]) {
			return 0, nil, fmt.Errorf("the WAL at %s came back changed", f.Start)
		}
	}
	return float64(len(s.wal)) / 1e6 / spent.Seconds(), r, nil
}

// heap returns the bytes in use after a collection.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
