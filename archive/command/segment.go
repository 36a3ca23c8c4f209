package command

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"walproxy/archive"
	"walproxy/protocol"
	"walproxy/protocol/wal"
)

// pieceBytes is how much of a segment is read at a time.
const pieceBytes = 1 << 20

// segment is an opened segment file.
type segment struct {
	*os.File
	id   archive.Identity
	span archive.Span
}

// notWAL says why a file is not archived.
func notWAL(path, format string, args ...any) error {
	return fmt.Errorf("%s: %w: %s", path, archive.ErrNotWAL, fmt.Sprintf(format, args...))
}

// openSegment opens a complete segment. The caller closes it.
//
// Errors: of class archive.ErrNotWAL if the file is not what its name says, or is not complete.
func openSegment(path string) (_ *segment, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = file.Close() // it was only read
		}
	}()
	header, err := firstPage(file)
	if err != nil {
		return nil, notWAL(path, "%v", err)
	}
	s := &segment{File: file, id: identityOf(header)}
	tli, start, err := protocol.ParseSegmentName(filepath.Base(path), uint64(s.id.SegmentSize))
	if err != nil {
		return nil, notWAL(path, "%v", err)
	}
	s.span = archive.Span{Timeline: tli, Start: start, End: start + protocol.LSN(s.id.SegmentSize)}
	switch info, err := file.Stat(); {
	case err != nil:
		return nil, err
	case info.Size() != int64(s.id.SegmentSize):
		return nil, notWAL(path, "it has %d bytes; segments of this cluster have %d", info.Size(), s.id.SegmentSize)
	case header.Addr != start || header.Timeline > tli:
		return nil, notWAL(path, "it begins with the WAL at %s on timeline %d", header.Addr, header.Timeline)
	}
	return s, s.checkComplete()
}

// firstPage reads the long header at the start of a segment.
func firstPage(file io.ReaderAt) (wal.PageHeader, error) {
	page := make([]byte, wal.LongHeaderBytes)
	if n, err := file.ReadAt(page, 0); n < len(page) {
		return wal.PageHeader{}, fmt.Errorf("read the first page: %w", err)
	}
	header, n, err := wal.ParsePageHeader(page)
	if err != nil {
		return header, err
	}
	if n != wal.LongHeaderBytes || !protocol.ValidSegmentSize(uint64(header.SegmentSize)) ||
		header.PageSize < wal.MinPageSize || header.PageSize > wal.MaxPageSize {
		return header, fmt.Errorf("the first page is not the first one of a segment")
	}
	return header, nil
}

func identityOf(h wal.PageHeader) archive.Identity {
	return archive.Identity{SystemID: h.SystemID, Major: int(h.Version), SegmentSize: h.SegmentSize, WALBlockSize: h.PageSize}
}

// checkComplete makes sure that the segment is filled to its end: it ends with a page of its own, or with the zeros that follow
// a switch of segments. A file that the server still writes to, or that was restored up to some LSN, ends otherwise.
func (s *segment) checkComplete() error {
	size := int64(s.id.WALBlockSize)
	page := make([]byte, size)
	last := s.span.End - protocol.LSN(size)
	if _, err := s.ReadAt(page, int64(s.id.SegmentSize)-size); err != nil {
		return err
	}
	header, _, err := wal.ParsePageHeader(page)
	if err == nil && header.Addr == last && header.Timeline <= s.span.Timeline {
		return nil
	}
	if slices.ContainsFunc(page, func(b byte) bool { return b != 0 }) {
		return notWAL(s.Name(), "the last page is not that of %s", last)
	}
	return s.checkSwitch()
}

// checkSwitch makes sure that the zeros at the end follow a switch of segments.
func (s *segment) checkSwitch() error {
	w := wal.NewWalker(s.span.Start, wal.Options{Stream: wal.Stream{
		Version: wal.Version(s.id.Major), SystemID: s.id.SystemID, SegmentSize: s.id.SegmentSize, PageSize: s.id.WALBlockSize,
	}})
	piece := make([]byte, pieceBytes)
	var end protocol.LSN // of the WAL before the zeros
	switched := false
	look := func(ev *wal.Event) {
		switch ev.Kind {
		case wal.KindPage:
		case wal.KindSwitchTail:
			switched = true
		case wal.KindRaw:
			switched = switched && zero(ev.Data)
		default:
			switched, end = false, ev.End
		}
	}
	for at := int64(0); at < int64(s.id.SegmentSize); at += int64(len(piece)) {
		if _, err := s.ReadAt(piece, at); err != nil {
			return err
		}
		if err := w.Feed(piece); err != nil {
			return err
		}
		for ev, ok := w.Next(); ok; ev, ok = w.Next() {
			look(ev)
		}
	}
	for ev, ok := w.Flush(); ok; ev, ok = w.Flush() {
		look(ev)
	}
	if !switched {
		return notWAL(s.Name(), "its WAL ends at %s, in the middle of the segment and not with a switch", end)
	}
	return nil
}

func zero(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }

// neighbour returns the cluster of the segments in a directory, for files that do not say whose they are.
func neighbour(dir string) (archive.Identity, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return archive.Identity{}, err
	}
	for _, e := range entries {
		if len(e.Name()) != 24 || !e.Type().IsRegular() {
			continue
		}
		file, err := os.Open(filepath.Join(dir, e.Name()))
		if err != nil {
			continue // recycled meanwhile
		}
		header, err := firstPage(file)
		_ = file.Close() // it was only read
		if err == nil {
			return identityOf(header), nil
		}
	}
	return archive.Identity{}, fmt.Errorf("%s holds no WAL segment that says whose it is", dir)
}
