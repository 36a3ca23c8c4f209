package walreceiver

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"walproxy/protocol"
)

// Metrics counts what a Receiver does. Safe for concurrent use.
type Metrics struct {
	connects    prometheus.Counter
	failures    prometheus.Counter
	received    prometheus.Counter
	overlap     prometheus.Counter
	lastMessage prometheus.Gauge
	upstreamEnd prometheus.Gauge

	end   atomic.Uint64 // the value of upstreamEnd
	heard atomic.Int64  // that of lastMessage, in nanoseconds since 1970
}

// NewMetrics returns Metrics registered with reg. A nil reg registers nowhere.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	name := func(suffix string) string { return "walproxy_receiver_" + suffix }
	counter := func(suffix, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name(suffix), Help: help})
	}
	gauge := func(suffix, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name(suffix), Help: help})
	}
	m := &Metrics{
		connects:    counter("connects_total", "Streams begun on an upstream. A steady rise means that connections do not last."),
		failures:    counter("failures_total", "Connections to the upstream that failed or broke. A rise means trouble; the log says which."),
		received:    counter("received_bytes_total", "Bytes of streaming messages received. A rise means WAL arrives."),
		overlap:     counter("overlap_bytes_total", "Bytes of WAL received again after a reconnect and found equal."),
		lastMessage: gauge("last_message_timestamp_seconds", "When the upstream last sent a message. No rise means that it is silent."),
		upstreamEnd: gauge("upstream_lsn_bytes", "The furthest WAL position that the upstream reported."),
	}
	if reg != nil {
		reg.MustRegister(m.connects, m.failures, m.received, m.overlap, m.lastMessage, m.upstreamEnd)
	}
	return m
}

func (m *Metrics) upstream(lsn protocol.LSN) {
	m.end.Store(uint64(lsn))
	m.upstreamEnd.Set(float64(lsn))
}

// message notes that the upstream has sent one.
func (m *Metrics) message() {
	m.heard.Store(time.Now().UnixNano())
	m.lastMessage.SetToCurrentTime()
}
