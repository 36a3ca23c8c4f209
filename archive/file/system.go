package file

import (
	"errors"
	"os"
)

// system is what a store changes on disk, step by step, so that tests can end a Put at each of them.
type system interface {
	createTemp(dir string) (tempFile, error)
	mkdir(dir string) error
	link(from, to string) error // fails with os.ErrExist if to is there
	remove(name string) error
	syncDir(dir string) error
}

// tempFile is a file that is being written.
type tempFile interface {
	Name() string
	Write(p []byte) (int, error)
	Sync() error
	Close() error
}

// realSystem is the operating system. Files and directories are their owner's alone: they hold WAL.
type realSystem struct{}

func (realSystem) createTemp(dir string) (tempFile, error) { return os.CreateTemp(dir, "put-*") }
func (realSystem) mkdir(dir string) error                  { return os.Mkdir(dir, 0o700) }
func (realSystem) link(from, to string) error              { return os.Link(from, to) }
func (realSystem) remove(name string) error                { return os.Remove(name) }

func (realSystem) syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
