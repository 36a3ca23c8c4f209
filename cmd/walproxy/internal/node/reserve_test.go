package node

import (
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"walproxy/protocol/walsender"
	"walproxy/slots/spool"
)

// TestReservedWhileRemoving: a slot that is made while WAL is being removed does not begin at WAL that is about to go.
func TestReservedWhileRemoving(t *testing.T) {
	for _, fullDisk := range []bool{true, false} {
		var n *Node
		made := false
		logger := zap.Must(zap.Config{Level: zap.NewAtomicLevelAt(zap.DebugLevel), Encoding: "json"}.Build(zap.Hooks(func(e zapcore.Entry) error {
			if e.Message != "window removed" || made {
				return nil
			}
			made = true
			return (&slotStore{n}).Create("a", 8, walsender.SlotOptions{ReserveWAL: true})
		})))
		n = shedding(t, logger, 16*mib, 21) // up to 100 MiB
		n.redo.redo.Store(50 * mib)
		remove := func() error { return n.makeRoom(t.Context(), spool.ErrFull) }
		if !fullDisk {
			remove = func() error { return n.removeUnneeded(0, n.redo.position()) }
		}
		if err := remove(); err != nil {
			t.Fatal(err)
		}
		slot, there := n.store.Get("a")
		if state := n.log.State(); !there || state.Begin == 16*mib || slot.RestartLSN < state.Begin || slot.RestartLSN > state.End {
			t.Errorf("full disk: %t: slot %+v, spool from %s to %s", fullDisk, slot, state.Begin, state.End)
		}
	}
}
