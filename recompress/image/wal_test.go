package image_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"sort"
)

// walImage is a page image as a record of PostgreSQL 15 or later stores it.
type walImage struct {
	method byte // bimg_info's compression bits: 4 pglz, 8 lz4, 16 zstd, 0 stored plain
	hole   bool
	raw    int // BLCKSZ less the hole
	stored []byte
}

// walkSegments calls f for every page image of the 16 MiB segments in dir, which follow one another. It knows as much of the
// format as that takes, and takes the segments' integrity for granted.
func walkSegments(dir string, f func(walImage)) error {
	names, err := filepath.Glob(filepath.Join(dir, "[0-9A-F]*"))
	if err != nil || len(names) == 0 {
		return fmt.Errorf("no segments in %s: %v", dir, err)
	}
	sort.Strings(names)
	var wal []byte // without page headers
	var ends []int // where each segment ends in wal
	var skip int   // rest of a record that began before the first segment
	for i, name := range names {
		segment, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		for page := 0; page < len(segment); page += 8192 {
			header := 24
			if binary.LittleEndian.Uint16(segment[page+2:])&2 != 0 || page == 0 {
				header = 40
			}
			if i == 0 && page == 0 {
				skip = int(binary.LittleEndian.Uint32(segment[16:]))
			}
			wal = append(wal, segment[page+header:page+8192]...)
		}
		ends = append(ends, len(wal))
	}
	for pos := (skip + 7) &^ 7; pos+24 <= len(wal); {
		total := int(binary.LittleEndian.Uint32(wal[pos:]))
		if total < 24 || pos+total > len(wal) {
			return nil // the end of what the server wrote
		}
		record := wal[pos : pos+total]
		pos += (total + 7) &^ 7
		if record[17] == 0 && record[16]&0xF0 == 0x40 { // SWITCH: the rest of the segment is empty
			pos = ends[sort.SearchInts(ends, pos)]
			continue
		}
		if err := walkImages(record[24:], f); err != nil {
			return fmt.Errorf("record %d bytes before %d: %w", total, pos, err)
		}
	}
	return nil
}

// walkImages calls f for every page image of one record's body.
func walkImages(body []byte, f func(walImage)) error {
	type block struct {
		image    walImage
		hasImage bool
		length   int
		data     int
	}
	var blocks []block
	pos, payload := 0, len(body)
headers:
	for pos < payload {
		id := body[pos]
		switch {
		case id == 255:
			pos += 2
			break headers
		case id == 254:
			pos += 5
			break headers
		case id == 253:
			pos += 3
		case id == 252:
			pos += 5
		case id > 32:
			return fmt.Errorf("block id %d", id)
		default:
			flags := body[pos+1]
			b := block{data: int(binary.LittleEndian.Uint16(body[pos+2:]))}
			payload -= b.data
			pos += 4
			if flags&0x10 != 0 {
				b.hasImage = true
				b.length = int(binary.LittleEndian.Uint16(body[pos:]))
				payload -= b.length
				info := body[pos+4]
				b.image.hole, b.image.method = info&1 != 0, info&0x1C
				b.image.raw = b.length
				pos += 5
				if b.image.method != 0 {
					b.image.raw = 8192
					if b.image.hole {
						b.image.raw -= int(binary.LittleEndian.Uint16(body[pos:]))
						pos += 2
					}
				}
			}
			if flags&0x80 == 0 {
				pos += 12
			}
			pos += 4
			blocks = append(blocks, b)
		}
	}
	for _, b := range blocks {
		if b.hasImage {
			b.image.stored = body[pos : pos+b.length]
			f(b.image)
		}
		pos += b.length + b.data
	}
	return nil
}
