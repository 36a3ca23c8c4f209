// Package fs is the narrow view of a file system that the spool and the slot store write through. The package has the
// operating system's implementation; memfs beside it holds one in memory that can be crashed at every step.
package fs

import (
	"errors"
	"io"
	"os"
)

// ErrNotExist is the class of errors that say a file or directory is not there.
var ErrNotExist = os.ErrNotExist

// ErrLocked says that another process holds the lock.
var ErrLocked = errors.New("locked by another process")

// FS is a file system. Implementations are safe for concurrent use; names are slash-separated paths.
//
// Durability: what was written to a file survives a loss of power after File.Sync; that a name exists, points to another
// file or is gone survives after SyncDir of its directory. Everything survives the death of the process alone.
type FS interface {
	// Open opens an existing file for reading.
	Open(name string) (File, error)
	// OpenWrite opens an existing file for reading and writing.
	OpenWrite(name string) (File, error)
	// Create makes an empty file for reading and writing; one that exists is emptied.
	Create(name string) (File, error)
	// Rename moves a file within a file system; one that has the new name is replaced atomically.
	Rename(oldName, newName string) error
	// Remove removes a file or an empty directory.
	Remove(name string) error
	// MkdirAll makes a directory and its parents, as far as they are missing.
	MkdirAll(dir string) error
	// ReadDir returns the names of a directory's entries in ascending order.
	ReadDir(dir string) ([]string, error)
	// SyncDir makes the directory's entries durable.
	SyncDir(dir string) error
	// Lock takes the exclusive lock of a file, which it makes if it is missing. It does not wait: ErrLocked. The lock ends
	// with Close or with the process.
	Lock(name string) (io.Closer, error)
}

// File is an open file. Reads and writes name their offset, so that any number of readers share it with a writer. A file
// stays readable after its name was removed or replaced.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Sync makes the content and length durable.
	Sync() error
	// Truncate sets the length in bytes.
	Truncate(size int64) error
	// Size returns the length in bytes.
	Size() (int64, error)
}
