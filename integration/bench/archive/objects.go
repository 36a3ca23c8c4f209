package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"walproxy/archive"
	"walproxy/archive/file"
)

// object is a WAL object and its length.
type object struct {
	archive.Span
	bytes int64
}

// objectsOf lists the WAL objects of an archive in a directory.
func objectsOf(ctx context.Context, dir string) (all []object, err error) {
	for info, err := range file.New(dir).List(ctx, archive.WALPrefix(), "") {
		if err != nil {
			return nil, err
		}
		if s, ok := archive.ParseWALName(info.Name); ok {
			all = append(all, object{s, info.Bytes})
		}
	}
	return all, nil
}

// peak returns the most memory that a running process has had, in bytes.
func peak(pid int) (int64, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }() // it was only read
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "VmHWM:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(text), "kB")), 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("no peak of memory for process %d", pid)
}
