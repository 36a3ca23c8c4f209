package wal

// BlockFlags is the second byte of a block header: the fork in the low half, flags in the high one.
//
// Source: PostgreSQL src/include/access/xlogrecord.h, BKPBLOCK_* (13-18).
type BlockFlags uint8

// The flags of a block.
const (
	BlockHasImage BlockFlags = 0x10
	BlockHasData  BlockFlags = 0x20
	BlockWillInit BlockFlags = 0x40
	BlockSameRel  BlockFlags = 0x80 // the relation is that of the block before, and not spelled again

	forkMask BlockFlags = 0x0F
)

// Fork is the fork of a relation: 0 main, 1 free space map, 2 visibility map, 3 init.
func (f BlockFlags) Fork() uint8 { return uint8(f & forkMask) }

// Rel names the file of a relation.
//
// Source: PostgreSQL src/include/storage/relfilenode.h, RelFileNode (13-15); relfilelocator.h, RelFileLocator (16-18).
type Rel struct{ Tablespace, Database, Number uint32 }

// Block is a reference to a page of a relation, with what the record says about it:
//
//	u8 id   u8 flags   u16 data length
//	with an image: u16 length   u16 hole offset   u8 image flags   [u16 hole length: compressed, with a hole]
//	not the same relation: u32 tablespace   u32 database   u32 number
//	u32 block number
//
// Images and data follow behind all headers, block by block.
//
// Source: PostgreSQL src/include/access/xlogrecord.h, XLogRecordBlockHeader, XLogRecordBlockImageHeader (13-18).
type Block struct {
	ID     uint8
	Flags  BlockFlags
	Rel    Rel // also set if Flags has BlockSameRel
	Number uint32
	Data   []byte

	Image      []byte // as stored: compressed perhaps, and without the hole
	ImageFlags uint8  // bimg_info; what the bits mean hangs on the version
	HoleOffset uint16
	HoleLength uint16 // bytes of the page that are left out, all zero

	imageBytes, dataBytes uint16 // while the headers are decoded
}

// HasImage reports whether the block comes with a page image.
func (b *Block) HasImage() bool { return b.Flags&BlockHasImage != 0 }

// Compression is how a page image is stored.
type Compression uint8

// The methods of wal_compression; lz4 and zstd came with version 15.
const (
	Uncompressed Compression = iota
	PGLZ
	LZ4
	Zstd
	severalMethods // no image may say so
)

func (c Compression) String() string {
	switch c {
	case Uncompressed:
		return "none"
	case PGLZ:
		return "pglz"
	case LZ4:
		return "lz4"
	case Zstd:
		return "zstd"
	}
	return "unknown"
}

// Image flags. Bit 0 is a hole in all versions, the others were dealt anew in 15.
//
// Source: PostgreSQL src/include/access/xlogrecord.h, BKPIMAGE_* (13-14, 15-18).
const (
	imageHasHole = 0x01

	imageCompressed14 = 0x02
	imageApply14      = 0x04

	imageApply15 = 0x02
	imagePGLZ15  = 0x04
	imageLZ415   = 0x08
	imageZstd15  = 0x10
)

// HasHole reports whether an image leaves out the hole of its page.
func (b *Block) HasHole() bool { return b.ImageFlags&imageHasHole != 0 }

// Compression returns how version v stored the image of b.
func (b *Block) Compression(v Version) Compression {
	if v < PG15 {
		if b.ImageFlags&imageCompressed14 != 0 {
			return PGLZ
		}
		return Uncompressed
	}
	switch b.ImageFlags & (imagePGLZ15 | imageLZ415 | imageZstd15) {
	case 0:
		return Uncompressed
	case imagePGLZ15:
		return PGLZ
	case imageLZ415:
		return LZ4
	case imageZstd15:
		return Zstd
	}
	return severalMethods
}

// Apply reports whether replay restores the image; it does not if the image is for wal_consistency_checking only.
func (b *Block) Apply(v Version) bool {
	if v < PG15 {
		return b.ImageFlags&imageApply14 != 0
	}
	return b.ImageFlags&imageApply15 != 0
}
