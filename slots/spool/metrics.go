package spool

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"walproxy/protocol"
)

// Metrics of a log. A nil *Metrics counts nothing.
type Metrics struct {
	bytes, windows prometheus.Gauge
	frames         prometheus.Counter
	sealed         prometheus.Counter
	sealedBefore   prometheus.Counter
	sealedAfter    prometheus.Counter
	fsync          prometheus.Histogram
}

// NewMetrics registers the metrics of a spool, or returns nil without a registerer.
func NewMetrics(r prometheus.Registerer) *Metrics {
	if r == nil {
		return nil
	}
	m := &Metrics{
		bytes: prometheus.NewGauge(prometheus.GaugeOpts{Name: "walproxy_spool_bytes",
			Help: "Bytes of the window files. A steady rise means that a slot or consumer holds WAL back."}),
		windows: prometheus.NewGauge(prometheus.GaugeOpts{Name: "walproxy_spool_windows", Help: "Window files held."}),
		frames: prometheus.NewCounter(prometheus.CounterOpts{Name: "walproxy_spool_frames_total",
			Help: "Frames appended. A rise without more WAL means smaller frames."}),
		sealed: prometheus.NewCounter(prometheus.CounterOpts{Name: "walproxy_spool_sealed_windows_total",
			Help: "Windows sealed. No rise while WAL comes in means that sealing is off or fails; the log says which."}),
		sealedBefore: prometheus.NewCounter(prometheus.CounterOpts{Name: "walproxy_spool_sealed_before_bytes_total",
			Help: "Bytes of these windows' files before they were sealed."}),
		sealedAfter: prometheus.NewCounter(prometheus.CounterOpts{Name: "walproxy_spool_sealed_after_bytes_total",
			Help: "Bytes of these windows' files since. A rise against the bytes before means that sealing saves less."}),
		fsync: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "walproxy_spool_fsync_seconds",
			Help:    "Time that making appended frames durable takes. A rise delays synchronous commits by as much.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 16)}),
	}
	r.MustRegister(m.bytes, m.windows, m.frames, m.sealed, m.sealedBefore, m.sealedAfter, m.fsync)
	return m
}

func (m *Metrics) appendedFrame(total int64) {
	if m != nil {
		m.frames.Inc()
		m.bytes.Set(float64(total))
	}
}

func (m *Metrics) opened(total int64, windows int) {
	if m != nil {
		m.bytes.Set(float64(total))
		m.windows.Set(float64(windows))
	}
}

func (m *Metrics) size(total int64) {
	if m != nil {
		m.bytes.Set(float64(total))
	}
}

func (m *Metrics) sealedWindow(before, after, total int64) {
	if m != nil {
		m.sealed.Inc()
		m.sealedBefore.Add(float64(before))
		m.sealedAfter.Add(float64(after))
		m.bytes.Set(float64(total))
	}
}

func (m *Metrics) windowCount(delta float64) {
	if m != nil {
		m.windows.Add(delta)
	}
}

func (m *Metrics) syncedIn(d time.Duration) {
	if m != nil {
		m.fsync.Observe(d.Seconds())
	}
}

func lsnField(lsn protocol.LSN) zap.Field { return zap.Stringer("lsn", lsn) }

func errField(err error) zap.Field { return zap.Error(err) }
