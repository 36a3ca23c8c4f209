package pgcluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// pidFileMemoryLine is the line of postmaster.pid that holds key and id of the server's System V shared memory, counted from 0
// (src/include/utils/pidfile.h: LOCK_FILE_LINE_SHMEM_KEY).
const pidFileMemoryLine = 6

// removeMemory removes the System V shared memory that a killed server left behind: the system holds few thousand of them, and
// nothing but the next start in the same data directory would remove it. A server that removed its own, as one that was
// stopped does, is no error, and memory that somebody is attached to or that has another key is left alone.
func (c *Cluster) removeMemory() error {
	file, err := os.ReadFile(filepath.Join(c.DataDir, "postmaster.pid"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	lines := strings.Split(string(file), "\n")
	if len(lines) <= pidFileMemoryLine {
		return nil
	}
	var key uint32
	var id int
	if _, err := fmt.Sscan(lines[pidFileMemoryLine], &key, &id); err != nil {
		return nil // killed before it had any
	}
	var found unix.SysvShmDesc
	if _, err := unix.SysvShmCtl(id, unix.IPC_STAT, &found); err != nil || found.Nattch > 0 || uint32(found.Perm.Key) != key {
		return nil // gone, or not its own
	}
	if _, err := unix.SysvShmCtl(id, unix.IPC_RMID, nil); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("remove shared memory %d: %w", id, err)
	}
	return nil
}
