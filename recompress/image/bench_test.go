package image_test

import (
	"bytes"
	"math"
	"strings"
	"syscall"
	"testing"
	"time"

	"walproxy/recompress/image"
	"walproxy/recompress/image/lz4"
	"walproxy/recompress/image/pglz"
	"walproxy/recompress/image/zstd3"
)

// sample is an image to run a benchmark on.
type sample struct{ raw, stored []byte }

// maxSamples keeps a pass over a large directory short.
const maxSamples = 1000

// samples returns images of p: of the segments in -wal where p's method is found there, else of the corpus.
func samples(b *testing.B, p image.Profile) (list []sample, rawBytes int64) {
	b.Helper()
	o := opener(b)
	add := func(raw, stored []byte) {
		if len(list) < maxSamples {
			list = append(list, sample{raw, stored})
			rawBytes += int64(len(raw))
		}
	}
	for _, dir := range strings.Split(*walDirs, ",") {
		if dir == "" {
			continue
		}
		if err := walkSegments(dir, func(w walImage) {
			if w.method == p.Method() && len(list) < maxSamples {
				raw, _ := o.Open(w.method, w.stored, w.raw)
				add(bytes.Clone(raw), bytes.Clone(w.stored))
			}
		}); err != nil {
			b.Fatal(err)
		}
	}
	if len(list) == 0 {
		for _, im := range images(b) {
			if im.Profile.Method() == p.Method() && !im.Plain {
				add(im.Raw, im.Stored)
			}
		}
	}
	return list, rawBytes
}

// run runs f over the samples and reports, besides wall time, content bytes per second of processor time in the fastest pass: on a
// shared machine that is the figure that repeats.
func run(b *testing.B, p image.Profile, f func(sample)) {
	list, rawBytes := samples(b, p)
	for _, s := range list {
		f(s)
	}
	b.SetBytes(rawBytes)
	b.ReportAllocs()
	b.ResetTimer()
	best := time.Duration(math.MaxInt64)
	for range b.N {
		before := processorTime()
		for _, s := range list {
			f(s)
		}
		best = min(best, processorTime()-before)
	}
	b.ReportMetric(float64(rawBytes)/1e6/best.Seconds(), "cpu-MB/s")
	b.ReportMetric(float64(best.Microseconds())/float64(len(list)), "cpu-µs/image")
}

func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func BenchmarkEncode(b *testing.B) {
	for p := image.PGLZSigned; p <= image.Zstd157; p++ {
		b.Run(p.String(), func(b *testing.B) {
			e, dst := new(image.Encoder), make([]byte, 0, 2*image.MaxRawBytes)
			run(b, p, func(s sample) { dst, _, _ = e.Store(dst[:0], p, s.raw, true) })
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	zstd, err := zstd3.NewDecoder()
	if err != nil {
		b.Fatal(err)
	}
	for p, decode := range map[image.Profile]func(dst, stored []byte) error{
		image.PGLZSigned: pglz.Decode,
		image.LZ4Block:   lz4.Decode,
		image.Zstd151:    zstd.Decode,
	} {
		b.Run(p.Method().String(), func(b *testing.B) {
			dst := make([]byte, image.MaxRawBytes)
			run(b, p, func(s sample) {
				if err := decode(dst[:len(s.raw)], s.stored); err != nil {
					b.Fatal(err)
				}
			})
		})
	}
}

// BenchmarkOpen is what a sender pays: expand, compress, compare.
func BenchmarkOpen(b *testing.B) {
	for _, p := range []image.Profile{image.PGLZSigned, image.LZ4Block, image.Zstd151} {
		b.Run(p.Method().String(), func(b *testing.B) {
			o := opener(b)
			run(b, p, func(s sample) { o.Open(p.Method(), s.stored, len(s.raw)) })
		})
	}
}
