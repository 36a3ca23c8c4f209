package spool

import (
	"errors"
	"fmt"
	"io"
	"path"

	"go.uber.org/zap"

	"walproxy/protocol/link"
	"walproxy/slots/fs"
)

// tail is the newest window, open for writing, and what its frames say. The zero tail means that the log is empty.
type tail struct {
	window *window
	scan   scanResult
}

// openTail cuts the log off at the first tear that a crash left, and opens the newest window that remains.
func (l *Log) openTail() (tail, error) {
	for i := len(l.lines) - 1; i >= 0; i-- {
		line := l.lines[i]
		if l.marker.aheadOf(line.windows[len(line.windows)-1]) {
			return tail{}, l.missingWindow()
		}
		first := len(line.windows) // an older line was durable before the one behind it, of which nothing is left, began
		behind := i+1 < len(l.lines)
		if !behind {
			first = l.firstUnsure(line)
		}
		kept, err := l.repairLine(line, first)
		if err != nil {
			return tail{}, err
		}
		if err := l.discard(line, kept); err != nil {
			return tail{}, err
		}
		if kept > 0 {
			l.lines = l.lines[:i+1]
			return l.openNewest(line.windows[kept-1], behind)
		}
	}
	l.lines = nil
	if l.marker.size > 0 {
		return tail{}, l.missingWindow()
	}
	return tail{}, nil
}

// firstUnsure returns the index of the first window of the newest line that is not known to have been durable: neither the mark
// nor a sealed window says so, and it does not end far enough before the newest one. See syncBefore and Log.complete.
func (l *Log) firstUnsure(line *line) int {
	at := len(line.windows)
	newest := line.windows[at-1].header.Start
	for ; at > 0; at-- {
		w := line.windows[at-1]
		far := at < len(line.windows) && uint64(newest-line.windows[at].header.Start) > MaxUnsyncedBytes
		if far || l.marker.aheadOf(w) || l.isSealed(w) {
			break
		}
	}
	return at
}

// isSealed reports whether the file of w is that of a sealed window. What cannot be read or is no header is for others to judge.
func (l *Log) isSealed(w *window) (sealed bool) {
	_ = l.withFile(w, func(file fs.File, _ int64) error {
		buf := make([]byte, link.WindowHeaderBytes)
		n, _ := file.ReadAt(buf, 0)
		h, err := link.DecodeWindowHeader(buf[:n])
		sealed = err == nil && h.Kind == link.WindowSealed
		return nil
	})
	return sealed
}

// repairLine reads the windows of a line from first on, truncates the first one that is torn, and returns how many windows go
// before what is lost. The ones before first are whole.
func (l *Log) repairLine(line *line, first int) (kept int, err error) {
	if first == len(line.windows) {
		return first, nil
	}
	before := scanResult{end: line.begin}
	if first > 0 {
		if before, err = l.readWhole(line.windows[first-1]); err != nil {
			return 0, err
		}
	}
	for i := first; i < len(line.windows); i++ {
		w := line.windows[i]
		if w.header.Start != before.end || before.next != 0 {
			if before.next != 0 || l.marker.timeline == line.timeline && l.marker.start >= before.end {
				return 0, w.corrupt(0, before.end, fmt.Errorf("WAL from %s on is missing before it", before.end))
			}
			return i, nil
		}
		scan, whole, err := l.repair(w)
		switch {
		case err != nil:
			return 0, err
		case scan.frames == 0 && i == 0 && len(line.windows) > 1:
			return 0, w.corrupt(0, w.header.Start, errors.New("nothing is left of it, although it was durable before the next one began"))
		case scan.frames == 0:
			return i, nil
		case !whole:
			return i + 1, nil
		}
		before = scan
	}
	return len(line.windows), nil
}

// readWhole reads a window that cannot be torn.
func (l *Log) readWhole(w *window) (scan scanResult, err error) {
	err = l.withFile(w, func(file fs.File, size int64) error {
		if err := l.readHeader(w, file, size); err != nil {
			return err
		}
		if w.header.Kind == link.WindowSealed {
			scan = scanResult{frames: 1, end: w.header.End}
			return nil
		}
		if scan, err = w.scan(file, size); err != nil {
			return w.bad(scan.offset, scan.end, err)
		}
		return nil
	})
	return scan, err
}

// repair reads a window that a crash may have torn to its end, truncates a torn tail, and makes durable what is left, which may
// be in the page cache alone. A result without frames means that nothing of the window ever became durable.
func (l *Log) repair(w *window) (scan scanResult, whole bool, err error) {
	file, err := l.fs.OpenWrite(w.path)
	if err != nil {
		return scanResult{}, false, fmt.Errorf("open window: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	size, err := file.Size()
	if err != nil {
		return scanResult{}, false, fmt.Errorf("open window %s: %w", w.path, err)
	}
	if scan, whole, err = l.readTorn(w, file, size); err != nil || scan.frames == 0 {
		return scan, false, err
	}
	if scan.offset < size {
		if err := file.Truncate(scan.offset); err != nil {
			return scanResult{}, false, fmt.Errorf("cut off torn tail of %s: %w", w.path, err)
		}
	}
	if !l.noSync {
		if err := rewrite(file, l.confirmed(w), scan.offset); errors.Is(full(err), ErrFull) {
			l.logger.Warn("no room to write the newest frames once more", zap.String("file", w.path), errField(err)) // the start is to make some
		} else if err != nil {
			return scanResult{}, false, fmt.Errorf("write window %s once more: %w", w.path, err)
		}
		if err := file.Sync(); err != nil {
			return scanResult{}, false, fmt.Errorf("sync window %s: %w", w.path, err)
		}
	}
	return scan, whole, nil
}

// rewrite writes what lies between two offsets of a file once more. If an fsync of the last process failed, the system may take for
// written what is in its cache alone, and would leave it out of the next fsync.
//
// Source: fsync(2) and Linux mm/filemap.c, file_check_and_advance_wb_err: an error is told once, and the pages count as clean.
func rewrite(file fs.File, from, to int64) error {
	buf := make([]byte, min(max(to-from, 0), maxBufferBytes))
	for from < to {
		n, err := file.ReadAt(buf[:min(int64(len(buf)), to-from)], from)
		if n == 0 {
			return err
		}
		if _, err := file.WriteAt(buf[:n], from); err != nil {
			return err
		}
		from += int64(n)
	}
	return nil
}

// readTorn returns what the good frames at the beginning of a window say, and whether nothing is behind them. It refuses a rest
// that does not look like what a loss of power leaves, or was known to be durable.
func (l *Log) readTorn(w *window, file fs.File, size int64) (scan scanResult, whole bool, err error) {
	confirmed := l.confirmed(w)
	if err := l.readHeader(w, file, size); err != nil {
		if torn, tornErr := tornHeader(file, size, err); tornErr != nil || !torn || confirmed > 0 {
			return scanResult{}, false, errors.Join(err, tornErr)
		}
		l.logger.Warn("window file without a header: a crash came before it was durable",
			zap.String("file", w.path), lsnField(w.header.Start), zap.Int64("bytes", size))
		return scanResult{}, false, nil
	}
	scan, err = w.scan(file, size)
	if err == nil && scan.offset < confirmed {
		err = io.ErrUnexpectedEOF
	}
	if err == nil {
		return scan, true, nil
	}
	torn, tornErr := scan.torn(file, size, err)
	if tornErr != nil || !torn || scan.offset < confirmed {
		return scanResult{}, false, errors.Join(w.bad(scan.offset, scan.end, err), tornErr)
	}
	l.logger.Warn("torn tail cut off: a crash came before it was durable", zap.String("file", w.path),
		lsnField(scan.end), zap.Int64("bytes", size-scan.offset))
	return scan, false, nil
}

// discard removes the windows of a line from number kept on: they lie behind a tear, and were not durable at the crash.
func (l *Log) discard(line *line, kept int) error {
	lost := line.windows[kept:]
	if len(lost) == 0 {
		return nil
	}
	l.logger.Warn("windows behind a tear removed: a crash came before they were durable",
		zap.Uint32("tli", uint32(line.timeline)), lsnField(lost[0].header.Start), zap.Int("windows", len(lost)))
	for _, w := range lost {
		if err := l.fs.Remove(w.path); err != nil {
			return fmt.Errorf("remove window behind a tear: %w", err)
		}
	}
	line.windows = line.windows[:kept]
	if err := l.syncDir(path.Dir(lost[0].path)); err != nil {
		return fmt.Errorf("remove windows behind a tear: sync directory: %w", err)
	}
	return nil
}

// openNewest opens the newest window, which is whole, for writing. ended tells that a later timeline had begun.
func (l *Log) openNewest(w *window, ended bool) (t tail, err error) {
	if err := l.unseal(w); err != nil {
		return tail{}, err
	}
	file, err := l.fs.OpenWrite(w.path)
	if err != nil {
		return tail{}, fmt.Errorf("open window: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, file.Close())
		}
	}()
	size, err := file.Size()
	if err != nil {
		return tail{}, fmt.Errorf("open window %s: %w", w.path, err)
	}
	if err := l.readHeader(w, file, size); err != nil {
		return tail{}, err
	}
	scan, err := w.scan(file, size)
	switch {
	case err != nil:
	case scan.frames == 0 || scan.offset < l.confirmed(w):
		err = io.ErrUnexpectedEOF
	case ended && scan.next == 0:
		err = errNoEnd
	}
	if err != nil {
		return tail{}, w.bad(scan.offset, scan.end, err)
	}
	w.file, w.length = file, size
	return tail{window: w, scan: scan}, nil
}
