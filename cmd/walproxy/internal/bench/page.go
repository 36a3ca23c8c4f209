package bench

import (
	"encoding/binary"

	"walproxy/protocol/wal"
	"walproxy/recompress/image/lz4"
	"walproxy/recompress/image/pglz"
	"walproxy/recompress/image/zstd3"
)

// pageKind says whose page an image shows.
type pageKind uint8

const (
	pageUnknown pageKind = iota
	pageHeap             // also TOAST, and whatever else has no special space
	pageBtree
	pageHash
	pageGist
	pageSPGist
	pageGin
	pageBRIN
	pageBloom
	pageSequence
	pageFreeSpaceMap
	pageVisibilityMap
)

var pageNames = [...]string{
	"unknown", "heap", "btree", "hash", "gist", "spgist", "gin", "brin", "bloom", "sequence", "free space map", "visibility map",
}

// Marks in the last two bytes of the special space.
//
// Source: PostgreSQL src/include/access/hash.h, HASHO_PAGE_ID; gist.h, GIST_PAGE_ID; spgist_private.h, SPGIST_PAGE_ID; brin_page.h,
// BRIN_PAGETYPE_*; contrib/bloom/bloom.h, BLOOM_PAGE_ID; src/backend/commands/sequence.c, SEQ_MAGIC (13-18).
const (
	hashPageID    = 0xFF80
	gistPageID    = 0xFF81
	spgistPageID  = 0xFF82
	bloomPageID   = 0xFF83
	brinFirstType = 0xF091
	brinLastType  = 0xF093
	sequenceMagic = 0x1717
)

// Offsets in a page header.
//
// Source: PostgreSQL src/include/storage/bufpage.h, PageHeaderData (13-18).
const (
	pageHeaderBytes = 24
	specialOffset   = 16
)

// pageSorter tells page images apart. It expands compressed ones for that.
type pageSorter struct {
	zstd *zstd3.Decoder
	raw  [wal.DefaultBlockSize]byte
}

// kind returns the kind of the page whose image b holds.
func (s *pageSorter) kind(b *wal.Block, v wal.Version) pageKind {
	switch b.Flags.Fork() {
	case 1:
		return pageFreeSpaceMap
	case 2:
		return pageVisibilityMap
	}
	page := b.Image
	if method := b.Compression(v); method != wal.Uncompressed {
		if int(b.HoleLength) >= len(s.raw) {
			return pageUnknown
		}
		page = s.raw[:len(s.raw)-int(b.HoleLength)]
		if s.expand(method, page, b.Image) != nil {
			return pageUnknown
		}
	}
	return kindOfPage(page, int(b.HoleLength))
}

// expand fills raw from the stored image, exactly, or fails.
func (s *pageSorter) expand(method wal.Compression, raw, stored []byte) (err error) {
	switch method {
	case wal.PGLZ:
		return pglz.Decode(raw, stored)
	case wal.LZ4:
		return lz4.Decode(raw, stored)
	}
	if s.zstd == nil {
		if s.zstd, err = zstd3.NewDecoder(); err != nil {
			return err
		}
	}
	return s.zstd.Decode(raw, stored)
}

// kindOfPage looks at a page of which a hole of holeBytes is left out.
func kindOfPage(page []byte, holeBytes int) pageKind {
	if len(page) < pageHeaderBytes {
		return pageUnknown
	}
	le := binary.LittleEndian
	begin := int(le.Uint16(page[specialOffset:])) - holeBytes
	if begin == len(page) {
		return pageHeap
	}
	if begin < pageHeaderBytes || begin > len(page) {
		return pageUnknown // a new page is all zero
	}
	special := page[begin:]
	n := len(special)
	if n < 8 {
		return pageUnknown
	}
	switch mark := le.Uint16(special[n-2:]); {
	case mark == hashPageID && n == 16:
		return pageHash
	case mark == gistPageID && n == 16:
		return pageGist
	case n == 16: // a vacuum cycle, below all marks
		return pageBtree
	case mark == spgistPageID:
		return pageSPGist
	case mark == bloomPageID:
		return pageBloom
	case mark >= brinFirstType && mark <= brinLastType:
		return pageBRIN
	case le.Uint32(special) == sequenceMagic && mark == 0:
		return pageSequence
	case n == 8: // flags
		return pageGin
	}
	return pageUnknown
}
