package image_test

import (
	"flag"
	"path/filepath"
	"strings"
	"testing"

	"walproxy/recompress/image"
)

var walDirs = flag.String("wal", "", "directories with segments of PostgreSQL 15 or later, comma separated, to open the images of")

// TestWALShare opens every compressed image of the segments in -wal and logs the shares; at least 99.9 % must reproduce. Without the flag it
// runs the walker over a record made of the corpus, so that it cannot rot.
func TestWALShare(t *testing.T) {
	if *walDirs == "" {
		share(t, "corpus", func(f func(walImage)) error { return walkImages(corpusRecord(t), f) })
		return
	}
	for _, dir := range strings.Split(*walDirs, ",") {
		share(t, filepath.Base(dir), func(f func(walImage)) error { return walkSegments(dir, f) })
	}
}

func share(t *testing.T, name string, walk func(func(walImage)) error) {
	t.Helper()
	o := opener(t)
	var e image.Encoder
	type tally struct{ images, opened, stored, raw int }
	var compressed, plain tally
	profiles := map[image.Profile]int{}
	// With compression on, an image stored plain is one that the same profile would store plain too.
	last := image.Verbatim
	var buf []byte
	err := walk(func(w walImage) {
		if w.method == 0 {
			plain.images++
			plain.raw += w.raw
			if last != image.Verbatim {
				_, kept, err := e.Store(buf[:0], last, w.stored, w.hole)
				if err == nil && !kept {
					plain.opened++
				}
			}
			return
		}
		compressed.images++
		compressed.stored += len(w.stored)
		compressed.raw += w.raw
		methods := map[byte]image.Method{4: image.PGLZ, 8: image.LZ4, 16: image.Zstd}
		_, p := o.Open(methods[w.method], w.stored, w.raw)
		profiles[p]++
		if p != image.Verbatim {
			compressed.opened++
			last = p
		}
	})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	t.Logf("%s: %d of %d images opened (%.4f %%), %d bytes stored for %d; plain: %d, the profile stores %d of them plain too; profiles %v", name,
		compressed.opened, compressed.images, 100*float64(compressed.opened)/float64(max(1, compressed.images)), compressed.stored, compressed.raw,
		plain.images, plain.opened, profiles)
	if compressed.images == 0 || compressed.opened*1000 < compressed.images*999 {
		t.Errorf("%s: %d of %d images reproduce", name, compressed.opened, compressed.images)
	}
}

// corpusRecord returns the body of a record with the first corpus images that PostgreSQL 15 stored, as blocks with holes.
func corpusRecord(t *testing.T) []byte {
	var headers, payload []byte
	bit := map[image.Profile]byte{image.PGLZSigned: 4, image.LZ4Block: 8, image.Zstd151: 16}
	for _, im := range images(t) {
		if bit[im.Profile] == 0 || im.Plain || len(headers) > 25*30 {
			continue
		}
		hole := 8192 - len(im.Raw)
		info := bit[im.Profile] | 2
		if hole > 0 {
			info |= 1
		}
		id := byte(len(headers) / 26)
		header := []byte{id, 0x10, 0, 0, byte(len(im.Stored)), byte(len(im.Stored) >> 8), 0, 0, info}
		if hole > 0 {
			header = append(header, byte(hole), byte(hole>>8))
		}
		headers = append(append(headers, header...), make([]byte, 16)...)
		payload = append(payload, im.Stored...)
	}
	if len(headers) == 0 {
		t.Fatal("no image of PostgreSQL 15 in the corpus")
	}
	return append(headers, payload...)
}
