package monitor

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/pprof"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// NewRegistry returns a registry with the metrics of the process and of Go, and walproxy_build_info.
func NewRegistry(version, revision string) *prometheus.Registry {
	r := prometheus.NewRegistry()
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "walproxy_build_info",
		Help:        "Always 1; the labels say which build runs.",
		ConstLabels: prometheus.Labels{"version": version, "revision": revision},
	})
	build.Set(1)
	r.MustRegister(build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

const index = `walproxy

/metrics        Prometheus metrics
/healthz        200 while the process runs
/readyz         200 when consumers can be served; otherwise 503 and why not
/status         JSON: upstream, position, spool, consumers, slots
/slots          JSON: slots
/debug/pprof/   profiles
`

// Handler answers all paths.
func Handler(o Options) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { plain(w, http.StatusOK, index) })
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { plain(w, http.StatusOK, "alive\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { readyz(w, o.Checks) })
	if o.Gatherer != nil {
		mux.Handle("GET /metrics", promhttp.HandlerFor(o.Gatherer, promhttp.HandlerOpts{}))
	}
	for path, answer := range map[string]func() any{"GET /status": o.Status, "GET /slots": o.Slots} {
		if answer != nil {
			mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { asJSON(w, answer()) })
		}
	}
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}

// readyz says every condition's state, a line each.
func readyz(w http.ResponseWriter, checks []Check) {
	status, lines := http.StatusOK, strings.Builder{}
	for _, c := range checks {
		if err := c.Ready(); err != nil {
			status = http.StatusServiceUnavailable
			fmt.Fprintf(&lines, "%s: not ready: %v\n", c.Name, err)
		} else {
			fmt.Fprintf(&lines, "%s: ready\n", c.Name)
		}
	}
	if lines.Len() == 0 {
		lines.WriteString("ready\n")
	}
	plain(w, status, lines.String())
}

func plain(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text) // a client that has gone
}

func asJSON(w http.ResponseWriter, value any) {
	content, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		plain(w, http.StatusInternalServerError, err.Error()+"\n")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(append(content, '\n')) // a client that has gone
}
