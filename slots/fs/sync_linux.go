package fs

import (
	"errors"
	"os"
	"syscall"
)

// Sync implements File with fdatasync(2): that the file's times have changed is no reason to write its inode.
func (f osFile) Sync() error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var synced error
	if err := conn.Control(func(fd uintptr) {
		for synced = syscall.EINTR; errors.Is(synced, syscall.EINTR); {
			synced = syscall.Fdatasync(int(fd))
		}
	}); err != nil {
		return err
	}
	if synced != nil {
		return &os.PathError{Op: "fdatasync", Path: f.Name(), Err: synced}
	}
	return nil
}
