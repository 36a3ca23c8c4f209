package walsender_test

import (
	"testing"
	"testing/synctest"
	"time"

	"walproxy/protocol/walsender"
)

// holding returns a session that streams by slot s and has everything.
func holding(t *testing.T, h *harness) *client {
	t.Helper()
	c := h.connect(t)
	c.run("CREATE_REPLICATION_SLOT s PHYSICAL")
	c.start("START_REPLICATION SLOT s 0/1000000")
	c.expect("WAL", "w(0/1000000+100)")
	return c
}

// A consumer that answers keeps its slot, however long it was silent before.
func TestLiveHolderKeepsItsSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode("15.18", begin, wal(begin, 100))
		h := servePipe(t, n, walsender.Options{})
		holder, other := holding(t, h), h.connect(t)
		time.Sleep(20 * time.Second) // of the bubble's clock
		other.query("START_REPLICATION SLOT s 0/1000000")
		holder.expect("question", "k(0/1000064 true)")
		began := time.Now()
		time.Sleep(2 * time.Second)
		holder.copyData(status(begin+100, begin+100, false))
		other.expect("refusal", "E(ERROR 55006) Z(I)")
		if d := time.Since(began); d != 2*time.Second {
			t.Errorf("refused after %s", d)
		}
		holder.copyData(status(begin+100, begin+100, true)) // the stream goes on
		holder.expect("answer", "k(0/1000064 false)")
		if len(n.consumers) != 1 {
			t.Errorf("%d streams", len(n.consumers))
		}
		_ = holder.conn.Close()
		h.stop()
	})
}

// A consumer that is gone without a word loses its slot to the next one, long before wal_sender_timeout.
func TestHalfOpenHolderIsEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode("15.18", begin, wal(begin, 100))
		h := servePipe(t, n, walsender.Options{})
		holding(t, h) // and never reads again
		first, second := h.connect(t), h.connect(t)
		began := time.Now()
		first.query("START_REPLICATION SLOT s 0/1000000")
		first.expect("the stream", "W w(0/1000000+100)")
		if d := time.Since(began); d != walsender.DefaultProbeTimeout {
			t.Errorf("evicted after %s", d)
		}
		if first, second := n.consumers[0], n.consumers[1]; !first.closed || second.closed || n.slots["s"].pid != second.info.PID {
			t.Errorf("slot held by %d; streams %+v, %+v", n.slots["s"].pid, first, second)
		}
		second.query("START_REPLICATION SLOT s 0/1000000") // the new holder is asked in its turn, and lives
		first.expect("question", "k(0/1000064 true)")
		first.copyData(status(begin+100, begin+100, false))
		second.expect("refusal", "E(ERROR 55006) Z(I)")
		_ = first.conn.Close()
		h.stop()
	})
}

// A shutdown does not wait for the answer of a holder, and neither does a session without a probe.
func TestProbeEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode("15.18", begin, wal(begin, 100))
		h := servePipe(t, n, walsender.Options{ProbeTimeout: -1})
		holding(t, h)
		if got := h.connect(t).run("START_REPLICATION SLOT s 0/1000000"); got != "E(ERROR 55006) Z(I)" {
			t.Errorf("without a probe: %s", got)
		}
		h.stop()
	})
	synctest.Test(t, func(t *testing.T) {
		n := newNode("15.18", begin, wal(begin, 100))
		h := servePipe(t, n, walsender.Options{ProbeTimeout: time.Hour, WALSenderTimeout: -1})
		holding(t, h)
		other := h.connect(t)
		other.query("START_REPLICATION SLOT s 0/1000000")
		synctest.Wait()
		began := time.Now()
		go h.shutdown()
		if got := other.until('Z'); got != "E(FATAL 57P01) closed" {
			t.Errorf("at the shutdown: %s", got)
		}
		if d := time.Since(began); d != 0 {
			t.Errorf("after %s", d)
		}
		h.stop()
	})
}

// A temporary slot's session does not stream and cannot be asked: it keeps its slot.
func TestTemporarySlotIsNotProbed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode("15.18", begin, wal(begin, 100))
		h := servePipe(t, n, walsender.Options{})
		owner, other := h.connect(t), h.connect(t)
		owner.run("CREATE_REPLICATION_SLOT s TEMPORARY PHYSICAL")
		began := time.Now()
		if got := other.run("START_REPLICATION SLOT s 0/1000000"); got != "E(ERROR 55006) Z(I)" || time.Since(began) != 0 {
			t.Errorf("%s after %s", got, time.Since(began))
		}
		h.stop()
	})
}

// A slot that was invalidated cannot be used at all where the node says so, as from version 18 on.
func TestInvalidatedSlot(t *testing.T) {
	n := newNode("18.4", begin, wal(begin, 100))
	h := servePipe(t, n, walsender.Options{})
	c := h.connect(t)
	c.run("CREATE_REPLICATION_SLOT s PHYSICAL")
	n.change(func() { n.slots["s"].invalid = "wal_removed" })
	c.verbose = true
	want := `E(ERROR/ERROR 55000 "can no longer access replication slot \"s\"" "This replication slot has been invalidated due to \"wal_removed\"." "") Z(I)`
	for _, command := range []string{"START_REPLICATION SLOT s 0/1000000", "ALTER_REPLICATION_SLOT s (failover)"} {
		if got := c.run(command); got != want {
			t.Errorf("%s:\n got %s\nwant %s", command, got, want)
		}
	}
	if got := c.run("DROP_REPLICATION_SLOT s"); got != "C(DROP_REPLICATION_SLOT) Z(I)" {
		t.Errorf("drop: %s", got)
	}
}
