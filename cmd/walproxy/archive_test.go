package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"walproxy/archive"
	"walproxy/archive/file"
)

// `archive get` says 1 only for what a working archive does not hold: a server takes that, and any other code up to 125, for the
// end of the archive.
func TestArchiveGetExitCodes(t *testing.T) {
	dir := t.TempDir()
	empty, working, damaged := filepath.Join(dir, "empty"), filepath.Join(dir, "working"), filepath.Join(dir, "damaged")
	_, err := archive.Create(context.Background(), file.New(working), archive.Identity{SystemID: 1, Major: 15, SegmentSize: 1 << 24, WALBlockSize: 8192})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(damaged, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(damaged, "identity"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "RECOVERYXLOG")
	const segment = "000000010000000000000001"
	for line, want := range map[string]int{
		"--store file://" + working + " " + segment + " " + out:        exitFailure,
		"--store file://" + working + " 00000002.history " + out:       exitFailure,
		"--store file://" + empty + " " + segment + " " + out:          exitLook,
		"--store file://" + damaged + " " + segment + " " + out:        exitLook,
		"--store file://" + working + " " + segment:                    exitLook,
		"--store file://" + working + " --what " + segment + " " + out: exitLook,
		"--store gs://bucket/x " + segment + " " + out:                 exitLook,
		segment + " " + out: exitLook,
		"--config " + dir + "/none.yaml " + segment + " " + out:               exitLook,
		"--store s3://wal/x?endpoint=http://host/path " + segment + " " + out: exitLook,
	} {
		var stdout, stderr bytes.Buffer
		got := run(append([]string{"archive", "get"}, strings.Fields(line)...), &stdout, &stderr)
		if got != want || stderr.Len() == 0 {
			t.Errorf("archive get %s: exit code %d, want %d: %s", line, got, want, stderr.String())
		}
		if _, err := os.Stat(out); err == nil {
			t.Errorf("archive get %s left a file", line)
		}
	}
	if exitLook <= 125 {
		t.Error("a server takes exit codes up to 125 for the end of the archive")
	}
}
