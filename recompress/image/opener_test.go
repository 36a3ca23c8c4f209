package image_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"walproxy/protocol/wal"
	"walproxy/recompress/image"
)

func opener(t testing.TB) *image.Opener {
	t.Helper()
	o, err := image.NewOpener()
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestOpenServerImages opens every compressed image of the corpus, by an opener that met no other profile of the method and by one that
// met all of them.
func TestOpenServerImages(t *testing.T) {
	var e image.Encoder
	warm := opener(t)
	for i, want := range images(t) {
		if want.Plain {
			continue
		}
		cold := opener(t)
		for name, o := range map[string]*image.Opener{"cold": cold, "warm": warm} {
			raw, p := o.Open(want.Profile.Method(), want.Stored, len(want.Raw))
			if p == image.Verbatim || p.Method() != want.Profile.Method() || !bytes.Equal(raw, want.Raw) {
				t.Fatalf("image %d of %v, %s: opened as %v, content equal: %v", i, want.Profile, name, p, bytes.Equal(raw, want.Raw))
			}
			stored, err := e.Append(nil, p, raw)
			if err != nil || !bytes.Equal(stored, want.Stored) {
				t.Fatalf("image %d of %v, %s: %v does not make the stored bytes again: %v", i, want.Profile, name, p, err)
			}
		}
	}
}

// TestOpenerRemembers feeds images of one server and wants its profile from the first image on that tells it from the others.
func TestOpenerRemembers(t *testing.T) {
	corpus := images(t)
	for _, server := range []image.Profile{image.PGLZUnsigned, image.Zstd144, image.Zstd148, image.Zstd157} {
		o := opener(t)
		for i, im := range corpus {
			if im.Profile != server {
				continue
			}
			// The corpus holds only images of these profiles that the one tried first does not reproduce.
			if _, p := o.Open(server.Method(), im.Stored, len(im.Raw)); p != server {
				t.Errorf("image %d of %v: opened as %v", i, server, p)
			}
		}
		o.Reset()
		for i, im := range corpus {
			if first := (map[wal.Compression]image.Profile{wal.PGLZ: image.PGLZSigned, wal.Zstd: image.Zstd151})[server.Method()]; im.Profile == first && !im.Plain {
				if _, p := o.Open(server.Method(), im.Stored, len(im.Raw)); p != first {
					t.Errorf("image %d of %v after Reset: opened as %v", i, first, p)
				}
			}
		}
	}
}

// TestOpenDamaged flips bits of stored images. What is still opened must make exactly the damaged bytes again.
func TestOpenDamaged(t *testing.T) {
	const seed = 3
	r := rand.New(rand.NewPCG(seed, 0))
	var e image.Encoder
	for i, im := range images(t) {
		if im.Plain {
			continue
		}
		o := opener(t)
		for range 20 {
			damaged := bytes.Clone(im.Stored)
			damaged[r.IntN(len(damaged))] ^= 1 << r.IntN(8)
			size := len(im.Raw)
			if r.IntN(4) == 0 {
				size += r.IntN(9) - 4
			}
			raw, p := o.Open(im.Profile.Method(), damaged, size)
			if p == image.Verbatim {
				if raw != nil {
					t.Fatalf("image %d: content with Verbatim", i)
				}
				continue
			}
			stored, err := e.Append(nil, p, raw)
			if err != nil || len(raw) != size || !bytes.Equal(stored, damaged) {
				t.Fatalf("image %d, seed %d: opened as %v but not made again: %v", i, seed, p, err)
			}
		}
	}
}

// TestOpenRefuses lists what is carried verbatim unseen.
func TestOpenRefuses(t *testing.T) {
	o := opener(t)
	im := images(t)[0]
	for _, c := range []struct {
		name   string
		m      wal.Compression
		stored []byte
		raw    int
	}{
		{"plain", wal.Uncompressed, im.Stored, len(im.Raw)},
		{"unknown method", 99, im.Stored, len(im.Raw)},
		{"nothing stored", im.Profile.Method(), nil, len(im.Raw)},
		{"no content", im.Profile.Method(), im.Stored, 0},
		{"negative content", im.Profile.Method(), im.Stored, -1},
		{"content above the limit", im.Profile.Method(), im.Stored, image.MaxRawBytes + 1},
		{"not smaller than its content", im.Profile.Method(), im.Stored, len(im.Stored)},
		{"other method", wal.LZ4, im.Stored, len(im.Raw)},
	} {
		if raw, p := o.Open(c.m, c.stored, c.raw); raw != nil || p != image.Verbatim {
			t.Errorf("%s: opened as %v", c.name, p)
		}
	}
}

// TestOpenDoubts feeds images whose content expands but which no profile makes, and wants the opener to try them seldom, and to come
// back once images are known again.
func TestOpenDoubts(t *testing.T) {
	var known []byte
	var size int
	for _, im := range images(t) {
		if im.Profile == image.LZ4Block && !im.Plain {
			known, size = im.Stored, len(im.Raw)
			break
		}
	}
	// A valid block that the library would never write: 20 literals that repeat, a match of 15, 5 literals.
	foreign := append([]byte{0xFB, 5}, bytes.Repeat([]byte("walk"), 5)...)
	foreign = append(foreign, 4, 0, 0x50)
	foreign = append(foreign, "tails"...)
	o := opener(t)
	for i := range 100 {
		if _, p := o.Open(wal.LZ4, foreign, 20+15+5); p != image.Verbatim {
			t.Fatalf("foreign block %d opened as %v", i, p)
		}
	}
	tries := 0
	for {
		tries++
		if _, p := o.Open(wal.LZ4, known, size); p == image.LZ4Block {
			break
		}
		if tries > 16 {
			t.Fatal("the opener does not come back")
		}
	}
	if tries == 1 {
		t.Error("the opener did not doubt after 100 foreign images")
	}
	if _, p := o.Open(wal.LZ4, known, size); p != image.LZ4Block {
		t.Error("the opener still doubts")
	}
}

// TestNoAllocation wants no allocation per image in either direction once warm. The zstd decoder keeps its tables in pools; under the race
// detector those lose items on purpose, so there only the encoder counts for zstd.
func TestNoAllocation(t *testing.T) {
	o := opener(t)
	var e image.Encoder
	dst := make([]byte, 0, 2*image.MaxRawBytes)
	for _, p := range []image.Profile{image.PGLZSigned, image.LZ4Block, image.Zstd151} {
		var all []func()
		for _, im := range images(t) {
			if im.Profile != p {
				continue
			}
			if !im.Plain && !(raceEnabled && p == image.Zstd151) {
				all = append(all, func() { o.Open(p.Method(), im.Stored, len(im.Raw)) })
			}
			all = append(all, func() { dst, _, _ = e.Store(dst[:0], p, im.Raw, im.Hole) })
		}
		if n := testing.AllocsPerRun(5, func() {
			for _, f := range all {
				f()
			}
		}); n > 0 {
			t.Errorf("%v: %v allocations for %d images", p, n, len(all))
		}
	}
}

// FuzzOpen opens arbitrary bytes: never a crash, never content that is not made again.
func FuzzOpen(f *testing.F) {
	for i, im := range images(f) {
		if !im.Plain && i%5 == 0 {
			f.Add(byte(im.Profile.Method()), im.Stored, uint16(len(im.Raw)))
		}
	}
	var e image.Encoder
	o := opener(f)
	f.Fuzz(func(t *testing.T, m byte, stored []byte, size uint16) {
		o.Reset()
		raw, p := o.Open(wal.Compression(m), stored, int(size))
		if p == image.Verbatim {
			return
		}
		again, err := e.Append(nil, p, raw)
		if err != nil || len(raw) != int(size) || !bytes.Equal(again, stored) {
			t.Fatalf("opened as %v but not made again: %v", p, err)
		}
	})
}
