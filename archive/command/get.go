package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"walproxy/archive"
	"walproxy/protocol"
)

// GetOptions say how Get works. The zero value is good: no reading ahead.
type GetOptions struct {
	// Cache is the directory of segments that were read ahead; empty: none. It is best on the file system of pg_wal.
	Cache string
	// ReadAhead has Ahead segments behind file read into Cache, by another process: Get does not wait for it, and does not ask for it
	// while half of them are there.
	ReadAhead func(file string) error
	Ahead     int
}

// Got says what Get did.
type Got struct {
	Cached bool
	// End is where the WAL of a segment ends of which the archive holds only a part, because there is no later WAL on the timeline;
	// zeros follow. 0 for whole segments and for other files.
	End protocol.LSN
}

// segmentFile is the name of a segment.
var segmentFile = regexp.MustCompile(`^[0-9A-F]{24}$`)

// Get hands out a file of an archive as path: a segment of exactly the cluster's segment size, or a .history, .backup or .partial
// file. Path appears as a whole, by a rename, or not at all; a file that was there is replaced.
//
// Errors: of class archive.ErrNotExist only if the archive could be asked, is not empty, and has no such file. Whatever else
// goes wrong, *archive.GapError and *archive.CorruptError included, is no reason to believe that there is no more WAL.
func Get(ctx context.Context, store archive.Store, file, path string, o GetOptions) (got Got, err error) {
	if segmentFile.MatchString(file) && o.Cache != "" {
		if got.Cached, err = take(ctx, o.Cache, file, path); err != nil {
			return got, fmt.Errorf("get %s: %w", file, err)
		}
	}
	if !got.Cached {
		got.End, err = get(ctx, store, file, path)
	}
	if err != nil {
		return got, fmt.Errorf("get %s: %w", file, err)
	}
	if segmentFile.MatchString(file) && o.ReadAhead != nil && o.Cache != "" && got.End == 0 && !stocked(o, file, path) {
		err = o.ReadAhead(file)
	}
	if err != nil {
		return got, fmt.Errorf("get %s: read ahead: %w", file, err)
	}
	return got, nil
}

// stocked reports whether half of the segments behind file, which was handed out as path, are in the cache.
func stocked(o GetOptions, file, path string) bool {
	info, err := os.Stat(path)
	if err != nil || !protocol.ValidSegmentSize(uint64(info.Size())) {
		return false
	}
	names, err := behind(file, (o.Ahead+1)/2, uint64(info.Size()))
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(o.Cache, name)); err != nil {
			return false
		}
	}
	return err == nil && len(names) > 0
}

// get hands out a file from the store.
func get(ctx context.Context, store archive.Store, file, path string) (protocol.LSN, error) {
	a, err := archive.Open(ctx, store)
	if err != nil {
		return 0, err // an empty store may be one that is not mounted, or another place than was meant
	}
	var end protocol.LSN
	switch {
	case segmentFile.MatchString(file):
		end, err = getSegment(ctx, a, a.NewReader(), file, path, !transient(path))
	case archive.PlainFile(file):
		err = write(path, !transient(path), func(w io.WriterAt) (int64, error) { return copyFile(ctx, a, file, w) })
	default:
		err = fmt.Errorf("%w: no file that a server archives is called that", archive.ErrNotExist)
	}
	return end, err
}

// transient reports whether the server removes path by itself when it begins anew, so that it need not be durable.
//
// Source: PostgreSQL src/backend/access/transam/xlogarchive.c, RestoreArchivedFile (13-18).
func transient(path string) bool { return strings.HasPrefix(filepath.Base(path), "RECOVERY") }

// getSegment writes a segment to path. End is as in Got.
func getSegment(ctx context.Context, a *archive.Archive, r *archive.Reader, file, path string, durable bool) (end protocol.LSN, err error) {
	size := uint64(a.Identity().SegmentSize)
	tli, start, err := protocol.ParseSegmentName(file, size)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", archive.ErrNotExist, err)
	}
	to := start + protocol.LSN(size)
	err = write(path, durable, func(w io.WriterAt) (int64, error) {
		next := start
		err := r.Read(ctx, tli, start, to, func(lsn protocol.LSN, wal []byte) error {
			if _, err := w.WriteAt(wal, int64(lsn-start)); err != nil {
				return err
			}
			next = lsn + protocol.LSN(len(wal))
			return nil
		})
		var missing *archive.MissingError
		if errors.As(err, &missing) && next > start {
			end, err = next, nil
		}
		if err == nil {
			err = beforeFork(r, tli, to)
		}
		return int64(size), err
	})
	return end, err
}

// beforeFork returns an error of class archive.ErrNotExist if the WAL up to end, which r has read, is an ancestor's alone: a server
// has no segment of the timeline there.
func beforeFork(r *archive.Reader, tli protocol.Timeline, end protocol.LSN) error {
	if h, known := r.Known(tli); known && h.Begin() >= end {
		return &archive.MissingError{Timeline: tli, LSN: end - 1}
	}
	return nil
}

// copyFile writes a plain file to w and returns its length.
func copyFile(ctx context.Context, a *archive.Archive, file string, w io.WriterAt) (int64, error) {
	var piece []byte
	for at := int64(0); ; {
		var err error
		if piece, err = a.Store().Get(ctx, piece[:0], archive.FileName(file), at, pieceBytes); err != nil {
			return 0, err
		}
		if _, err := w.WriteAt(piece, at); err != nil {
			return 0, err
		}
		if at += int64(len(piece)); len(piece) < pieceBytes {
			return at, nil
		}
	}
}

// tempMark is in the names of files that are being written; the rest of the name is random.
const tempMark = ".walproxy-"

// leftover is how old a file that is being written is at least when nobody writes it any more.
const leftover = 24 * time.Hour

// write makes path of what fill writes and how long fill says that it is: under another name at first. Durable means that path
// survives a loss of power.
func write(path string, durable bool, fill func(io.WriterAt) (int64, error)) (err error) {
	dir, base := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	removeLeftovers(dir, base)
	temp, err := os.CreateTemp(dir, base+tempMark)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(temp.Name()) // or the next call does
		}
	}()
	size, err := fill(temp)
	if err == nil {
		err = temp.Truncate(size)
	}
	if err == nil && durable {
		err = temp.Sync()
	}
	if err = errors.Join(err, temp.Close()); err != nil {
		return err
	}
	if err := os.Rename(temp.Name(), path); err != nil {
		return err
	}
	if durable {
		return syncDir(dir)
	}
	return nil
}

// removeLeftovers removes what a killed process left of path.
func removeLeftovers(dir, base string) {
	names, err := filepath.Glob(filepath.Join(dir, base+tempMark+"*"))
	if err != nil {
		return
	}
	for _, name := range names {
		if info, err := os.Stat(name); err == nil && time.Since(info.ModTime()) > leftover {
			_ = os.Remove(name)
		}
	}
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
