package node

import (
	"math"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"walproxy/cmd/walproxy/internal/status"
	"walproxy/protocol/walreceiver"
)

// collector turns the node's status into metrics whenever somebody asks for them. It implements prometheus.Collector.
type collector struct {
	node *Node
	all  []*prometheus.Desc

	streaming, upstreamLag, upstreamRetained            *prometheus.Desc
	fill, capBytes, untilCap, alarm, blocked            *prometheus.Desc
	consumers, consumerLag, consumerSeconds             *prometheus.Desc
	slotActive, slotLost, slotLag, slotSeconds, slotWAL *prometheus.Desc
}

func newCollector(n *Node) *collector {
	c := &collector{node: n}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		d := prometheus.NewDesc("walproxy_"+name, help, labels, nil)
		c.all = append(c.all, d)
		return d
	}
	c.streaming = desc("upstream_streaming", "1 while WAL streams from the upstream. 0 for long means that nothing new arrives.")
	c.upstreamLag = desc("upstream_lag_bytes", "WAL that the upstream has announced and this node does not hold yet.")
	c.upstreamRetained = desc("upstream_retained_bytes", "WAL that the upstream keeps for this node's slot there. A rise fills the upstream's disk.")
	c.fill = desc("spool_fill_ratio", "How much of its cap the spool takes, 0 to 1. A rise means that somebody holds WAL back.")
	c.capBytes = desc("spool_cap_bytes", "spool.cap; 0 is none.")
	c.untilCap = desc("spool_seconds_to_cap", "When the spool is full at the rate of the last minute; +Inf if it does not grow.")
	c.alarm = desc("spool_alarm", "1 while the spool is nearly full, which the log tells too.")
	c.blocked = desc("spool_blocked", "1 while the upstream is not read because the spool is full.")
	c.consumers = desc("consumers", "Streams that are served.", "state")
	c.consumerLag = desc("consumer_lag_bytes", "WAL that this node holds and the consumer has not flushed. The most of streams of one name and slot.", "consumer", "slot")
	c.consumerSeconds = desc("consumer_lag_seconds", "For how long this node has held WAL that the consumer has not flushed. A rise means that it falls behind.", "consumer", "slot")
	c.slotActive = desc("slot_active", "1 while a consumer streams by the slot. 0 for long means WAL that piles up for nobody.", "slot")
	c.slotLost = desc("slot_lost", "1 if the slot is invalidated or WAL that it needs is gone: its consumer has to be made anew.", "slot")
	c.slotLag = desc("slot_lag_bytes", "WAL from the slot's restart_lsn on.", "slot")
	c.slotSeconds = desc("slot_lag_seconds", "For how long this node has held WAL beyond the slot's restart_lsn.", "slot")
	c.slotWAL = desc("slot_retained_bytes", "WAL, uncompressed, that the slot keeps from being removed here.", "slot")
	return c
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range c.all {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	s := c.node.Status("")
	put := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	put(c.streaming, flag(s.Upstream.State == string(walreceiver.PhaseStreaming)))
	put(c.upstreamLag, float64(s.Upstream.LagBytes))
	put(c.upstreamRetained, float64(s.Upstream.RetainedBytes))
	put(c.fill, s.Spool.Fill)
	put(c.capBytes, float64(s.Spool.CapBytes))
	put(c.alarm, flag(s.Spool.Alarm))
	put(c.blocked, flag(s.Spool.Blocked))
	untilCap := math.Inf(1)
	if s.Spool.SecondsCap != nil {
		untilCap = *s.Spool.SecondsCap
	}
	put(c.untilCap, untilCap)
	states := map[string]int{"startup": 0, "catchup": 0, "streaming": 0, "stopping": 0}
	for _, consumer := range s.Consumers {
		states[consumer.State]++
	}
	for state, count := range states {
		put(c.consumers, float64(count), state)
	}
	for who, lag := range lags(s.Consumers) {
		put(c.consumerLag, lag.bytes, who.name, who.slot)
		put(c.consumerSeconds, lag.seconds, who.name, who.slot)
	}
	for _, slot := range s.Slots {
		put(c.slotActive, flag(slot.Active), slot.Name)
		put(c.slotLost, flag(slot.Status == "lost" || slot.Status == "invalidated"), slot.Name)
		put(c.slotLag, float64(slot.LagBytes), slot.Name)
		put(c.slotSeconds, slot.LagSeconds, slot.Name)
		put(c.slotWAL, float64(slot.RetainedBytes), slot.Name)
	}
}

// consumerKey tells consumers apart over reconnects, which a pid would not.
type consumerKey struct{ name, slot string }

type consumerLag struct{ bytes, seconds float64 }

// lags returns the most of each for all streams that share a name and a slot: a metric may not come twice.
func lags(consumers []status.Consumer) map[consumerKey]consumerLag {
	all := map[consumerKey]consumerLag{}
	for _, c := range consumers {
		key := consumerKey{strings.ToValidUTF8(c.Name, "?"), c.Slot}
		lag := all[key]
		all[key] = consumerLag{max(lag.bytes, float64(c.LagBytes)), max(lag.seconds, c.LagSeconds)}
	}
	return all
}

func flag(on bool) float64 {
	if on {
		return 1
	}
	return 0
}
