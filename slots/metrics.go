package slots

import "github.com/prometheus/client_golang/prometheus"

// Metrics of a store. A nil *Metrics counts nothing.
type Metrics struct {
	saves prometheus.Counter
}

// NewMetrics registers the metrics of a store, or returns nil without a registerer.
func NewMetrics(r prometheus.Registerer) *Metrics {
	if r == nil {
		return nil
	}
	m := &Metrics{saves: prometheus.NewCounter(prometheus.CounterOpts{Name: "walproxy_slots_saves_total",
		Help: "Times the slots were written to disk, with an fsync of the file and one of its directory. Reports of consumers share them."})}
	r.MustRegister(m.saves)
	return m
}

func (m *Metrics) saved() {
	if m != nil {
		m.saves.Inc()
	}
}
