package pgcluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
)

// Templates keeps data directories as initdb left them, one for each kind of cluster: a copy takes a fraction of the CPU time of
// another initdb. Each copy has a system identifier of its own. Safe for concurrent use.
//
// Directories that clusters are done with are kept too, some of them, and copied over: a file system that deletes and makes a thousand
// files each time spends more time on that than all servers.
type Templates struct {
	dir    string
	mu     sync.Mutex
	byKind map[string]func() error // makes the template at its first call
	spare  []string                // data directories that nobody uses
	names  int                     // given to spare ones
}

const maxSpare = 6

// NewTemplates returns an empty set, whose directory Close removes.
func NewTemplates() (*Templates, error) {
	dir, err := TempDir("pgtemplates-")
	return &Templates{dir: dir, byKind: map[string]func() error{}}, err
}

// Tests is a package's tests, a *testing.M.
type Tests interface{ Run() int }

// WithTemplates returns the tests of a package that set is for: Run makes Templates before them and removes these behind them.
func WithTemplates(tests Tests, set **Templates) Tests { return &templated{tests, set} }

type templated struct {
	tests Tests
	set   **Templates
}

func (t *templated) Run() (code int) {
	made, err := NewTemplates()
	if err == nil {
		*t.set = made
		code = t.tests.Run()
		err = made.Close()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "templates:", err)
		return 1
	}
	return code
}

// Close removes the templates. Clusters made of them stay.
func (t *Templates) Close() error { return os.RemoveAll(t.dir) }

// copyTo makes the data directory of c.
func (t *Templates) copyTo(ctx context.Context, c *Cluster, initdb string) error {
	kind := fmt.Sprintf("%d-%d-%t", c.Major, c.Options.SegmentMiB, c.Options.Checksums)
	from := filepath.Join(t.dir, kind)
	t.mu.Lock()
	create := t.byKind[kind]
	if create == nil {
		create = sync.OnceValue(func() error {
			_, err := RunAs(context.WithoutCancel(ctx), initdb, c.Options.initdbArgs(from)...)
			return err
		})
		t.byKind[kind] = create
	}
	t.mu.Unlock()
	if err := create(); err != nil {
		return err
	}
	if err := t.copyDir(ctx, from, c.DataDir); err != nil {
		return err
	}
	return identify(c.DataDir, rand.Uint64()>>1)
}

// copyDir copies a data directory of a server that does not run to one that does not exist. Without Templates (nil) too.
func (t *Templates) copyDir(ctx context.Context, from, to string) error {
	if !t.reuse(to) {
		_, err := RunAs(ctx, "cp", "-a", from, to)
		return err
	}
	if err := removeOthers(from, to); err != nil {
		return err
	}
	_, err := RunAs(ctx, "cp", "-a", from+"/.", to)
	return err
}

// keep takes over a data directory whose server does not run, if there is still room for one. The caller removes it if it is there
// afterwards.
func (t *Templates) keep(dataDir string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.spare) == maxSpare {
		return
	}
	t.names++
	spare := filepath.Join(t.dir, fmt.Sprintf("spare-%d", t.names))
	if os.Rename(dataDir, spare) == nil { // else it is on another file system, or not there
		t.spare = append(t.spare, spare)
	}
}

// reuse moves a spare directory to where a data directory is wanted. It reports whether there was one.
func (t *Templates) reuse(dataDir string) bool {
	if t == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.spare) > 0 {
		last := len(t.spare) - 1
		spare := t.spare[last]
		t.spare = t.spare[:last]
		if os.Rename(spare, dataDir) == nil {
			return true
		}
	}
	return false
}

// removeOthers removes what from does not have from the directory to, and what is of another kind there.
func removeOthers(from, to string) error {
	return filepath.WalkDir(to, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(to, path)
		if err != nil {
			return err
		}
		info, err := os.Lstat(filepath.Join(from, name))
		if err == nil && info.Mode().Type() == entry.Type() || err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.RemoveAll(path); err != nil || !entry.IsDir() {
			return err
		}
		return fs.SkipDir
	})
}

// identify gives a data directory that no server ran on another system identifier: in pg_control, which begins with it and has a
// CRC-32C behind its fields, and in the first page of each segment.
//
// Source: PostgreSQL src/include/catalog/pg_control.h, ControlFileData; access/xlog_internal.h, XLogLongPageHeaderData (13-18).
func identify(dataDir string, id uint64) error {
	control := filepath.Join(dataDir, "global", "pg_control")
	content, err := os.ReadFile(control)
	if err != nil {
		return err
	}
	table := crc32.MakeTable(crc32.Castagnoli)
	for at := 8; at+4 <= min(len(content), 512); at += 4 { // the fields, and so the place of the CRC, differ by version
		if crc32.Checksum(content[:at], table) != binary.NativeEndian.Uint32(content[at:]) {
			continue
		}
		old := binary.NativeEndian.Uint64(content)
		binary.NativeEndian.PutUint64(content, id)
		binary.NativeEndian.PutUint32(content[at:], crc32.Checksum(content[:at], table))
		if err := os.WriteFile(control, content, 0o600); err != nil {
			return err
		}
		return identifySegments(dataDir, old, id)
	}
	return fmt.Errorf("no CRC found in %s", control)
}

func identifySegments(dataDir string, old, id uint64) error {
	const systemID = 24 // xlp_sysid
	names, err := filepath.Glob(filepath.Join(dataDir, "pg_wal", "0000*"))
	if err != nil {
		return err
	}
	for _, name := range names {
		segment, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		var field [8]byte
		if _, err = segment.ReadAt(field[:], systemID); err == nil && binary.NativeEndian.Uint64(field[:]) == old {
			_, err = segment.WriteAt(binary.NativeEndian.AppendUint64(nil, id), systemID)
		}
		if err := errors.Join(err, segment.Close()); err != nil {
			return err
		}
	}
	return nil
}
