package image_test

import (
	"flag"
	"path/filepath"
	"strings"
	"testing"

	"walproxy/protocol/wal"
	"walproxy/recompress/image"
)

var walDirs = flag.String("wal", "", "directories with segments of PostgreSQL 15 or later, comma separated, to open the images of")

// TestWALShare opens every compressed image of the segments in -wal and logs the shares; at least 99.9 % must reproduce. Without the flag
// it runs over records made of the corpus.
func TestWALShare(t *testing.T) {
	if *walDirs == "" {
		share(t, "corpus", func(f func(walImage)) error { return walkCorpus(t, f) })
		return
	}
	for _, dir := range strings.Split(*walDirs, ",") {
		share(t, filepath.Base(dir), func(f func(walImage)) error { return walkSegments(dir, f) })
	}
}

// walkCorpus calls f for the compressed images of the corpus, each found in a record as PostgreSQL 15 would write it.
func walkCorpus(t *testing.T, f func(walImage)) error {
	bits := map[wal.Compression]uint8{wal.PGLZ: 4, wal.LZ4: 8, wal.Zstd: 16}
	for _, im := range images(t) {
		if im.Plain {
			continue
		}
		const hole, apply = 1, 2
		block := wal.Block{Flags: wal.BlockHasImage, Image: im.Stored, ImageFlags: bits[im.Profile.Method()] | apply}
		if n := wal.DefaultBlockSize - len(im.Raw); n > 0 {
			block.ImageFlags |= hole
			block.HoleOffset, block.HoleLength = 24, uint16(n)
		}
		record := wal.Record{Blocks: []wal.Block{block}}
		b := record.Append(nil, wal.PG15)
		wal.SetCRC(b)
		if err := walkRecord(b, wal.PG15, &record, f); err != nil {
			return err
		}
	}
	return nil
}

func share(t *testing.T, name string, walk func(func(walImage)) error) {
	t.Helper()
	o := opener(t)
	var e image.Encoder
	type tally struct{ images, opened, stored, raw int }
	var compressed, plain tally
	profiles := map[image.Profile]int{}
	// Once wal_compression is on, an image stored plain is one that the same profile stores plain too.
	last, early := image.Verbatim, 0
	var buf []byte
	err := walk(func(w walImage) {
		if w.method == wal.Uncompressed {
			if last == image.Verbatim {
				early++
				return
			}
			plain.images++
			if _, kept, err := e.Store(buf[:0], last, w.stored, w.hole); err == nil && !kept {
				plain.opened++
			}
			return
		}
		compressed.images++
		compressed.stored += len(w.stored)
		compressed.raw += w.raw
		_, p := o.Open(w.method, w.stored, w.raw)
		profiles[p]++
		if p != image.Verbatim {
			compressed.opened++
			last = p
		}
	})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	t.Logf("%s: %d of %d compressed images opened (%.4f %%), %d bytes stored for %d, by %v; of %d stored plain after the first of them (%d before) the profile stores %d plain",
		name, compressed.opened, compressed.images, 100*float64(compressed.opened)/float64(max(1, compressed.images)), compressed.stored, compressed.raw,
		profiles, plain.images, early, plain.opened)
	if compressed.images == 0 || compressed.opened*1000 < compressed.images*999 {
		t.Errorf("%s: %d of %d images reproduce", name, compressed.opened, compressed.images)
	}
}
