// Package file is an archive's store in a directory.
//
// An object is written to a file of its own below DIR/.tmp, made durable, and then given its name by link(2), which fails if the
// name is taken: so it is there as a whole or not at all, and the first one stays. Directories are synced behind every change.
// The file system must know hard links, and its fsync must be honest.
package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"walproxy/archive"
)

// tempDir holds files that are being written. Its name is no object's.
const tempDir = ".tmp"

// copyBytes is how much is written at a time.
const copyBytes = 1 << 20

// Store is a directory. Safe for concurrent use, also by several processes and, if the file system is shared, machines.
type Store struct {
	dir string
	os  system
}

var _ archive.Store = (*Store)(nil)

// New returns the store in the directory dir, which is made at the first Put. It touches nothing.
func New(dir string) *Store { return &Store{dir: filepath.Clean(dir), os: realSystem{}} }

// String implements archive.Store.
func (s *Store) String() string { return "file://" + s.dir }

// Close implements archive.Store.
func (s *Store) Close() error { return nil }

// path returns where an object lies. A name that is none is an error: it never leads out of the directory.
func (s *Store) path(name string) (string, error) {
	if !archive.ValidName(name) {
		return "", fmt.Errorf("%q cannot be the name of an object", name)
	}
	return filepath.Join(s.dir, filepath.FromSlash(name)), nil
}

// Put implements archive.Store.
func (s *Store) Put(ctx context.Context, name string, body io.ReaderAt, size int64) error {
	path, err := s.path(name)
	if err == nil {
		err = s.put(ctx, path, body, size)
	}
	return failed("put", name, err)
}

func (s *Store) put(ctx context.Context, path string, body io.ReaderAt, size int64) error {
	if _, err := os.Lstat(path); err == nil { // spares the writing; the link below decides
		return archive.ErrExists
	}
	if err := s.makeDirs(filepath.Join(s.dir, tempDir)); err != nil {
		return err
	}
	temp, err := s.os.createTemp(filepath.Join(s.dir, tempDir))
	if err != nil {
		return err
	}
	err = s.fill(ctx, temp, body, size)
	err = errors.Join(err, temp.Close())
	if err == nil {
		err = s.publish(temp.Name(), path)
	}
	_ = s.os.remove(temp.Name()) // a leftover is in nobody's way
	return err
}

// fill writes body and makes it durable.
func (s *Store) fill(ctx context.Context, temp tempFile, body io.ReaderAt, size int64) error {
	piece := make([]byte, min(size, copyBytes))
	for at := int64(0); at < size; at += int64(len(piece)) {
		if err := ctx.Err(); err != nil {
			return err
		}
		piece = piece[:min(size-at, int64(len(piece)))]
		if n, err := body.ReadAt(piece, at); n < len(piece) {
			return fmt.Errorf("read what is to be stored: %w", err)
		}
		if _, err := temp.Write(piece); err != nil {
			return err
		}
	}
	return temp.Sync()
}

// publish gives a durable file its name.
func (s *Store) publish(temp, path string) error {
	if err := s.makeDirs(filepath.Dir(path)); err != nil {
		return err
	}
	err := s.os.link(temp, path)
	if errors.Is(err, os.ErrExist) {
		// Whoever stored it may not have come to the sync yet; a caller who finds the same content relies on it.
		return errors.Join(archive.ErrExists, s.os.syncDir(filepath.Dir(path)))
	}
	if err != nil {
		return err
	}
	return s.os.syncDir(filepath.Dir(path))
}

// makeDirs makes a directory and those above it, as far as they are missing, durable.
func (s *Store) makeDirs(dir string) error {
	if info, err := os.Stat(dir); err == nil {
		if !info.IsDir() {
			return fmt.Errorf("%s is not a directory", dir)
		}
		return nil
	}
	if parent := filepath.Dir(dir); parent != dir {
		if err := s.makeDirs(parent); err != nil {
			return err
		}
	}
	if err := s.os.mkdir(dir); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return s.os.syncDir(filepath.Dir(dir))
}

// Get implements archive.Store.
func (s *Store) Get(ctx context.Context, dst []byte, name string, offset, length int64) ([]byte, error) {
	path, err := s.path(name)
	if err == nil {
		err = ctx.Err()
	}
	out := dst
	if err == nil {
		out, err = read(dst, path, offset, length)
	}
	if err != nil {
		return dst, failed("get", name, err)
	}
	return out, nil
}

func read(dst []byte, path string, offset, length int64) (out []byte, err error) {
	file, err := os.Open(path)
	if err != nil {
		return dst, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err := file.Stat()
	if err != nil {
		return dst, err
	}
	length = min(length, info.Size()-offset)
	if offset < 0 || length <= 0 {
		return dst, nil
	}
	from := len(dst)
	dst = append(dst, make([]byte, length)...)
	if n, err := file.ReadAt(dst[from:], offset); n < int(length) {
		return dst[:from], err
	}
	return dst, nil
}

// Delete implements archive.Store.
func (s *Store) Delete(ctx context.Context, name string) error {
	path, err := s.path(name)
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = s.os.remove(path)
		if errors.Is(err, os.ErrNotExist) {
			err = nil
			path = ""
		}
	}
	if err == nil && path != "" {
		err = s.os.syncDir(filepath.Dir(path))
	}
	return failed("delete", name, err)
}

// failed makes an error of a request of err, and puts it into its class.
func failed(op, name string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, archive.ErrExists):
		err = archive.ErrExists
	case errors.Is(err, os.ErrNotExist) && op == "get":
		err = archive.ErrNotExist
	case passes(err):
		err = fmt.Errorf("%w: %w", archive.ErrUnavailable, err)
	}
	return &archive.StoreError{Op: op, Name: name, Err: err}
}

// passes reports whether a file system may answer otherwise later: no room, a network file system that went away.
func passes(err error) bool {
	for _, class := range []error{
		syscall.ENOSPC, syscall.EDQUOT, syscall.EIO, syscall.EAGAIN, syscall.EINTR, syscall.ESTALE, syscall.ETIMEDOUT,
		syscall.EHOSTDOWN, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.ECONNRESET, syscall.ECONNREFUSED, syscall.ENOTCONN,
		syscall.EMFILE, syscall.ENFILE, syscall.EBUSY, context.DeadlineExceeded,
	} {
		if errors.Is(err, class) {
			return true
		}
	}
	return false
}
