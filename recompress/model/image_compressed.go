package model

import (
	"walproxy/protocol/wal"
	"walproxy/recompress/image"
	"walproxy/recompress/rangecoder"
)

const (
	ctxImageProfile = 0x0d01_0000 + iota
)

// compressed opens images that the server compressed and makes them again.
type compressed struct {
	opener  *image.Opener // encoder only; nil if it cannot be made: nothing is opened then
	encoder image.Encoder
	last    image.Profile
	content [blockBytes]byte // decoder: the page without its hole
	stored  []byte           // decoder: what the profile made of it
	block   block            // the block as if the server had not compressed
}

// reset forgets what the last stream's server used.
func (c *compressed) reset() {
	c.last = image.Verbatim
	if c.opener != nil {
		c.opener.Reset()
	}
}

// compression returns the method that bimg_info names, wal.Uncompressed if it names none or several.
func (m *model) compression(info byte) wal.Compression {
	info &= m.compressedMask()
	if m.compressedMask() == 0x02 {
		if info != 0 {
			return wal.PGLZ
		}
		return wal.Uncompressed
	}
	switch info {
	case 0x04:
		return wal.PGLZ
	case 0x08:
		return wal.LZ4
	case 0x10:
		return wal.Zstd
	}
	return wal.Uncompressed
}

// compressedImage codes an image that the server compressed: by what is in it and which encoder makes the stored bytes of that,
// or the stored bytes themselves if none is known to.
func (m *model) compressedImage(k *block) {
	c := &m.compressed
	profile := image.Verbatim
	content := c.content[:]
	if size := blockBytes - k.holeBytes; size >= 0 && size <= blockBytes {
		content = content[:size]
		if !m.decoding && c.opener != nil {
			var raw []byte
			if raw, profile = c.opener.Open(m.compression(k.imageInfo), k.image, size); profile != image.Verbatim {
				content = raw
			}
		}
	}
	ctx := rangecoder.Hash(k.rel.ctx, ctxImageProfile)
	profile = image.Profile(m.byteLike(ctx, byte(c.last), byte(profile)))
	c.last = profile
	if profile == image.Verbatim {
		m.bytes(rangecoder.Hash(k.rel.ctx, ctxImageRaw), k.image, nil)
		m.mark(costImageRaw)
		return
	}
	if len(content)+k.holeBytes != blockBytes {
		m.corrupt("content of a compressed image")
		return
	}
	c.block = *k
	c.block.image, c.block.imageBytes = content, len(content)
	c.block.imageInfo &^= m.compressedMask()
	m.plainImage(&c.block)
	if !m.decoding || m.err != nil {
		return
	}
	var err error
	c.stored, err = c.encoder.Append(c.stored[:0], profile, content)
	if err != nil || len(c.stored) != len(k.image) {
		m.corrupt("compressed image")
		return
	}
	copy(k.image, c.stored)
}
