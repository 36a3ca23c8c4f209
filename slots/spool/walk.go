package spool

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"path"
	"strings"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/slots/fs"
)

// Entry is one thing that Walk finds: the header of a window file, a frame, the index of a sealed window, or what keeps it from
// reading on in the file.
type Entry struct {
	File   string
	Offset int64 // bytes into File
	Bytes  int   // encoded length of the header or frame
	Header *link.WindowHeader
	Frame  *link.Frame // with its payload, valid during the visit only
	Index  *link.Index // of a sealed window, behind its frames
	// Err ends a file: link.ErrShort for an incomplete last frame, which a node that runs may be writing, else damage: of class
	// link.ErrCorrupt, *link.VersionError or *link.UnseenStreamError. Zeros behind the last frame are neither.
	Err error
}

// Walk shows every window and frame of the spool at name to visit, in order: a window file, the directory of a timeline, of
// the spool, or a data directory. It only reads and takes no lock, so a node may be running on it; windows that go away
// meanwhile are passed over. It ends with the first error that visit returns. fsys nil is the operating system's.
func Walk(fsys fs.FS, name string, visit func(Entry) error) error {
	if fsys == nil {
		fsys = fs.OS{}
	}
	if strings.HasSuffix(name, WindowSuffix) {
		return WalkWindow(fsys, name, visit)
	}
	names, err := fsys.ReadDir(name)
	if err != nil {
		return fmt.Errorf("walk spool: %w", err)
	}
	found := false
	for _, entry := range names {
		stem, isWindow := strings.CutSuffix(entry, WindowSuffix)
		_, isStart := parseHex(stem, 16)
		_, isTimeline := parseHex(entry, 8)
		if entry != "spool" && !(isWindow && isStart) && !isTimeline {
			continue
		}
		found = true
		if err := Walk(fsys, path.Join(name, entry), visit); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if !found && path.Base(name) != "spool" {
		return fmt.Errorf("walk spool: nothing in %s looks like a spool", name)
	}
	return nil
}

// WalkWindow is Walk for the window file at name, whatever its name. The errors of opening and reading the file are returned.
func WalkWindow(fsys fs.FS, name string, visit func(Entry) error) (err error) {
	if fsys == nil {
		fsys = fs.OS{}
	}
	file, err := fsys.Open(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	size, err := file.Size()
	if err != nil {
		return fmt.Errorf("walk %s: %w", name, err)
	}
	buf := make([]byte, min(size, link.WindowHeaderBytes))
	if _, err := file.ReadAt(buf, 0); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("walk %s: %w", name, err)
	}
	header, err := link.DecodeWindowHeader(buf)
	if err != nil {
		if blank, blankErr := blankFrom(file, 0, size); blank && blankErr == nil { // the zeros ahead of it come before the header
			err = link.ErrShort
		}
		return visit(Entry{File: name, Err: err})
	}
	if header.Kind == link.WindowSealed && size != header.FileBytes() {
		err = &link.CorruptError{Timeline: header.Timeline, LSN: header.Start, What: fmt.Sprintf("the window's file has %d bytes, expected %d", size, header.FileBytes())}
		return visit(Entry{File: name, Err: err})
	}
	if err := visit(Entry{File: name, Bytes: link.WindowHeaderBytes, Header: &header}); err != nil {
		return err
	}
	if header.Kind != link.WindowSealed {
		_, _, err := walkFrames(file, name, header, size, visit)
		return err
	}
	end, whole, err := walkFrames(file, name, header, int64(header.IndexOffset), visit)
	if err != nil || !whole {
		return err
	}
	w := &window{path: name, header: header}
	index, err := w.readIndex(file, header)
	if err == nil && end != header.End {
		err = &link.CorruptError{Timeline: header.Timeline, LSN: end, What: fmt.Sprintf("the window is to end at %s", header.End)}
	}
	if damaged := (*CorruptError)(nil); errors.As(err, &damaged) {
		err = damaged.Err
	}
	if err != nil {
		return visit(Entry{File: name, Offset: int64(header.IndexOffset), Err: err})
	}
	return visit(Entry{File: name, Offset: int64(header.IndexOffset), Bytes: int(header.IndexBytes), Index: &index})
}

// walkFrames shows the frames up to size, and returns where their WAL ends and whether all of them were good.
func walkFrames(file fs.File, name string, header link.WindowHeader, size int64, visit func(Entry) error) (end protocol.LSN, whole bool, err error) {
	w := &window{path: name, header: header}
	r := NewFrames(file, link.WindowHeaderBytes, link.Cursor{ResetDistance: header.ResetDistance})
	before := scanResult{offset: r.offset, end: header.Start, cursor: r.cursor}
	again := int64(0)
	for {
		offset := r.offset
		f, n, err := r.Next(size)
		if errors.Is(err, io.EOF) {
			return before.end, true, nil
		}
		var unreadable *iofs.PathError
		if errors.As(err, &unreadable) {
			return before.end, false, fmt.Errorf("walk %s: %w", name, err)
		}
		if err == nil {
			err = w.follows(&f, before)
		}
		if err != nil && header.Kind == link.WindowLive && again != offset { // it may have been written after it was read
			again = offset
			r.seek(offset, before.cursor)
			length, sizeErr := file.Size() // of a window that is complete meanwhile the zeros behind it are gone
			if sizeErr != nil {
				return before.end, false, fmt.Errorf("walk %s: %w", name, sizeErr)
			}
			size = min(size, length)
			continue
		}
		if err != nil && header.Kind == link.WindowLive {
			if blank, blankErr := blankFrom(file, offset, size); blank || blankErr != nil {
				return before.end, blankErr == nil, blankErr
			}
			if writing, readErr := before.inProgress(file, size, err); writing || readErr != nil {
				err = cmp.Or(readErr, link.ErrShort)
			}
		}
		if err != nil {
			if errors.Is(err, errDisorder) {
				err = fmt.Errorf("%w: %w", link.ErrCorrupt, err)
			}
			if header.Kind == link.WindowSealed && errors.Is(err, link.ErrShort) { // nobody is writing it
				err = &link.CorruptError{Timeline: header.Timeline, LSN: before.end, What: "the frame goes beyond the last one's end"}
			}
			return before.end, false, visit(Entry{File: name, Offset: offset, Err: err})
		}
		before.offset, before.end, before.next, before.cursor = r.offset, f.End(), nextTimeline(&f), r.cursor
		if err := visit(Entry{File: name, Offset: offset, Bytes: n, Frame: &f}); err != nil {
			return before.end, false, err
		}
	}
}

// nextTimeline returns the timeline that a frame names as the next one, or 0.
func nextTimeline(f *link.Frame) protocol.Timeline {
	if f.Codec != link.CodecTimelineEnd {
		return 0
	}
	end, err := f.TimelineEnd()
	if err != nil {
		return 0
	}
	return end.Next
}
