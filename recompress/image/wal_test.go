package image_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sort"

	"walproxy/protocol/wal"
)

// walImage is a page image as a record holds it.
type walImage struct {
	method wal.Compression
	hole   bool
	raw    int // bytes of content
	stored []byte
}

// walkSegments calls f for every page image of the segments in dir, which follow one another. The image is valid during the call.
func walkSegments(dir string, f func(walImage)) error {
	names, err := filepath.Glob(filepath.Join(dir, "[0-9A-F]*[0-9A-F]"))
	if err != nil || len(names) == 0 {
		return fmt.Errorf("no segments in %s: %v", dir, err)
	}
	sort.Strings(names)
	var walker *wal.Walker
	for _, name := range names {
		segment, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if walker == nil {
			header, _, err := wal.ParsePageHeader(segment)
			if err != nil {
				return fmt.Errorf("first page of %s: %w", name, err)
			}
			walker = wal.NewWalker(header.Addr, wal.Options{})
		}
		if err := walkImages(walker, segment, f); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// walkImages feeds chunk to the walker and calls f for every page image of the records that it completes.
func walkImages(walker *wal.Walker, chunk []byte, f func(walImage)) error {
	if err := walker.Feed(chunk); err != nil {
		return err
	}
	var record wal.Record
	for event, ok := walker.Next(); ok; event, ok = walker.Next() {
		if event.Kind != wal.KindRecord {
			continue
		}
		if err := walkRecord(event.Data, event.Version, &record, f); err != nil {
			return err
		}
	}
	return nil
}

// walkRecord calls f for every page image of a record, which it decodes into room.
func walkRecord(record []byte, v wal.Version, room *wal.Record, f func(walImage)) error {
	if err := wal.Decode(record, wal.Format{Version: v}, room); err != nil {
		return err
	}
	for i := range room.Blocks {
		b := &room.Blocks[i]
		if b.HasImage() {
			f(walImage{b.Compression(v), b.HasHole(), wal.DefaultBlockSize - int(b.HoleLength), b.Image})
		}
	}
	return nil
}
