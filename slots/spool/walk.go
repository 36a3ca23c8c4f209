package spool

import (
	"cmp"
	"errors"
	"fmt"
	"io"
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
	// Err ends a file: link.ErrShort for an incomplete last frame, which a node that runs may be writing, else damage. Zeros behind the
	// last frame are neither.
	Err error
}

// Walk shows every window and frame of the spool at name to visit, in order: a window file, the directory of a timeline, of
// the spool, or a data directory. It only reads and takes no lock, so a node may be running on it; windows that go away
// meanwhile are passed over. It ends with the first error that visit returns. fsys nil is the operating system's.
func Walk(fsys fs.FS, name string, visit func(Entry) error) error {
	if fsys == nil {
		fsys = fs.OS{}
	}
	if strings.HasSuffix(name, windowSuffix) {
		return walkWindow(fsys, name, visit)
	}
	names, err := fsys.ReadDir(name)
	if err != nil {
		return fmt.Errorf("walk spool: %w", err)
	}
	found := false
	for _, entry := range names {
		stem, isWindow := strings.CutSuffix(entry, windowSuffix)
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

func walkWindow(fsys fs.FS, name string, visit func(Entry) error) (err error) {
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
		return visit(Entry{File: name, Err: err})
	}
	if header.Kind == link.WindowSealed && size != header.FileBytes() {
		err = fmt.Errorf("%w window: %d bytes, expected %d", link.ErrCorrupt, size, header.FileBytes())
		return visit(Entry{File: name, Err: err})
	}
	if err := visit(Entry{File: name, Bytes: link.WindowHeaderBytes, Header: &header}); err != nil {
		return err
	}
	if header.Kind != link.WindowSealed {
		_, err := walkFrames(file, name, header, size, visit)
		return err
	}
	whole, err := walkFrames(file, name, header, int64(header.IndexOffset), visit)
	if err != nil || !whole {
		return err
	}
	w := &window{path: name, header: header}
	index, err := w.readIndex(file, header)
	if err != nil {
		return visit(Entry{File: name, Offset: int64(header.IndexOffset), Err: err})
	}
	return visit(Entry{File: name, Offset: int64(header.IndexOffset), Bytes: int(header.IndexBytes), Index: &index})
}

// walkFrames shows the frames up to size, and reports whether all of them were good.
func walkFrames(file fs.File, name string, header link.WindowHeader, size int64, visit func(Entry) error) (whole bool, err error) {
	w := &window{path: name, header: header}
	r := frames{file: file}
	r.seek(link.WindowHeaderBytes, link.Cursor{ResetDistance: header.ResetDistance})
	before := scanResult{offset: r.offset, end: header.Start, cursor: r.cursor}
	again := int64(0)
	for {
		offset := r.offset
		f, n, err := r.next(size)
		if errors.Is(err, io.EOF) {
			return true, nil
		}
		if err == nil {
			err = w.follows(&f, before)
		}
		if err != nil && header.Kind == link.WindowLive && again != offset { // it may have been written after it was read
			again = offset
			r.seek(offset, before.cursor)
			continue
		}
		if err != nil && header.Kind == link.WindowLive {
			if blank, blankErr := blankFrom(file, offset, size); blank || blankErr != nil {
				return blankErr == nil, blankErr
			}
			if writing, readErr := before.inProgress(file, size, err); writing || readErr != nil {
				err = cmp.Or(readErr, link.ErrShort)
			}
		}
		if err != nil {
			return false, visit(Entry{File: name, Offset: offset, Err: err})
		}
		before.offset, before.end, before.next, before.cursor = r.offset, f.End(), nextTimeline(&f), r.cursor
		if err := visit(Entry{File: name, Offset: offset, Bytes: n, Frame: &f}); err != nil {
			return false, err
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
