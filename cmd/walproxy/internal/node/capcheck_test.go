package node

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"walproxy/cmd/walproxy/internal/config"
	"walproxy/protocol"
	"walproxy/protocol/link"
)

// A cap below which a full spool would stay full is refused as soon as the sizes are known, before anything is written.
func TestCapBelowTwoSegments(t *testing.T) {
	for _, c := range []struct {
		cap     config.Bytes
		segment uint32
		window  uint32 // of the upstream node
		refused bool
	}{
		{39 * mib, 16 * mib, 4 * mib, true}, {40 * mib, 16 * mib, 4 * mib, false}, {0, 16 * mib, 4 * mib, false},
		{16 * mib, 4 * mib, 4 * mib, false}, {40 * mib, 16 * mib, 8 * mib, true}, {2 * config.GiB, 1 << 30, mib, true},
	} {
		cfg := config.Default()
		cfg.Data.Dir, cfg.Upstream.Conninfo, cfg.Spool.Cap = t.TempDir(), "host=127.0.0.1 port=1 user=u", c.cap
		n, err := Open(cfg, zap.NewNop(), prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		id := protocol.Identity{SystemID: 7, SegmentSize: c.segment, WALBlockSize: 8192, ServerVersion: "15.18"}
		err = (&sink{Feed: n.feed, node: n}).Identify(id)
		if err == nil {
			err = frames{n.feed, n}.Accept(link.ServerHello{ResetDistance: c.window})
		}
		var refused *config.Error
		if errors.As(err, &refused) != c.refused || c.refused == (err == nil) {
			t.Errorf("%+v: %v", c, err)
		}
		if c.refused && (refused.Problems[0].Key != "spool.cap" || !strings.Contains(err.Error(), "must be at least")) {
			t.Errorf("%+v: %v", c, err)
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
		if cfg.Spool.Cap = 9 * mib; err != nil || c.segment != 16*mib {
			continue
		}
		if n, err := Open(cfg, zap.NewNop(), prometheus.NewRegistry()); !errors.As(err, &refused) {
			t.Errorf("a node that knows its segments opens with a cap of 9 MiB: %v, %v", n, err)
		}
	}
}

// A spool that stays full for hours, and gets room for a window now and then, is mentioned when that begins, then once a minute,
// and when it ends.
func TestFullIsSaidOnce(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	n := filled(t, zap.New(core), prometheus.NewRegistry(), mib)
	logs.TakeAll()
	now := time.Unix(1e9, 0)
	said := func(wait time.Duration, want string) {
		t.Helper()
		now = now.Add(wait)
		n.checkRoom(now)
		got := ""
		for _, e := range logs.TakeAll() {
			got += e.Level.String() + " "
		}
		if got != want {
			t.Fatalf("after %s: %q, want %q", wait, got, want)
		}
	}
	full := errors.New("full")
	n.blocks(full, now)
	said(0, "error ")
	for range 58 {
		n.blocks(full, now.Add(time.Second))
		n.flows() // a window's worth
		said(time.Second, "")
	}
	n.blocks(full, now.Add(2*time.Second))
	said(2*time.Second, "error ")
	said(time.Hour, "") // it waits all the time
	n.blocks(full, now)
	n.flows()
	said(time.Second, "error ")
	said(5*time.Second, "info ")
	said(time.Hour, "")
	n.blocks(full, now)
	said(0, "error ")
}
