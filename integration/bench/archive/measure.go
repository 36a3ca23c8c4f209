package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"walproxy/integration/pgcluster"
)

// row is what one way of archiving makes of the WAL.
type row struct {
	name      string
	stored    int64 // bytes of all files
	of        int64 // bytes of WAL in them; 0: all that there is
	push, get cost
}

// cost is what processes took. The zero value is: not measured.
type cost struct {
	wall, cpu time.Duration
	peak      int64 // resident bytes of the largest process
}

func (c *cost) add(o cost) {
	c.wall, c.cpu, c.peak = c.wall+o.wall, c.cpu+o.cpu, max(c.peak, o.peak)
}

// command runs a program and returns what it took, with what it has waited for.
func command(ctx context.Context, env []string, name string, args ...string) (cost, error) {
	cmd, err := pgcluster.Command(ctx, name, args...)
	if err != nil {
		return cost{}, err
	}
	cmd.Env = append(cmd.Env, env...)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	began := time.Now()
	if err := cmd.Run(); err != nil {
		return cost{}, fmt.Errorf("%s %v: %w: %s", filepath.Base(name), args, err, output.String())
	}
	took := time.Since(began)
	usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return cost{}, errors.New("no resource usage")
	}
	// A process begins with the peak of the one that started it (Linux fs/exec.c, setmax_mm_hiwater_rss): this one stays small.
	return cost{wall: took, cpu: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), peak: usage.Maxrss << 10}, nil
}

// pushAndGet measures both ways over all segments. push gets the path of a segment, get its name and where to write it.
func (b *bench) pushAndGet(r row, push func(path string) (cost, error), get func(file, to string) (cost, error), store string) (row, error) {
	for _, path := range b.files {
		c, err := push(path)
		if err != nil {
			return r, err
		}
		r.push.add(c)
	}
	var err error
	if r.get, err = b.getAll(get); err != nil {
		return r, err
	}
	r.stored, err = size(store)
	return r, err
}

// getAll fetches every segment, one after the other, and compares it.
func (b *bench) getAll(get func(file, to string) (cost, error)) (total cost, err error) {
	dir := filepath.Join(b.dir, "restored", "pg_wal")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return total, err
	}
	if err := pgcluster.Own(filepath.Dir(dir)); err != nil {
		return total, err
	}
	target := filepath.Join(dir, "RECOVERYXLOG")
	for _, path := range b.files {
		c, err := get(filepath.Base(path), target)
		if err == nil {
			err = same(path, target)
		}
		if err != nil {
			return total, err
		}
		total.add(c)
	}
	return total, readAheadEnds(filepath.Dir(dir))
}

// readAheadEnds waits until no process reads ahead into a directory any more.
func readAheadEnds(dir string) error {
	locks, err := filepath.Glob(filepath.Join(dir, "walproxy-read-ahead", "*", "lock"))
	for _, name := range locks {
		var lock *os.File
		if lock, err = os.Open(name); err != nil {
			return err
		}
		if err = errors.Join(syscall.Flock(int(lock.Fd()), syscall.LOCK_EX), lock.Close()); err != nil {
			return err
		}
	}
	return err
}

// same compares two files, a little of them at a time, and removes the second one.
func same(a, b string) error {
	x, err := os.Open(a)
	if err != nil {
		return err
	}
	defer func() { _ = x.Close() }() // it was only read
	y, err := os.Open(b)
	if err != nil {
		return err
	}
	defer func() { _ = y.Close() }()
	var p, q [64 << 10]byte
	for {
		n, err := io.ReadFull(x, p[:])
		m, otherErr := io.ReadFull(y, q[:])
		if !bytes.Equal(p[:n], q[:m]) {
			return fmt.Errorf("%s came back changed", filepath.Base(a))
		}
		if err != nil || otherErr != nil {
			if errors.Is(err, io.EOF) && errors.Is(otherErr, io.EOF) {
				return os.Remove(b)
			}
			return fmt.Errorf("compare %s: %w", filepath.Base(a), errors.Join(err, otherErr))
		}
	}
}

// size returns the bytes of all files in a directory.
func size(dir string) (n int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		n += info.Size()
		return err
	})
	return n, err
}
