package file

import (
	"path/filepath"
	"testing"

	"walproxy/archive"
	"walproxy/archive/storetest"
)

func TestStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "below")
	storetest.Run(t, func(*testing.T) archive.Store { return New(dir) })
}
