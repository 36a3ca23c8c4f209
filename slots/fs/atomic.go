package fs

import (
	"errors"
	"fmt"
	"io"
	"path"
)

// TempSuffix ends the names of files that are being written. One that is found at start is the leftover of a crash.
const TempSuffix = ".tmp"

// WriteFile gives name the given content so that after a crash at any point the file has either its old content or the
// new one, never a mixture, and the new one for certain once WriteFile has returned nil. One call per name at a time.
//
// Order: write name+TempSuffix, fsync it, rename it to name, fsync the directory.
func WriteFile(fsys FS, name string, content []byte) error {
	temp := name + TempSuffix
	if err := writeSynced(fsys, temp, content); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", temp, err), removeExisting(fsys, temp))
	}
	if err := fsys.Rename(temp, name); err != nil {
		return errors.Join(fmt.Errorf("replace %s: %w", name, err), removeExisting(fsys, temp))
	}
	if err := fsys.SyncDir(path.Dir(name)); err != nil {
		return fmt.Errorf("sync directory of %s: %w", name, err)
	}
	return nil
}

func writeSynced(fsys FS, name string, content []byte) error {
	f, err := fsys.Create(name)
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(content, 0); err != nil {
		return errors.Join(err, f.Close())
	}
	return errors.Join(f.Sync(), f.Close())
}

func removeExisting(fsys FS, name string) error {
	if err := fsys.Remove(name); err != nil && !errors.Is(err, ErrNotExist) {
		return err
	}
	return nil
}

// ReadFile returns the content of a file of at most limit bytes.
func ReadFile(fsys FS, name string, limit int64) (content []byte, err error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > limit {
		return nil, fmt.Errorf("read %s: %d bytes exceed the limit of %d", name, size, limit)
	}
	content = make([]byte, size)
	if n, err := f.ReadAt(content, 0); err != nil && !(errors.Is(err, io.EOF) && int64(n) == size) {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return content, nil
}
