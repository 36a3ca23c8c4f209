package file

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"walproxy/archive"
)

var (
	errCrash   = errors.New("crashed")
	errNoSpace = syscall.ENOSPC
)

// crashing is the operating system until so many steps were done; then nothing happens any more.
type crashing struct {
	realSystem
	left  int
	steps []string
}

func (c *crashing) step(format string, args ...any) error {
	if c.left == 0 {
		return errCrash
	}
	c.left--
	c.steps = append(c.steps, fmt.Sprintf(format, args...))
	return nil
}

func (c *crashing) createTemp(dir string) (tempFile, error) {
	if err := c.step("create"); err != nil {
		return nil, err
	}
	f, err := c.realSystem.createTemp(dir)
	return &crashingFile{f, c}, err
}

func (c *crashing) mkdir(dir string) error {
	if err := c.step("mkdir %s", filepath.Base(dir)); err != nil {
		return err
	}
	return c.realSystem.mkdir(dir)
}

func (c *crashing) link(from, to string) error {
	if err := c.step("link %s", filepath.Base(to)); err != nil {
		return err
	}
	return c.realSystem.link(from, to)
}

func (c *crashing) remove(name string) error {
	if err := c.step("remove"); err != nil {
		return err
	}
	return c.realSystem.remove(name)
}

func (c *crashing) syncDir(dir string) error {
	if err := c.step("sync %s", filepath.Base(dir)); err != nil {
		return err
	}
	return c.realSystem.syncDir(dir)
}

type crashingFile struct {
	tempFile
	c *crashing
}

func (f *crashingFile) Write(p []byte) (int, error) {
	if err := f.c.step("write"); err != nil {
		n, _ := f.tempFile.Write(p[:len(p)/2]) // torn
		return n, err
	}
	return f.tempFile.Write(p)
}

func (f *crashingFile) Sync() error {
	if err := f.c.step("fsync"); err != nil {
		return err
	}
	return f.tempFile.Sync()
}

// A Put that ends at any step leaves the whole object or none, and the next Put succeeds or finds it.
func TestPutCrash(t *testing.T) {
	ctx, b := context.Background(), bytes.Repeat([]byte("0123456789"), 250_000) // several writes
	for steps := 0; ; steps++ {
		dir := filepath.Join(t.TempDir(), "archive")
		c := &crashing{left: steps}
		s := &Store{dir: dir, os: c}
		err := s.Put(ctx, "wal/x", bytes.NewReader(b), int64(len(b)))
		if err != nil && !errors.Is(err, errCrash) {
			t.Fatal(err)
		}
		after := New(dir)
		got, getErr := after.Get(ctx, nil, "wal/x", 0, 1<<30)
		if !errors.Is(getErr, archive.ErrNotExist) && !bytes.Equal(got, b) {
			t.Fatalf("after %q: %d bytes, %v", c.steps, len(got), getErr)
		}
		listed := 0
		for info, err := range after.List(ctx, "", "") {
			if listed++; err != nil || info.Name != "wal/x" || info.Bytes != int64(len(b)) {
				t.Fatalf("after %q: %+v, %v", c.steps, info, err)
			}
		}
		if (listed == 1) != (getErr == nil) {
			t.Fatalf("after %q: %d objects listed, get: %v", c.steps, listed, getErr)
		}
		again := after.Put(ctx, "wal/x", bytes.NewReader(b), int64(len(b)))
		if getErr == nil && !errors.Is(again, archive.ErrExists) || getErr != nil && again != nil {
			t.Fatalf("put again after %q: %v", c.steps, again)
		}
		if err == nil {
			checkOrder(t, c.steps)
			return
		}
	}
}

// checkOrder looks at what a power loss sees: content before name, name before success, and each directory in its parent.
func checkOrder(t *testing.T, steps []string) {
	t.Helper()
	order := []string{"mkdir archive", "mkdir .tmp", "sync archive", "create", "write", "fsync", "mkdir wal", "sync archive", "link x", "sync wal"}
	at := 0
	for _, want := range order {
		i := slices.Index(steps[at:], want)
		if i < 0 {
			t.Fatalf("%q is not in its place among %q", want, steps)
		}
		at += i
	}
	if n := strings.Count(strings.Join(steps, "\n"), "write"); n < 3 {
		t.Fatalf("only %d writes", n)
	}
}

// A file system that went away is no answer about objects.
func TestErrorClasses(t *testing.T) {
	ctx, dir := context.Background(), t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "wal"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := New(dir)
	if _, err := s.Get(ctx, nil, "wal/x", 0, 1); err == nil || errors.Is(err, archive.ErrNotExist) {
		t.Errorf("a file where a directory should be: %v", err)
	}
	if err := s.Put(ctx, "wal/x", bytes.NewReader(nil), 0); err == nil || errors.Is(err, archive.ErrExists) || archive.Retryable(err) {
		t.Errorf("a file where a directory should be: %v", err)
	}
	full := &Store{dir: dir, os: &fullDisk{}}
	if err := full.Put(ctx, "x", bytes.NewReader([]byte("x")), 1); !archive.Retryable(err) {
		t.Errorf("a full disk: %v", err)
	}
}

// fullDisk has no room.
type fullDisk struct{ realSystem }

func (fullDisk) createTemp(dir string) (tempFile, error) {
	return nil, &os.PathError{Op: "open", Path: dir, Err: errNoSpace}
}
