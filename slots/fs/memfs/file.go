package memfs

import (
	"bytes"
	"io"
)

// inode is the content of a file: as the process sees it, and as it was at the last sync.
type inode struct {
	now, durable []byte
}

type file struct {
	fs    *FS
	name  string
	inode *inode
}

func (f *file) ReadAt(p []byte, off int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if off >= int64(len(f.inode.now)) {
		return 0, io.EOF
	}
	n := copy(p, f.inode.now[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *file) WriteAt(p []byte, off int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	err := f.fs.before("write", f.name, len(p))
	if err != nil {
		p = p[:len(p)/2]
	}
	if end := int(off) + len(p); end > len(f.inode.now) {
		f.inode.resize(end)
	}
	return copy(f.inode.now[off:], p), err
}

func (i *inode) resize(size int) {
	if size <= len(i.now) {
		i.now = i.now[:size:size] // what was behind is not to come back
		return
	}
	i.now = append(i.now, make([]byte, size-len(i.now))...)
}

func (f *file) Sync() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.fs.before("sync", f.name, 0); err != nil {
		return err
	}
	f.inode.durable = bytes.Clone(f.inode.now)
	return nil
}

func (f *file) Truncate(size int64) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.fs.before("truncate", f.name, 0); err != nil {
		return err
	}
	f.inode.resize(int(size))
	return nil
}

func (f *file) Size() (int64, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	return int64(len(f.inode.now)), nil
}

func (f *file) Close() error { return nil }
