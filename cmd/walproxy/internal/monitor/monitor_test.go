package monitor

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func get(t *testing.T, h http.Handler, method, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w.Code, w.Body.String()
}

func TestPaths(t *testing.T) {
	h := Handler(Options{Gatherer: NewRegistry("v1.2.3", "abc"), Status: func() any { return map[string]int{"a": 1} },
		Slots: func() any { return math.NaN() }}) // which JSON does not have
	for _, c := range []struct {
		method, path string
		status       int
		body         string
	}{
		{"GET", "/", 200, "/metrics"},
		{"GET", "/healthz", 200, "alive\n"},
		{"GET", "/readyz", 200, "ready\n"},
		{"GET", "/metrics", 200, `walproxy_build_info{revision="abc",version="v1.2.3"} 1`},
		{"GET", "/metrics", 200, "go_goroutines"},
		{"GET", "/metrics", 200, "process_resident_memory_bytes"},
		{"GET", "/debug/pprof/", 200, "heap"},
		{"GET", "/debug/pprof/goroutine?debug=1", 200, "goroutine profile"},
		{"GET", "/debug/pprof/symbol", 200, "num_symbols"},
		{"GET", "/status", 200, "{\n  \"a\": 1\n}\n"},
		{"POST", "/status", 405, ""},
		{"GET", "/slots", 500, "json"},
		{"DELETE", "/slots", 405, ""},
		{"GET", "/nothing", 404, ""},
		{"POST", "/healthz", 405, ""},
	} {
		status, body := get(t, h, c.method, c.path)
		if status != c.status || !strings.Contains(body, c.body) {
			t.Errorf("%s %s: %d %.200q, want %d with %q", c.method, c.path, status, body, c.status, c.body)
		}
	}
}

func TestReadiness(t *testing.T) {
	var known, up atomic.Bool
	condition := func(b *atomic.Bool, why string) func() error {
		return func() error {
			if b.Load() {
				return nil
			}
			return errors.New(why)
		}
	}
	h := Handler(Options{Checks: []Check{
		{"identity", condition(&known, "the upstream was never seen")},
		{"listener", condition(&up, "not listening yet")},
	}})
	for _, c := range []struct {
		known, up bool
		status    int
		body      string
	}{
		{false, false, 503, "identity: not ready: the upstream was never seen\nlistener: not ready: not listening yet\n"},
		{true, false, 503, "identity: ready\nlistener: not ready: not listening yet\n"},
		{true, true, 200, "identity: ready\nlistener: ready\n"},
		{false, true, 503, "identity: not ready: the upstream was never seen\nlistener: ready\n"},
	} {
		known.Store(c.known)
		up.Store(c.up)
		if status, body := get(t, h, "GET", "/readyz"); status != c.status || body != c.body {
			t.Errorf("known %t, up %t: %d %q, want %d %q", c.known, c.up, status, body, c.status, c.body)
		}
	}
}

func TestServe(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	s, err := Listen(t.Context(), "127.0.0.1:0", Options{Logger: zap.New(core)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(t.Context(), s.Addr().String(), Options{}); err == nil {
		t.Error("an address was listened on twice")
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	resp, err := http.Get("http://" + s.Addr().String() + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || string(body) != "alive\n" || resp.Body.Close() != nil {
		t.Errorf("body %q, %v", body, err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
	if _, err := http.Get("http://" + s.Addr().String() + "/healthz"); err == nil {
		t.Error("it serves after Run has returned")
	}
	if logs.FilterMessage("listening").Len() != 1 {
		t.Errorf("log %v", logs.All())
	}
	unused, err := Listen(t.Context(), "127.0.0.1:0", Options{})
	if err != nil || unused.Close() != nil {
		t.Error("a server that is never run cannot be closed")
	}
}

// A profile that outlasts the node does not keep it.
func TestRunEndsDespiteProfile(t *testing.T) {
	s, err := Listen(t.Context(), "127.0.0.1:0", Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	resp, err := http.Get("http://" + s.Addr().String() + "/debug/pprof/trace?seconds=600") // headers come when tracing has begun
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
	_ = resp.Body.Close()
}
