// Package memfs is a file system in memory for tests. It can refuse any single change, and tell what a loss of power would
// have left of it at any moment.
package memfs

import (
	"fmt"
	"io"
	"path"
	"slices"
	"sync"

	"walproxy/slots/fs"
)

// Op is a change that is about to happen.
type Op struct {
	Step  int    // how many changes came before
	Kind  string // "create", "write", "truncate", "sync", "rename", "remove", "mkdir", "syncdir"
	Name  string
	Bytes int // of a write
}

// FS implements fs.FS. A name is relative or absolute, "/" being the root of both.
type FS struct {
	mu     sync.Mutex
	root   *dir
	locked map[string]bool
	step   int
	fault  func(Op) error
}

var _ fs.FS = (*FS)(nil)

// New returns an empty file system.
func New() *FS { return &FS{root: newDir(), locked: map[string]bool{}} }

// Inject makes every later change ask fault first. A change for which it returns an error does not happen, except that half of
// a write does; nil ends the injection.
func (m *FS) Inject(fault func(Op) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fault = fault
}

// Steps returns how many changes were attempted.
func (m *FS) Steps() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.step
}

// before is called with m.mu held before each change.
func (m *FS) before(kind, name string, bytes int) error {
	op := Op{Step: m.step, Kind: kind, Name: name, Bytes: bytes}
	m.step++
	if m.fault != nil {
		return m.fault(op)
	}
	return nil
}

// node is a *dir or an *inode.
type node any

type dir struct {
	now, durable map[string]node
	pending      []dirChange // since the last SyncDir
}

// dirChange happens as a whole or not at all.
type dirChange struct {
	set    string // name that gets a node
	node   node
	remove string // name that goes
}

func newDir() *dir { return &dir{now: map[string]node{}, durable: map[string]node{}} }

func (d *dir) change(c dirChange) {
	d.pending = append(d.pending, c)
	c.apply(d.now)
}

func (c dirChange) apply(entries map[string]node) {
	if c.remove != "" {
		delete(entries, c.remove)
	}
	if c.set != "" {
		entries[c.set] = c.node
	}
}

func notExist(op, name string) error { return fmt.Errorf("%s %s: %w", op, name, fs.ErrNotExist) }

// lookDir returns a directory, or nil.
func (m *FS) lookDir(name string) *dir {
	name = path.Clean("/" + name)
	if name == "/" {
		return m.root
	}
	parent := m.lookDir(path.Dir(name))
	if parent == nil {
		return nil
	}
	d, _ := parent.now[path.Base(name)].(*dir)
	return d
}

func (m *FS) lookFile(name string) *inode {
	parent := m.lookDir(path.Dir(name))
	if parent == nil {
		return nil
	}
	f, _ := parent.now[path.Base(name)].(*inode)
	return f
}

// Open implements fs.FS.
func (m *FS) Open(name string) (fs.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := m.lookFile(name)
	if f == nil {
		return nil, notExist("open", name)
	}
	return &file{fs: m, name: name, inode: f}, nil
}

// OpenWrite implements fs.FS.
func (m *FS) OpenWrite(name string) (fs.File, error) { return m.Open(name) }

// Create implements fs.FS.
func (m *FS) Create(name string) (fs.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	parent := m.lookDir(path.Dir(name))
	if parent == nil {
		return nil, notExist("create", name)
	}
	if err := m.before("create", name, 0); err != nil {
		return nil, err
	}
	f := m.lookFile(name)
	if f == nil {
		f = &inode{}
		parent.change(dirChange{set: path.Base(name), node: f})
	}
	f.now = nil
	return &file{fs: m, name: name, inode: f}, nil
}

// Rename implements fs.FS, within one directory.
func (m *FS) Rename(oldName, newName string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := m.lookFile(oldName)
	if f == nil {
		return notExist("rename", oldName)
	}
	if path.Dir(oldName) != path.Dir(newName) {
		return fmt.Errorf("rename %s to %s: not in one directory", oldName, newName)
	}
	if err := m.before("rename", newName, 0); err != nil {
		return err
	}
	m.lookDir(path.Dir(oldName)).change(dirChange{set: path.Base(newName), node: f, remove: path.Base(oldName)})
	return nil
}

// Remove implements fs.FS.
func (m *FS) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	parent := m.lookDir(path.Dir(name))
	if parent == nil || parent.now[path.Base(name)] == nil {
		return notExist("remove", name)
	}
	if d, ok := parent.now[path.Base(name)].(*dir); ok && len(d.now) > 0 {
		return fmt.Errorf("remove %s: directory not empty", name)
	}
	if err := m.before("remove", name, 0); err != nil {
		return err
	}
	parent.change(dirChange{remove: path.Base(name)})
	return nil
}

// MkdirAll implements fs.FS.
func (m *FS) MkdirAll(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mkdirAll(path.Clean("/" + name))
}

func (m *FS) mkdirAll(name string) error {
	if m.lookDir(name) != nil {
		return nil
	}
	if err := m.mkdirAll(path.Dir(name)); err != nil {
		return err
	}
	if err := m.before("mkdir", name, 0); err != nil {
		return err
	}
	m.lookDir(path.Dir(name)).change(dirChange{set: path.Base(name), node: newDir()})
	return nil
}

// ReadDir implements fs.FS.
func (m *FS) ReadDir(name string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.lookDir(name)
	if d == nil {
		return nil, notExist("read directory", name)
	}
	names := make([]string, 0, len(d.now))
	for n := range d.now {
		names = append(names, n)
	}
	slices.Sort(names)
	return names, nil
}

// SyncDir implements fs.FS.
func (m *FS) SyncDir(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.lookDir(name)
	if d == nil {
		return notExist("sync directory", name)
	}
	if err := m.before("syncdir", name, 0); err != nil {
		return err
	}
	for _, c := range d.pending {
		c.apply(d.durable)
	}
	d.pending = nil
	return nil
}

type lock struct {
	fs   *FS
	name string
}

// Lock implements fs.FS. The lock is no file and takes no step.
func (m *FS) Lock(name string) (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.locked[name] {
		return nil, fmt.Errorf("lock %s: %w", name, fs.ErrLocked)
	}
	m.locked[name] = true
	return &lock{fs: m, name: name}, nil
}

func (l *lock) Close() error {
	l.fs.mu.Lock()
	defer l.fs.mu.Unlock()
	l.fs.locked[l.name] = false
	return nil
}
