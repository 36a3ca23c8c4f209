package catalog

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"walproxy/archive"
	"walproxy/protocol"
)

// A bit that is changed anywhere in an object is found, wherever it lies, and no other WAL than what was stored is ever read.
func TestEveryPartIsChecked(t *testing.T) {
	f := newFixture(t)
	f.put(1, 1, 3)
	c := f.load()
	span := archive.Span{Timeline: 1, Start: mib, End: 2 * mib}
	path := filepath.Join(f.dir, filepath.FromSlash(span.Name()))
	whole, err := os.ReadFile(path)
	f.must(err)
	offsets := []int{len(whole) - 1, len(whole) - 5, len(whole) - 25}
	for i := 0; i < 260; i += 3 { // header, index, the window's header, the first frame's
		offsets = append(offsets, i)
	}
	for i := 260; i < len(whole); i += 50_021 {
		offsets = append(offsets, i)
	}
	for _, at := range offsets {
		damaged := bytes.Clone(whole)
		damaged[at] ^= 1 << (at % 8)
		f.must(os.WriteFile(path, damaged, 0o600))
		found, err := Verify(f.ctx, f.a, c, VerifyOptions{})
		if err != nil || len(found) != 1 || found[0].Timeline != 1 || found[0].To != span.End {
			t.Errorf("byte %d of %d changed: %v, %v", at, len(whole), found, err)
		}
		err = f.a.NewReader().Read(f.ctx, 1, mib, 2*mib, func(lsn protocol.LSN, wal []byte) error {
			if !bytes.Equal(wal, walOf(1, mib)[lsn-mib:][:len(wal)]) {
				t.Errorf("byte %d changed: other WAL at %s", at, lsn)
			}
			return nil
		})
		if err == nil || errors.Is(err, archive.ErrNotExist) {
			t.Errorf("byte %d changed: read with %v", at, err)
		}
	}
	f.must(os.Truncate(path, int64(len(whole)/2)))
	if found, err := Verify(f.ctx, f.a, c, VerifyOptions{}); err != nil || len(found) != 1 {
		t.Errorf("cut off: %v, %v", found, err)
	}
}
