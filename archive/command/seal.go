package command

import (
	"context"
	"iter"
	"runtime"

	"golang.org/x/sync/errgroup"

	"walproxy/archive"
	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/recompress"
)

const (
	// sealersAtOnce is how many windows of a segment are made side by side at most: each takes a codec's state and the WAL of a
	// window, twice.
	sealersAtOnce = 2
	// sealAtOnceBytes is the most WAL that a window may hold for that.
	sealAtOnceBytes = 8 << 20
)

// build makes sealed windows of the segment.
func (s *segment) build(ctx context.Context, b *archive.Builder, o recompress.Options) (mismatches uint64, err error) {
	distance := o.ResetDistance
	if distance == 0 {
		distance = recompress.DefaultResetDistance
	}
	distance = min(distance, s.id.SegmentSize)
	windows := int(s.id.SegmentSize / distance)
	n := min(windows, runtime.GOMAXPROCS(0), sealersAtOnce)
	if distance > sealAtOnceBytes {
		n = 1
	}
	makers := make([]maker, n)
	work, ctx := errgroup.WithContext(ctx)
	for i := range makers {
		m := &makers[i]
		m.made, m.taken = make(chan []byte), make(chan struct{}, 1)
		work.Go(func() error {
			for k := i; k < windows; k += n {
				if err := m.make(ctx, s, s.span.Start+protocol.LSN(k)*protocol.LSN(distance), distance, o); err != nil {
					return err
				}
			}
			return nil
		})
	}
	work.Go(func() error { // they follow each other in the object
		b.Begin(s.id)
		for k := range windows {
			m := &makers[k%n]
			select {
			case window := <-m.made:
				if err := b.Add(window); err != nil {
					return err
				}
				m.taken <- struct{}{}
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	err = work.Wait()
	for i := range makers {
		mismatches += makers[i].mismatches
	}
	return mismatches, err
}

// maker makes sealed windows, one after the other.
type maker struct {
	sealer      *recompress.Sealer // nil before the first window
	raw, window []byte
	mismatches  uint64
	made        chan []byte   // the window, which is m's until something comes by taken
	taken       chan struct{} // holds one
}

// make makes the window that begins at start, and returns when it was taken.
func (m *maker) make(ctx context.Context, s *segment, start protocol.LSN, distance uint32, o recompress.Options) (err error) {
	if m.sealer == nil {
		if m.sealer, err = recompress.NewSealer(o); err != nil {
			return err
		}
		m.raw = make([]byte, distance)
	}
	if _, err := s.ReadAt(m.raw, int64(start-s.span.Start)); err != nil {
		return err
	}
	h := link.WindowHeader{
		Kind: link.WindowLive, SystemID: s.id.SystemID, Timeline: s.span.Timeline, SegmentSize: s.id.SegmentSize,
		WALBlockSize: s.id.WALBlockSize, ResetDistance: distance, Start: start,
	}
	var stats recompress.SealStats
	if m.window, stats, err = m.sealer.Seal(m.window[:0], h, rawFrame(h, m.raw)); err != nil {
		return err
	}
	m.mismatches += stats.Mismatches
	select {
	case m.made <- m.window:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-m.taken:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// rawFrame yields WAL as the one frame of its window.
func rawFrame(h link.WindowHeader, wal []byte) iter.Seq2[*link.Frame, error] {
	f := link.Frame{Timeline: h.Timeline, Start: h.Start, RawLen: uint32(len(wal)), RawSum: link.Checksum(wal), Payload: wal}
	f.Seal()
	return func(yield func(*link.Frame, error) bool) { yield(&f, nil) }
}
