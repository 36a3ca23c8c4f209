package node

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"walproxy/cmd/walproxy/internal/config"
	"walproxy/protocol"
	"walproxy/slots"
	"walproxy/slots/spool"
)

const mib = 1 << 20

// filled returns a node that does not run, with a timeline of WAL from 0/5000000 to 0/5000000 plus size.
func filled(t *testing.T, logger *zap.Logger, reg prometheus.Registerer, size int) *Node {
	t.Helper()
	c := config.Default()
	c.Data.Dir, c.Upstream.Conninfo, c.Upstream.Slot = t.TempDir(), "host=127.0.0.1 port=1 user=u", "up"
	c.Recompress.Codec, c.Spool.Cap, c.Spool.Fsync = "none", 10*mib, false
	n, err := Open(c, logger, reg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	id := protocol.Identity{SystemID: 7, SegmentSize: mib, WALBlockSize: 8192, ServerVersion: "15.18"}
	if err := n.log.SetIdentity(id); err != nil {
		t.Fatal(err)
	}
	take(t, n, 0x5000000, size)
	return n
}

// take lets the node take in size bytes of WAL, a MiB at a time.
func take(t *testing.T, n *Node, start protocol.LSN, size int) {
	t.Helper()
	chunk := make([]byte, mib)
	for ; size > 0; size -= mib {
		if err := n.feed.WAL(t.Context(), 1, start, chunk); err != nil {
			t.Fatal(err)
		}
		start += mib
		n.checkAlarm()
	}
}

// values returns what /metrics has of a family, by the values of its labels.
func values(t *testing.T, reg *prometheus.Registry, name string) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err) // a series that comes twice, for one
	}
	all := map[string]float64{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.Metric {
			key := ""
			for _, l := range m.Label {
				key += l.GetValue() + "/"
			}
			all[key] = m.GetGauge().GetValue()
		}
	}
	return all
}

func TestStatusOfConsumersAndSlots(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	n := filled(t, zap.NewNop(), reg, 6*mib)
	for name, restart := range map[string]protocol.LSN{"a": 0x5300028, "fresh": 0, "old": 0x4000000} {
		if err := n.store.Create(name, false, restart, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.store.Acquire("a", 7); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	first := n.registry.Register(slots.Info{Name: "s", Peer: "p", PID: 7, Slot: "a", Timeline: 1, Start: 0x5000000})
	for pid := range int32(2) { // two of one name, which is no UTF-8
		n.registry.Register(slots.Info{Name: "x\xff", Peer: "q", PID: 10 + pid, Timeline: 1, Start: 0x5000000 + protocol.LSN(pid)*mib})
	}
	n.sample(now.Add(-20 * time.Second))
	take(t, n, 0x5600000, mib)
	n.sample(now.Add(-10 * time.Second))
	first.Report(protocol.Status{Write: 0x5600000, Flush: 0x5600000})
	n.sample(now)

	s := n.Status("v")
	if s.Position.Written != 0x5700000 || s.Position.Oldest != 0x5000000 || s.Upstream.State != "stopped" || s.Cluster.SegmentBytes != mib {
		t.Errorf("%+v", s)
	}
	c := s.Consumers[0]
	if c.LagBytes != mib || c.LagSeconds < 9 || c.LagSeconds > 12 || c.Rate != 6.0*mib/20 || c.CatchUp != 5*mib/20 || *c.SecondsCaughtUp != 4 {
		t.Errorf("%+v", c)
	}
	if got := values(t, reg, "walproxy_consumer_lag_bytes"); len(got) != 2 || got["s/a/"] != mib || got["x?//"] != 7*mib {
		t.Errorf("lag %v", got)
	}
	a, fresh, old := s.Slots[0], s.Slots[1], s.Slots[2]
	if !a.Active || a.Consumer != "s" || a.RetainedFrom != 0x5000000 || a.RetainedBytes != 7*mib || a.Status != "reserved" || a.LagSeconds < 15 {
		t.Errorf("%+v", a)
	}
	if fresh.Status != "unreserved" || fresh.RetainedBytes != 0 || old.Status != "lost" || old.RetainedBytes != 7*mib {
		t.Errorf("%+v, %+v", fresh, old)
	}
	if got := values(t, reg, "walproxy_slot_lost"); got["old/"] != 1 || got["a/"] != 0 || len(got) != 3 {
		t.Errorf("lost: %v", got)
	}
}

func TestAlarm(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	reg := prometheus.NewPedanticRegistry()
	n := filled(t, zap.New(core), reg, 7*mib)
	seen := func(message string) int { return logs.FilterMessage(message).Len() }
	const near, quiet = "the spool is nearly full", "the spool is no longer nearly full"
	if seen(near) != 0 || values(t, reg, "walproxy_spool_alarm")[""] != 0 {
		t.Error("an alarm at 70 percent")
	}
	n.sample(time.Now().Add(-10 * time.Second))
	take(t, n, 0x5700000, 2*mib)
	n.sample(time.Now())
	if seen(near) != 1 || values(t, reg, "walproxy_spool_alarm")[""] != 1 || !n.Status("").Spool.Alarm {
		t.Error("no alarm at 90 percent, or more than one")
	}
	if s := n.Status("").Spool; s.SecondsCap == nil || *s.SecondsCap < 2 || *s.SecondsCap > 10 {
		t.Errorf("%+v, want it to be full in about 5 seconds", s)
	}
	if err := n.makeRoom(t.Context(), spool.ErrFull); err != nil { // of windows that are not durable yet
		t.Fatal(err)
	}
	n.checkAlarm()
	n.checkAlarm()
	if seen(quiet) != 1 || seen(near) != 1 || values(t, reg, "walproxy_spool_alarm")[""] != 0 {
		t.Errorf("after room was made: %v", logs.All())
	}
}
