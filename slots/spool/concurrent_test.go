package spool

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"walproxy/protocol"
	"walproxy/protocol/link"
)

// smallFrames returns count frames that follow each other over several windows.
func smallFrames(count int) []*link.Frame {
	rng := rand.New(rand.NewPCG(1, 2))
	frames := make([]*link.Frame, count)
	at := protocol.LSN(0x100000)
	for i := range frames {
		length := min(1+rng.IntN(20000), int(at.Next(distance)-at))
		frames[i] = raw(1, at, min(length, 64))
		if length >= 64 {
			frames[i].Codec, frames[i].RawLen = link.CodecZstd, uint32(length)
			frames[i].Payload = frames[i].Payload[:32]
			frames[i].Seal()
		}
		at = frames[i].End()
	}
	return frames
}

// syncUntil syncs whenever something has changed, until ctx is done.
func syncUntil(ctx context.Context, l *Log) error {
	for ctx.Err() == nil {
		changed := l.Changed()
		if err := l.Sync(); err != nil {
			return err
		}
		if s := l.State(); s.Flushed > s.End {
			return fmt.Errorf("state %+v", s)
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	return nil
}

// TestConcurrentUse has a writer, a syncer and readers at work together.
func TestConcurrentUse(t *testing.T) {
	registry := prometheus.NewRegistry()
	l := openLog(t, t.TempDir(), Options{Metrics: NewMetrics(registry)})
	frames := smallFrames(3000)
	mustAppend(t, l, frames[0])
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var readers, syncer errgroup.Group
	for range 4 {
		r := openReader(t, l, 1, frames[0].Start)
		readers.Go(func() error {
			for i, want := range frames {
				got, err := r.Next(ctx)
				if err != nil {
					return fmt.Errorf("frame %d: %w", i, err)
				}
				if err := sameFrame(got, want); err != nil {
					return err
				}
			}
			return nil
		})
	}
	syncer.Go(func() error { return syncUntil(ctx, l) })
	for _, f := range frames[1:] {
		mustAppend(t, l, f)
	}
	if err := readers.Wait(); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := syncer.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(l.Sync(), l.Retain(l.State().End)); err != nil {
		t.Fatal(err)
	}
	checkMetrics(t, registry, l.State().Bytes, len(frames))
}

// checkMetrics checks what a log with one window exports.
func checkMetrics(t *testing.T, registry *prometheus.Registry, bytes int64, frames int) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		m := f.GetMetric()[0]
		values[f.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
	}
	if values["walproxy_spool_frames_total"] != float64(frames) || values["walproxy_spool_windows"] != 1 ||
		values["walproxy_spool_bytes"] != float64(bytes) || values["walproxy_spool_fsync_seconds"] == 0 {
		t.Fatalf("metrics %v, want %d bytes, %d frames", values, bytes, frames)
	}
}

// TestReaderMemoryIsBounded: a large frame makes the buffer larger for a while only, and a backlog does not.
func TestReaderMemoryIsBounded(t *testing.T) {
	l := openLog(t, t.TempDir(), Options{NoSync: true})
	big := mustAppend(t, l, raw(1, 0x100000, distance))
	at := big.End()
	for range 30 {
		at = mustAppend(t, l, coded(1, at, distance/2, 0)).End()
	}
	r := openReader(t, l, 1, big.Start)
	expect(t, r, big)
	if n := len(r.frames.buf); n < distance || n > distance+link.MaxFrameHeaderBytes {
		t.Fatalf("buffer of %d bytes for a frame of %d", n, distance)
	}
	for range 30 {
		if _, err := r.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 * calmFetches {
		at = mustAppend(t, l, raw(1, at, 100)).End()
		if _, err := r.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(r.frames.buf); n > maxBufferBytes {
		t.Fatalf("buffer of %d bytes after small frames", n)
	}
}
