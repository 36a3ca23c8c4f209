package node

import (
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"walproxy/cmd/walproxy/internal/config"
	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/slots"
	"walproxy/slots/spool"
)

// shedding returns a node that sheds, is never run, and holds WAL of windows of 4 MiB, all durable, in segments of 16 MiB.
func shedding(t *testing.T, logger *zap.Logger, begin protocol.LSN, windows int) *Node {
	t.Helper()
	cfg := config.Default()
	cfg.Data.Dir, cfg.Upstream.Conninfo, cfg.Spool.WhenFull = t.TempDir(), "host=127.0.0.1 port=1 user=u", config.WhenFullShed
	n, err := Open(cfg, logger, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	if err := n.log.SetIdentity(protocol.Identity{SystemID: 1, SegmentSize: 16 * mib, WALBlockSize: 8192, ServerVersion: "15.18"}); err != nil {
		t.Fatal(err)
	}
	for range windows {
		f := &link.Frame{Timeline: 1, Start: begin, RawLen: uint32(begin.Next(4*mib) - begin), Codec: link.CodecZstd, Starts: true, Payload: []byte("x")}
		f.Seal()
		if err := n.log.Append(f); err != nil {
			t.Fatal(err)
		}
		begin = f.End()
	}
	if err := errors.Join(n.log.Sync(), n.openFeed()); err != nil { // the feed begins at the end of the spool
		t.Fatal(err)
	}
	return n
}

func makeSlot(t *testing.T, n *Node, name string, at protocol.LSN) {
	t.Helper()
	if err := n.store.Create(name, false, at, 0); err != nil {
		t.Fatal(err)
	}
}

// TestShedsWhatMakesRoom: who holds nothing but the newest segment, which is kept for everybody, is not shed: the disk may be full of
// something else.
func TestShedsWhatMakesRoom(t *testing.T) {
	n := shedding(t, zap.NewNop(), 16*mib, 7) // up to 44 MiB, which lies in the segment from 32 MiB on
	makeSlot(t, n, "near", 33*mib)
	n.registry.Register(slots.Info{Name: "nearer", Start: 34 * mib})
	if shed, err := n.shed(); shed || err != nil {
		t.Errorf("with nothing to gain: %t, %v", shed, err)
	}
	makeSlot(t, n, "far", 17*mib)
	if shed, err := n.shed(); !shed || err != nil {
		t.Errorf("with a slot that holds WAL back: %t, %v", shed, err)
	}
	for name, invalidated := range map[string]bool{"near": false, "far": true} {
		if slot, _ := n.store.Get(name); (slot.Invalidated != "") != invalidated {
			t.Errorf("slot %+v", slot)
		}
	}
}

// TestShedsNobodyForAPositionUnsaved: a slot whose consumer has moved on holds WAL only until that is saved.
func TestShedsNobodyForAPositionUnsaved(t *testing.T) {
	n := shedding(t, zap.NewNop(), 16*mib, 9)
	makeSlot(t, n, "a", 17*mib)
	if err := n.store.Advance("a", 50*mib, false); err != nil {
		t.Fatal(err)
	}
	if err := n.makeRoom(t.Context(), spool.ErrFull); err != nil {
		t.Fatal(err)
	}
	if slot, _ := n.store.Get("a"); slot.Invalidated != "" || slot.SavedLSN != 50*mib {
		t.Errorf("slot %+v", slot)
	}
	if begin := n.log.State().Begin; begin != 48*mib {
		t.Errorf("the spool begins at %s", begin)
	}
}

// TestShedsTheRightStream: of several streams of one name, as standbys have by default, the one that is behind ends.
func TestShedsTheRightStream(t *testing.T) {
	core, logs := observer.New(zap.ErrorLevel)
	n := shedding(t, zap.New(core), 16*mib, 9)
	for i, at := range []protocol.LSN{51, 17, 50} {
		n.registry.Register(slots.Info{Name: "walreceiver", Peer: string(rune('a' + i)), PID: int32(i), Start: at * mib})
	}
	if shed, err := n.shed(); !shed || err != nil {
		t.Fatalf("%t, %v", shed, err)
	}
	ended := logs.FilterMessage("the spool is full; a stream is ended").All()
	if len(ended) != 1 || ended[0].ContextMap()["peer"] != "b" {
		t.Errorf("log: %+v", ended)
	}
}
