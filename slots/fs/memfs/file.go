package memfs

import (
	"bytes"
	"errors"
	"io"
)

// ErrLost is the class of faults of "sync" after which the system takes what it could not write for written, as Linux does: a later
// sync that succeeds leaves that out, unless it was written anew.
var ErrLost = errors.New("input/output error of which the system tells once")

// pageBytes is how much the system takes for changed when any of it is written.
const pageBytes = 4096

// inode is the content of a file: as the process sees it, and as it was at the last sync.
type inode struct {
	now, durable []byte
	lost         map[int]bool // numbers of pages that the system takes for durable although they are not
}

// lose takes the pages that are not durable for durable.
func (i *inode) lose() {
	if i.lost == nil {
		i.lost = map[int]bool{}
	}
	for at := 0; at < len(i.now); at += pageBytes {
		end := min(at+pageBytes, len(i.now))
		if end > len(i.durable) || !bytes.Equal(i.now[at:end], i.durable[at:end]) {
			i.lost[at/pageBytes] = true
		}
	}
}

// sync makes durable what the system does not take for durable.
func (i *inode) sync() {
	durable := bytes.Clone(i.now)
	for page := range i.lost {
		if at := page * pageBytes; at < len(durable) {
			to := durable[at:min(at+pageBytes, len(durable))]
			clear(to)
			copy(to, i.durable[min(at, len(i.durable)):])
		}
	}
	i.durable = durable
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
	for page := int(off) / pageBytes; page*pageBytes < int(off)+len(p); page++ {
		delete(f.inode.lost, page)
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
		if errors.Is(err, ErrLost) {
			f.inode.lose()
		}
		return err
	}
	f.inode.sync()
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
