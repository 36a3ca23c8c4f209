package node

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"walproxy/cmd/walproxy/internal/config"
	"walproxy/slots"
)

// open opens a node that is never run.
func open(dir string) (*Node, error) {
	cfg := config.Default()
	cfg.Data.Dir, cfg.Upstream.Conninfo = dir, "host=127.0.0.1 port=1 user=u"
	return Open(cfg, zap.NewNop(), prometheus.NewRegistry())
}

// A data directory whose slots cannot be read is an error that says what to do, and is free again afterwards.
func TestOpenWithDamagedSlots(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "slots")
	if err := os.WriteFile(file, []byte("walproxy slots 1 crc32c=00000000\n{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	n, err := open(dir)
	var damaged *slots.CorruptError
	if n != nil || !errors.As(err, &damaged) || damaged.File != file {
		t.Fatalf("got %v, %v", n, err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	n, err = open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
}

// Whoever reads that the spool is full learns who holds it.
func TestFurthestBehind(t *testing.T) {
	holds := []slots.Hold{
		{Slot: "gone", Reason: "invalidated"},
		{Slot: "far", RetainedFrom: 10, Reason: "restart_lsn is 0/A"},
		{Consumer: "near", RetainedFrom: 20, Reason: "was sent WAL up to 0/14"},
	}
	for from, want := range map[int]string{0: "slot far: restart_lsn is 0/A", 2: "consumer near: was sent WAL up to 0/14", 3: "nobody"} {
		if got := furthestBehind(holds[from:]); got != want {
			t.Errorf("from %d: %q, want %q", from, got, want)
		}
	}
}
