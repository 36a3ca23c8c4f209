// Package corpus holds images that real servers and libraries made, and inputs to run encoders on, for the tests of the image codecs.
//
// images.zst was made in November 2026 on x86-64 from the WAL of PostgreSQL 15.20 (Debian 12: liblz4 1.9.4, libzstd 1.5.4) under pgbench and a
// load of mixed types, indexes and TOAST, with wal_compression = pglz, lz4 and zstd: every so many-th image as the records hold it, with its
// content, and a few images of those runs that the server stored plain. Profiles of other libraries and machines hold
// contents of the same servers, compressed by the library itself: ZSTD_compress at level 3 of 1.4.4, 1.5.0 and 1.5.7, and pglz_compress of PostgreSQL
// 15.20's libpgcommon for arm64; only contents whose bytes differ from the server's were taken. Contents were checked against
// the libraries' own decoders.
//
// The file is a zstd frame. It holds, per image, little endian: profile (1 byte), flags (1 byte: 1 has a hole, 2 stored plain), content length
// (2), stored length (2; 0 if plain), stored bytes, content.
package corpus

import (
	_ "embed"
	"encoding/binary"
	"fmt"

	"github.com/klauspost/compress/zstd"

	"walproxy/recompress/image"
)

//go:embed images.zst
var packed []byte

// maxUnpacked is more than the corpus holds.
const maxUnpacked = 4 << 20

// Image is one image of the corpus. The slices are shared between callers and not to be written to.
type Image struct {
	Profile image.Profile // of the server or library
	Hole    bool
	Plain   bool // the server chose not to compress; Stored is then nil
	Stored  []byte
	Raw     []byte
}

// Images returns the corpus.
func Images() ([]Image, error) {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxUnpacked))
	if err != nil {
		return nil, fmt.Errorf("unpack corpus: %w", err)
	}
	defer d.Close()
	b, err := d.DecodeAll(packed, nil)
	if err != nil {
		return nil, fmt.Errorf("unpack corpus: %w", err)
	}
	var images []Image
	for len(b) > 0 {
		const header = 6
		if len(b) < header {
			return nil, fmt.Errorf("read corpus: %d bytes left over", len(b))
		}
		raw, stored := int(binary.LittleEndian.Uint16(b[2:])), int(binary.LittleEndian.Uint16(b[4:]))
		if len(b) < header+raw+stored {
			return nil, fmt.Errorf("read corpus: image %d is cut off", len(images))
		}
		i := Image{Profile: image.Profile(b[0]), Hole: b[1]&1 != 0, Plain: b[1]&2 != 0}
		b = b[header:]
		if !i.Plain {
			i.Stored = b[:stored:stored]
		}
		i.Raw = b[stored : stored+raw : stored+raw]
		b = b[stored+raw:]
		images = append(images, i)
	}
	return images, nil
}
