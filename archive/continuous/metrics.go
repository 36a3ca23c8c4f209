package continuous

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics of an archiver.
type Metrics struct {
	objects, bytes          *prometheus.CounterVec
	wal, failures, existing prometheus.Counter
	failing, refused, hole  prometheus.Gauge
	last                    prometheus.Gauge
	seconds                 prometheus.Histogram
}

// The values of the label kind.
const (
	kindWAL  = "wal"
	kindTail = "tail"
)

// NewMetrics registers the metrics of an archiver with r; nil registers nowhere.
func NewMetrics(r prometheus.Registerer) *Metrics {
	factory := promauto.With(r)
	opts := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Name: "walproxy_archive_" + name, Help: help}
	}
	counter := func(name, help string) prometheus.Counter {
		return factory.NewCounter(prometheus.CounterOpts(opts(name, help)))
	}
	gauge := func(name, help string) prometheus.Gauge {
		return factory.NewGauge(prometheus.GaugeOpts(opts(name, help)))
	}
	return &Metrics{
		objects:  factory.NewCounterVec(prometheus.CounterOpts(opts("objects_total", "Objects stored, by kind: wal is complete, tail is replaced later.")), []string{"kind"}),
		bytes:    factory.NewCounterVec(prometheus.CounterOpts(opts("stored_bytes_total", "Bytes of these objects.")), []string{"kind"}),
		wal:      counter("wal_bytes_total", "WAL in complete objects. Standing still while the primary writes means that nothing is archived."),
		existing: counter("existing_total", "Objects that were in the archive already with the same WAL, as another node stores them too."),
		failures: counter("failures_total", "Attempts to archive that failed."),
		failing:  gauge("failing", "1 since the last attempt to archive failed. WAL stays in the spool meanwhile."),
		refused:  gauge("refused", "1 while the archive holds another cluster, or other WAL than this node. Nothing is archived until somebody has looked."),
		hole:     gauge("missing_bytes", "WAL that lies between the end of the archive and the beginning of the spool, as found at the start. Above 0 is a hole in the archive."),
		last:     gauge("last_success_timestamp_seconds", "When something was stored last, or found to be stored."),
		seconds: factory.NewHistogram(prometheus.HistogramOpts{Name: "walproxy_archive_put_seconds",
			Help: "How long it takes to store an object.", Buckets: prometheus.ExponentialBuckets(0.005, 2, 14)}),
	}
}

func (m *Metrics) stored(kind string, bytes int64, wal uint64, existed bool, took time.Duration) {
	m.last.SetToCurrentTime()
	m.failing.Set(0)
	m.refused.Set(0)
	if existed {
		m.existing.Inc()
		return
	}
	m.objects.WithLabelValues(kind).Inc()
	m.bytes.WithLabelValues(kind).Add(float64(bytes))
	m.seconds.Observe(took.Seconds())
	if kind == kindWAL {
		m.wal.Add(float64(wal))
	}
}
