package relay

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"walproxy/protocol/datapage"
)

// A block is a piece of an answer with the data pages in it laid out in columns. protocol/link/FORMAT.md describes it.
const (
	blockBytes       = 256 << 10 // of the answer that a block holds at most
	blockHeaderBytes = 4 + 4 + 4
	// maxFormBytes bounds what follows the header: a page takes a byte more than its layout, and a run of other bytes between two
	// pages up to four more than it has.
	maxFormBytes = blockBytes + (datapage.MaxOverhead+1+4)*(blockBytes/datapage.PageBytes+1)

	itemPlain = 0 // a varint, and as many bytes; from 1 on: a page, and the width of its columns
	widthUnit = 8
)

var (
	le         = binary.LittleEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// appendBlock appends the block that holds the beginning of b to dst and returns how much of b it holds. If all is false, that may
// leave out the last bytes, fewer than a page has, so that a page that they begin is not cut.
func appendBlock(dst, b []byte, pages *datapage.Pages, all bool) (out []byte, taken int) {
	from := len(dst)
	dst = append(dst, make([]byte, blockHeaderBytes)...)
	for taken < len(b) {
		if rest := b[taken:]; datapage.Is(rest) {
			at := len(dst)
			var width int
			dst, width = pages.Append(append(dst, 0), rest)
			dst[at] = byte(1 + width/widthUnit)
			taken += datapage.PageBytes
			continue
		}
		if !all && taken > 0 && len(b)-taken < datapage.PageBytes {
			break
		}
		n := datapage.Find(b[taken:])
		if !all && taken+n == len(b) && n >= datapage.PageBytes {
			n -= datapage.PageBytes - 1
		}
		dst = binary.AppendUvarint(append(dst, itemPlain), uint64(n))
		dst = append(dst, b[taken:taken+n]...)
		taken += n
	}
	head := dst[from:]
	le.PutUint32(head, uint32(taken))
	le.PutUint32(head[4:], uint32(len(head)-blockHeaderBytes))
	le.PutUint32(head[8:], crc32.Checksum(b[:taken], castagnoli))
	return dst, taken
}

// blockHeader is what a block begins with.
type blockHeader struct {
	raw, form int // bytes of the answer, and of what holds them
	sum       uint32
}

func parseBlockHeader(b []byte) (blockHeader, error) {
	raw, form := le.Uint32(b), le.Uint32(b[4:])
	if raw == 0 || raw > blockBytes || form > maxFormBytes {
		return blockHeader{}, fmt.Errorf("%w: block of a base backup with %d bytes in %d", ErrMessage, raw, form)
	}
	return blockHeader{raw: int(raw), form: int(form), sum: le.Uint32(b[8:])}, nil
}

// appendContent appends what form, behind the header h, holds to dst.
func (h blockHeader) appendContent(dst, form []byte, pages *datapage.Pages) ([]byte, error) {
	from := len(dst)
	for len(form) > 0 {
		item := form[0]
		form = form[1:]
		left := h.raw - (len(dst) - from)
		if item == itemPlain {
			n, at := binary.Uvarint(form)
			if at <= 0 || n > uint64(min(len(form)-at, left)) {
				return dst, fmt.Errorf("%w: run of %d bytes in a block of a base backup", ErrMessage, n)
			}
			dst = append(dst, form[at:at+int(n)]...)
			form = form[at+int(n):]
			continue
		}
		n := 0
		if left >= datapage.PageBytes {
			dst, n = pages.Restore(dst, form, int(item-1)*widthUnit)
		}
		if n == 0 {
			return dst, fmt.Errorf("%w: page in a block of a base backup", ErrMessage)
		}
		form = form[n:]
	}
	if b := dst[from:]; len(b) != h.raw || crc32.Checksum(b, castagnoli) != h.sum {
		return dst, fmt.Errorf("%w: checksum of a block of a base backup", ErrMessage)
	}
	return dst, nil
}
