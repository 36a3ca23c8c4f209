package fs_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"syscall"
	"testing"

	"walproxy/slots/fs"
	"walproxy/slots/fs/memfs"
)

// TestConformance holds both implementations to the same behaviour.
func TestConformance(t *testing.T) {
	for name, fsys := range map[string]fs.FS{"os": fs.OS{}, "memory": memfs.New()} {
		t.Run(name, func(t *testing.T) {
			dir := path.Join(t.TempDir(), "a", "b")
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			missing := func(err error) {
				t.Helper()
				if !errors.Is(err, fs.ErrNotExist) {
					t.Fatalf("got error %v, want ErrNotExist", err)
				}
			}
			_, err := fsys.ReadDir(dir)
			missing(err)
			must(errors.Join(fsys.MkdirAll(dir), fsys.MkdirAll(dir), fsys.SyncDir(dir)))
			_, err = fsys.Open(dir + "/x")
			missing(err)
			_, err = fsys.OpenWrite(dir + "/x")
			missing(err)
			missing(fsys.Remove(dir + "/x"))
			missing(fsys.Rename(dir+"/x", dir+"/y"))
			must(fs.WriteFile(fsys, dir+"/x", []byte("one")))
			old, err := fsys.Open(dir + "/x")
			must(err)
			must(fs.WriteFile(fsys, dir+"/x", []byte("other")))
			content(t, fsys, dir+"/x", "other")
			if got := make([]byte, 3); readAt(old, got) != nil || string(got) != "one" {
				t.Fatalf("the replaced file reads %q", got)
			}
			must(old.Close())
			patch(t, fsys, dir+"/x")
			content(t, fsys, dir+"/x", "oXh\x00\x00Y")
			names, err := fsys.ReadDir(dir)
			must(err)
			if fmt.Sprint(names) != "[x]" {
				t.Fatalf("names %v", names)
			}
			if fsys.Remove(dir) == nil {
				t.Fatal("a directory with a file in it was removed")
			}
			must(errors.Join(fsys.Remove(dir+"/x"), fsys.Remove(dir)))
			locks(t, fsys, path.Dir(dir)+"/lock")
		})
	}
}

func readAt(f fs.File, b []byte) error {
	_, err := f.ReadAt(b, 0)
	return err
}

// patch overwrites, truncates and extends a file that holds "other".
func patch(t *testing.T, fsys fs.FS, name string) {
	t.Helper()
	f, err := fsys.OpenWrite(name)
	if err != nil {
		t.Fatal(err)
	}
	_, err1 := f.WriteAt([]byte("X"), 1)
	err2 := f.Truncate(3)
	_, err3 := f.WriteAt([]byte("Y"), 5)
	size, err4 := f.Size()
	n, err5 := f.ReadAt(make([]byte, 9), 2)
	if err := errors.Join(err1, err2, err3, err4, f.Sync(), f.Close()); err != nil || size != 6 || n != 4 || !errors.Is(err5, io.EOF) {
		t.Fatalf("size %d, %d bytes read behind 2, %v, %v", size, n, err, err5)
	}
}

func content(t *testing.T, fsys fs.FS, name, want string) {
	t.Helper()
	got, err := fs.ReadFile(fsys, name, int64(len(want)))
	if err != nil || string(got) != want {
		t.Fatalf("%s holds %q, %v; want %q", name, got, err, want)
	}
	if _, err := fs.ReadFile(fsys, name, int64(len(want))-1); err == nil {
		t.Fatal("a file above the limit was read")
	}
}

func locks(t *testing.T, fsys fs.FS, name string) {
	t.Helper()
	held, err := fsys.Lock(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fsys.Lock(name); !errors.Is(err, fs.ErrLocked) {
		t.Fatalf("second lock: %v", err)
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := fsys.Lock(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestWriteFileIsAtomic loses the power at each step of a replacement.
func TestWriteFileIsAtomic(t *testing.T) {
	lost := errors.New("power lost")
	seen := map[string]int{}
	for at := 0; ; at++ {
		disk := memfs.New()
		if err := errors.Join(disk.MkdirAll("d"), disk.SyncDir("/"), fs.WriteFile(disk, "d/f", []byte("old content"))); err != nil {
			t.Fatal(err)
		}
		start := disk.Steps()
		disk.Inject(func(op memfs.Op) error {
			if op.Step >= start+at {
				return lost
			}
			return nil
		})
		err := fs.WriteFile(disk, "d/f", []byte("new"))
		for seed := range uint64(30) {
			got, readErr := fs.ReadFile(disk.Crash(rand.New(rand.NewPCG(seed, 1))), "d/f", 100)
			if readErr != nil || string(got) != "new" && (string(got) != "old content" || err == nil) {
				t.Fatalf("crash at step %d (%v): %q, %v", at, err, got, readErr)
			}
			seen[string(got)]++
		}
		if err == nil {
			break
		}
	}
	if seen["new"] == 0 || seen["old content"] == 0 {
		t.Fatalf("crashes left %v", seen)
	}
}

// TestFaultLeavesNoTemporaryFile: after a full disk nothing lies around.
func TestFaultLeavesNoTemporaryFile(t *testing.T) {
	full := errors.New("no space left on device")
	for _, kind := range []string{"write", "sync", "rename"} {
		disk := memfs.New()
		disk.Inject(func(op memfs.Op) error {
			if op.Kind == kind {
				return full
			}
			return nil
		})
		if err := fs.WriteFile(disk, "f", []byte("content")); !errors.Is(err, full) {
			t.Fatalf("%s: %v", kind, err)
		}
		if names, err := disk.ReadDir("/"); err != nil || len(names) != 0 {
			t.Fatalf("%s: left are %v, %v", kind, names, err)
		}
	}
}

// TestOthersCannotRead: whatever the umask, files and directories of the node are its own.
func TestOthersCannotRead(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	dir := filepath.Join(t.TempDir(), "data")
	file, lock := filepath.Join(dir, "deep", "f"), filepath.Join(dir, "lock")
	if err := errors.Join(fs.OS{}.MkdirAll(filepath.Dir(file)), fs.WriteFile(fs.OS{}, file, []byte("WAL"))); err != nil {
		t.Fatal(err)
	}
	locked, err := fs.OS{}.Lock(lock)
	if err != nil {
		t.Fatal(err)
	}
	defer locked.Close()
	for name, want := range map[string]os.FileMode{dir: 0o700, filepath.Dir(file): 0o700, file: 0o600, lock: 0o600} {
		info, err := os.Stat(name)
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want %v", name, info, err, want)
		}
	}
}
