package command

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"walproxy/archive"
	"walproxy/archive/file"
	"walproxy/protocol"
	"walproxy/protocol/wal"
	"walproxy/recompress"
)

const (
	segmentSize = 1 << 20
	pageSize    = 8192
	systemID    = 7300000000000000001
)

// fast is enough for tests of everything but the codec.
var fast = recompress.Options{Codec: recompress.Zstd}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// segmentBytes returns a segment: pages with good headers, whose timeline is copied up to fork and tli's behind it.
func segmentBytes(tli protocol.Timeline, start, fork protocol.LSN) []byte {
	return segmentOf(segmentSize, tli, start, fork)
}

// segmentOf is segmentBytes for segments of any size.
func segmentOf(size uint32, tli protocol.Timeline, start, fork protocol.LSN) []byte {
	b := make([]byte, 0, size)
	for at := start; at < start+protocol.LSN(size); at += pageSize {
		h := wal.PageHeader{Version: wal.PG15, Timeline: tli, Addr: at, RemLen: 1 << 20, Flags: 1}
		if at < fork {
			h.Timeline = tli - 1
		}
		if at == start {
			h.Flags |= 2 // long header
			h.SystemID, h.SegmentSize, h.PageSize = systemID, size, pageSize
		}
		b = h.Append(b)
		for lsn := start + protocol.LSN(len(b)); lsn < at+pageSize; lsn++ {
			owner := tli
			if lsn < fork {
				owner--
			}
			b = append(b, byte(uint64(lsn)/32*0x9e3779b97f4a7c15>>40)&0x3f+byte(owner))
		}
	}
	return b
}

// pgWAL is a server's pg_wal.
type pgWAL struct {
	t   testing.TB
	dir string
}

func newPGWAL(t testing.TB) pgWAL {
	dir := filepath.Join(t.TempDir(), "pg_wal")
	must(t, os.Mkdir(dir, 0o700))
	return pgWAL{t, dir}
}

func (p pgWAL) path(name string) string { return filepath.Join(p.dir, name) }

func (p pgWAL) write(name string, b []byte) string {
	p.t.Helper()
	must(p.t, os.WriteFile(p.path(name), b, 0o600))
	return p.path(name)
}

// segments writes count whole segments of a timeline from start on and returns their names.
func (p pgWAL) segments(tli protocol.Timeline, start protocol.LSN, count int) (names []string) {
	for i := range count {
		lsn := start + protocol.LSN(i*segmentSize)
		names = append(names, protocol.SegmentName(tli, lsn, segmentSize))
		p.write(names[i], segmentBytes(tli, lsn, 0))
	}
	return names
}

// push pushes files that are not in the archive yet.
func (p pgWAL) push(s archive.Store, names ...string) {
	p.t.Helper()
	for _, name := range names {
		if done, err := Push(context.Background(), s, p.path(name), fast); err != nil || done.Existed {
			p.t.Fatalf("push %s: %+v, %v", name, done, err)
		}
	}
}

func newStore(t testing.TB) archive.Store { return file.New(filepath.Join(t.TempDir(), "archive")) }

// gets hands out a file and compares it.
func gets(t testing.TB, s archive.Store, name string, want []byte, o GetOptions) Got {
	t.Helper()
	path := filepath.Join(t.TempDir(), "out")
	got, err := Get(context.Background(), s, name, path, o)
	must(t, err)
	b, err := os.ReadFile(path)
	must(t, err)
	if !bytes.Equal(b, want) {
		t.Fatalf("%s: %d bytes came out, want %d, or others", name, len(b), len(want))
	}
	return got
}

// only fails unless the directory holds nothing but these files.
func only(t testing.TB, dir string, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	var found []string
	for _, e := range entries {
		found = append(found, e.Name())
	}
	if fmt.Sprint(found) != fmt.Sprint(names) {
		t.Fatalf("%s holds %v, want %v", dir, found, names)
	}
}
