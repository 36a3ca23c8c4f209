package inspect

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/protocol/wal"
	"walproxy/recompress"
	"walproxy/slots/spool"
)

// ErrNoRecord says that there is no record at the LSN, or not all of it.
var ErrNoRecord = errors.New("no record there")

// Record writes what the record at lsn is to w: its header and block references, nothing of its content. It reads no more of the
// window than it takes: of a sealed one the index and the frames from the last place at or before lsn that decoding can start
// at. The WAL of the newest timeline that path holds counts.
//
// Errors: of class ErrNoRecord; ErrDamaged; others if path cannot be read.
func Record(w io.Writer, path string, lsn protocol.LSN) error {
	files, base, err := windowFiles(path)
	if err != nil {
		return err
	}
	for i := len(files) - 1; i >= 0; i-- {
		r, err := openWindow(files[i])
		if err != nil {
			return err
		}
		if r == nil {
			continue
		}
		if lsn < r.header.Start || lsn >= r.header.Start.Next(uint64(r.header.ResetDistance)) {
			_ = r.file.Close()
			continue
		}
		name, err := filepath.Rel(base, files[i])
		if err == nil {
			err = r.record(w, name, lsn)
		}
		return errors.Join(err, r.file.Close())
	}
	return fmt.Errorf("%w: no window holds %s", ErrNoRecord, lsn)
}

// windowReader reads parts of a window file.
type windowReader struct {
	file   *os.File
	header link.WindowHeader
	index  link.Index // sealed
	size   int64

	decoder *recompress.Reader
	wal     []byte // from begin on
	begin   protocol.LSN
	frames  int   // decoded
	bytes   int64 // of them in the file
	alone   bool  // the frames that hold the record stand alone
	version wal.Version
}

// openWindow returns nil for a file that holds no window, as one that is being made.
func openWindow(path string) (*windowReader, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	r := &windowReader{file: file}
	head := make([]byte, link.WindowHeaderBytes)
	if _, err := io.ReadFull(file, head); err != nil {
		return nil, file.Close()
	}
	info, err := file.Stat()
	if err == nil {
		r.size = info.Size()
		r.header, err = link.DecodeWindowHeader(head)
	}
	if err == nil && r.header.Kind == link.WindowSealed {
		index := make([]byte, r.header.IndexBytes)
		if _, err = file.ReadAt(index, int64(r.header.IndexOffset)); err == nil {
			r.index, err = link.DecodeIndex(r.header, index)
		}
	}
	if err == nil {
		r.decoder, err = recompress.NewReader(recompress.Options{ResetDistance: r.header.ResetDistance})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read %s: %w", path, classed(err)), file.Close())
	}
	return r, nil
}

// record finds the record and prints it.
func (r *windowReader) record(w io.Writer, name string, lsn protocol.LSN) error {
	cursor, offset, entry := link.Cursor{ResetDistance: r.header.ResetDistance}, int64(link.WindowHeaderBytes), 0
	if r.header.Kind == link.WindowSealed {
		entry = r.index.Enter(lsn)
		cursor, offset = r.index.Cursor(entry), r.index.At(entry).Offset
	}
	record, err := r.read(cursor, offset, lsn)
	var unseen *link.UnseenStreamError
	for errors.As(err, &unseen) && entry > 0 { // the stream of what the record lies in began further back
		entry = r.index.Enter(r.index.At(entry).Start - 1)
		record, err = r.read(r.index.Cursor(entry), r.index.At(entry).Offset, lsn)
	}
	if err != nil {
		return fmt.Errorf("record at %s: %w", lsn, classed(err))
	}
	return r.print(w, name, lsn, record)
}

// read decodes frames from offset on until the record at lsn is whole.
func (r *windowReader) read(cursor link.Cursor, offset int64, lsn protocol.LSN) (record []byte, err error) {
	r.wal, r.begin, r.frames, r.bytes, r.alone = r.wal[:0], 0, 0, 0, true
	err = r.each(cursor, offset, func(f *link.Frame, bytes int) error {
		if f.Codec == link.CodecTimelineEnd {
			return nil
		}
		if record, err = r.take(f, bytes, lsn); err == nil && record != nil {
			err = errStop
		}
		return err
	})
	switch {
	case record != nil:
		return record, nil
	case err != nil:
		return nil, err
	}
	return nil, fmt.Errorf("%w, or it goes on behind the window", ErrNoRecord)
}

// each shows frames from offset on: of a live window all, in which an incomplete last frame and what is behind it do not count.
func (r *windowReader) each(cursor link.Cursor, offset int64, visit func(f *link.Frame, bytes int) error) error {
	if r.header.Kind == link.WindowLive {
		return spool.WalkWindow(nil, r.file.Name(), func(e spool.Entry) error {
			switch {
			case e.Frame != nil:
				return visit(e.Frame, e.Bytes)
			case errors.Is(e.Err, link.ErrShort):
				return nil
			}
			return e.Err
		})
	}
	frames := spool.NewFrames(r.file, offset, cursor)
	for {
		f, n, err := frames.Next(int64(r.header.IndexOffset))
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = visit(&f, n)
		}
		if err != nil {
			return err
		}
	}
}

// take decodes a frame and returns the record at lsn once all of it was seen.
func (r *windowReader) take(f *link.Frame, bytes int, lsn protocol.LSN) (record []byte, err error) {
	if len(r.wal) == 0 {
		r.begin = f.Start
	}
	if r.begin > lsn || f.Start != r.begin+protocol.LSN(len(r.wal)) {
		return nil, fmt.Errorf("%w: a frame in the wrong place: it starts at %s", ErrDamaged, f.Start)
	}
	if r.wal, err = r.decoder.Decode(r.wal, f); err != nil {
		return nil, err
	}
	r.frames, r.bytes = r.frames+1, r.bytes+int64(bytes)
	if f.End() <= lsn {
		r.wal = r.wal[:0]
		r.alone = false
		return nil, nil
	}
	r.alone = r.alone && !f.Starts && !f.Continues
	return r.join(lsn)
}

// join returns the record at lsn without the page headers in it, or nil if more WAL is needed.
func (r *windowReader) join(lsn protocol.LSN) ([]byte, error) {
	page := int(r.header.WALBlockSize)
	if page < wal.MinPageSize || page > wal.MaxPageSize || page&(page-1) != 0 {
		page = wal.DefaultPageSize
	}
	b, pos := r.wal[lsn-r.begin:], lsn
	if len(b) < wal.RecordHeaderBytes {
		return nil, nil
	}
	total := binary.LittleEndian.Uint32(b)
	if uint64(lsn)%8 != 0 || uint64(lsn)%uint64(page) == 0 || total < wal.RecordHeaderBytes || total > link.MaxResetDistance {
		return nil, ErrNoRecord
	}
	var record []byte
	for len(record) < int(total) {
		if uint64(pos)%uint64(page) == 0 {
			h, n, err := wal.ParsePageHeader(b)
			if errors.Is(err, wal.ErrShort) {
				return nil, nil
			}
			if err != nil || h.Addr != pos {
				return nil, ErrNoRecord
			}
			r.version = h.Version
			b, pos = b[n:], pos+protocol.LSN(n)
		}
		n := min(int(total)-len(record), page-int(uint64(pos)%uint64(page)), len(b))
		if n == 0 {
			return nil, nil
		}
		record = append(record, b[:n]...)
		b, pos = b[n:], pos+protocol.LSN(n)
	}
	if wal.CRC(record) != binary.LittleEndian.Uint32(record[20:]) {
		return nil, ErrNoRecord
	}
	return record, nil
}

// classed makes an error about bytes that were read one of class ErrDamaged.
func classed(err error) error {
	var version *link.VersionError
	var unseen *link.UnseenStreamError
	if errors.Is(err, link.ErrCorrupt) || errors.Is(err, link.ErrShort) || errors.As(err, &version) || errors.As(err, &unseen) {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return err
}

// print writes what the record is.
func (r *windowReader) print(w io.Writer, name string, lsn protocol.LSN, record []byte) error {
	h, err := wal.ParseHeader(record)
	if err != nil {
		return err
	}
	// The version stands on the page, which need not be at hand. Names and flags are nearly the same in all.
	var rec wal.Record
	v := r.version
	if v == 0 {
		v = wal.PG18
	}
	if err := wal.Decode(record, wal.Format{Version: v}, &rec); err != nil && r.version == 0 {
		v = wal.PG14
		_ = wal.Decode(record, wal.Format{Version: v}, &rec)
	}
	place := "its stream decoded"
	if r.alone {
		place = "it stands alone"
	}
	_, err = fmt.Fprintf(w, "record %s in %s\n  %s/%s, %d bytes, xid %d, previous record %s\n", lsn, name, h.Rmgr, wal.Operation(v, h.Rmgr, h.Info),
		h.TotalLength, h.XID, h.Prev)
	for i := range rec.Blocks {
		b := &rec.Blocks[i]
		if err == nil {
			_, err = fmt.Fprintf(w, "  block %d: relation %d/%d/%d, fork %d, page %d; image of %d bytes, data of %d\n", b.ID, b.Rel.Tablespace,
				b.Rel.Database, b.Rel.Number, b.Flags.Fork(), b.Number, len(b.Image), len(b.Data))
		}
	}
	if err == nil {
		_, err = fmt.Fprintf(w, "  read: %d frames, %d bytes of %d; %s\n", r.frames, r.bytes, r.size, place)
	}
	return err
}
