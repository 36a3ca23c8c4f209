package feed

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics count what comes in. A nil *Metrics counts nothing.
type Metrics struct {
	wal, payload, frames, rawFrames prometheus.Counter
}

// NewMetrics registers the metrics of a feed with r; nil registers nowhere.
func NewMetrics(r prometheus.Registerer) *Metrics {
	factory := promauto.With(r)
	counter := func(name, help string) prometheus.Counter {
		return factory.NewCounter(prometheus.CounterOpts{Name: "walproxy_feed_" + name + "_total", Help: help})
	}
	return &Metrics{
		wal:       counter("wal_bytes", "WAL taken in from the upstream."),
		payload:   counter("payload_bytes", "What this WAL takes in frames, without their headers."),
		frames:    counter("frames", "Frames made, or taken in from an upstream node."),
		rawFrames: counter("raw_frames", "Of these: frames that carry WAL as it is. A rise means WAL that does not compress."),
	}
}
