package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"walproxy/archive"
	"walproxy/protocol"
)

// Files of a cache directory: a lock, held by the one process that reads ahead; segments, complete and durable, under their
// names; and the segment that is being read, with workSuffix, whose own lock is held until it is complete.
const (
	lockName   = "lock"
	workSuffix = ".part"
)

// ReadAhead reads count segments behind file into the cache directory dir, which it makes, and the one above, if they are missing,
// and removes the others there. Only whole segments are kept; it ends before the first one that the archive does not hold as a whole. If another
// process reads ahead it does nothing.
func ReadAhead(ctx context.Context, store archive.Store, dir, file string, count int) error {
	for _, d := range []string{filepath.Dir(dir), dir} { // and no more: a data directory that is gone stays gone
		if err := os.Mkdir(d, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("read ahead: %w", err)
		}
	}
	lock, err := lockFile(filepath.Join(dir, lockName))
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read ahead: %w", err)
	}
	defer func() { _ = lock.Close() }() // nothing was written
	a, err := archive.Open(ctx, store)
	if err != nil {
		return fmt.Errorf("read ahead: %w", err)
	}
	names, err := behind(file, count, uint64(a.Identity().SegmentSize))
	if err != nil {
		return fmt.Errorf("read ahead: %w", err)
	}
	if err := removeOthers(dir, names); err != nil {
		return fmt.Errorf("read ahead: %w", err)
	}
	r := a.NewReader()
	for _, name := range names {
		whole, err := cache(ctx, a, r, dir, name)
		if errors.Is(err, archive.ErrNotExist) || err == nil && !whole {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read ahead %s: %w", name, err)
		}
	}
	return nil
}

// lockFile opens a file, which it makes if it is missing, with an exclusive lock that ends with it; syscall.EWOULDBLOCK if
// somebody else has it.
func lockFile(name string) (*os.File, error) {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", name, err), file.Close())
	}
	return file, nil
}

// behind returns the names of the count segments behind file.
func behind(file string, count int, size uint64) ([]string, error) {
	tli, start, err := protocol.ParseSegmentName(file, size)
	if err != nil {
		return nil, err
	}
	var names []string
	for lsn := start.Next(size); len(names) < count && lsn > start; lsn = lsn.Next(size) {
		names = append(names, protocol.SegmentName(tli, lsn, size))
	}
	return names, nil
}

// removeOthers removes the segments from the cache that are not among names.
func removeOthers(dir string, names []string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := e.Name()
		part := len(name) > 24 && segmentFile.MatchString(name[:24]) // what a killed process left: nobody else writes
		if part || segmentFile.MatchString(name) && !slices.Contains(names, name) {
			if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// cache reads one segment into the cache, unless it is there, and reports whether the archive holds it as a whole.
func cache(ctx context.Context, a *archive.Archive, r *archive.Reader, dir, name string) (whole bool, err error) {
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err == nil {
		return true, nil
	}
	part, err := lockFile(path + workSuffix)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, os.Remove(part.Name()), part.Close()) }() // in this order: who waits finds the segment or nothing
	end, err := getSegment(ctx, a, r, name, path+tempMark+"whole", true)
	if err != nil {
		return false, err
	}
	if end != 0 {
		return false, os.Remove(path + tempMark + "whole")
	}
	if err := os.Rename(path+tempMark+"whole", path); err != nil {
		return false, err
	}
	return true, syncDir(dir)
}

// take moves a segment from the cache to path and reports whether it was there. It waits for one that is being read.
func take(ctx context.Context, dir, name, path string) (bool, error) {
	cached := filepath.Join(dir, name)
	taken, err := move(cached, path)
	if taken || err != nil {
		return taken, err
	}
	part, err := os.Open(cached + workSuffix)
	if errors.Is(err, os.ErrNotExist) {
		return move(cached, path) // it may have become complete between the two looks
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = part.Close() }()
	if err := waitLock(ctx, part); err != nil {
		return false, err
	}
	return move(cached, path)
}

// waitLock waits until nobody holds the lock of file, or ctx ends.
func waitLock(ctx context.Context, file *os.File) error {
	done := make(chan error, 1) // of the one goroutine below
	fd := int(file.Fd())
	go func() { done <- syscall.Flock(fd, syscall.LOCK_SH) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done(): // the process ends, and the goroutine with it
		return ctx.Err()
	}
}

// move moves a complete segment to path, also to another file system.
func move(cached, path string) (bool, error) {
	err := os.Rename(cached, path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		return true, nil
	}
	if !errors.Is(err, syscall.EXDEV) {
		return false, err
	}
	from, err := os.Open(cached)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = from.Close() }() // it was only read
	err = write(path, !transient(path), func(w io.WriterAt) (int64, error) {
		return io.Copy(io.NewOffsetWriter(w, 0), from)
	})
	if err != nil {
		return false, err
	}
	_ = os.Remove(cached) // else reading ahead does
	return true, nil
}
