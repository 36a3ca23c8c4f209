package image

import (
	"walproxy/protocol/wal"
	"walproxy/recompress/image/zstd3"
)

// methods is how many ways of storing an image there are.
const methods = wal.Zstd + 1

// Profile names an encoder that reproduces what a group of servers stores. The numbers are part of the frame format and never change;
// new ones are added at the end.
type Profile uint8

// The profiles.
const (
	Verbatim     Profile = 0 // no encoder reproduces the image: its stored bytes are carried
	PGLZSigned   Profile = 1 // where plain char is signed: x86
	PGLZUnsigned Profile = 2 // where plain char is unsigned: arm64
	LZ4Block     Profile = 3 // liblz4 1.8.3 to 1.10.0
	Zstd144      Profile = 4 // libzstd 1.4.4 and 1.4.5
	Zstd148      Profile = 5 // libzstd 1.4.8 to 1.5.0
	Zstd151      Profile = 6 // libzstd 1.5.1 to 1.5.6
	Zstd157      Profile = 7 // libzstd 1.5.7
)

// candidates lists each method's profiles, the likeliest server first.
var candidates = [methods][]Profile{
	wal.PGLZ: {PGLZSigned, PGLZUnsigned},
	wal.LZ4:  {LZ4Block},
	wal.Zstd: {Zstd151, Zstd157, Zstd148, Zstd144},
}

// Method returns the compression whose images the profile reproduces; wal.Uncompressed for Verbatim and for a profile that is not known.
func (p Profile) Method() wal.Compression {
	switch p {
	case PGLZSigned, PGLZUnsigned:
		return wal.PGLZ
	case LZ4Block:
		return wal.LZ4
	case Zstd144, Zstd148, Zstd151, Zstd157:
		return wal.Zstd
	}
	return wal.Uncompressed
}

// String names the profile for people: "pglz (signed char)", "zstd 1.5.1-1.5.6".
func (p Profile) String() string {
	switch p {
	case Verbatim:
		return "verbatim"
	case PGLZSigned:
		return "pglz (signed char)"
	case PGLZUnsigned:
		return "pglz (unsigned char)"
	case LZ4Block:
		return "lz4 1.8.3-1.10.0"
	case Zstd144, Zstd148, Zstd151, Zstd157:
		return p.zstd().String()
	}
	return "unknown"
}

func (p Profile) zstd() zstd3.Profile { return zstd3.Profile(p - Zstd144) }
