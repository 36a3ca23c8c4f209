package pgcluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
)

// Templates keeps data directories as initdb left them, one for each kind of cluster: a copy takes a tenth of the CPU time of
// another initdb. Each copy has a system identifier of its own. Safe for concurrent use.
type Templates struct {
	dir    string
	mu     sync.Mutex
	byKind map[string]func() error // makes the template at its first call
}

// NewTemplates returns an empty set, whose directory Close removes.
func NewTemplates() (*Templates, error) {
	dir, err := TempDir("pgtemplates-")
	return &Templates{dir: dir, byKind: map[string]func() error{}}, err
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
	if _, err := RunAs(ctx, "cp", "-a", from, c.DataDir); err != nil {
		return err
	}
	return identify(c.DataDir, rand.Uint64()>>1)
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
