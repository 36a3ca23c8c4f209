package s3_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"walproxy/archive"
)

// faulty is a proxy before an S3 server that breaks requests.
type faulty struct {
	*httptest.Server
	broken atomic.Int32 // how many requests are broken from now on
	how    atomic.Value // func(w http.ResponseWriter, r *http.Request, next http.Handler)
}

func newFaulty(t *testing.T, server string) *faulty {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = u.Scheme, u.Host
			r.Out.Host = r.In.Host // it is signed
		},
		ErrorLog: log.New(io.Discard, "", 0), // what is broken on purpose
	}
	f := &faulty{}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f.broken.Add(-1) >= 0 {
			f.how.Load().(func(http.ResponseWriter, *http.Request, http.Handler))(w, r, proxy)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		f.CloseClientConnections()
		f.Close()
	})
	return f
}

func (f *faulty) breakNext(n int32, how func(http.ResponseWriter, *http.Request, http.Handler)) {
	f.how.Store(how)
	f.broken.Store(n)
}

// reset closes the client's connection in the midst of a request.
func reset(w http.ResponseWriter, r *http.Request, _ http.Handler) {
	_, _ = io.CopyN(io.Discard, r.Body, 100_000)
	conn, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
	}
}

// hang never answers: it leaves the connection to the garbage collector.
func hang(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
	_, _, _ = w.(http.Hijacker).Hijack()
}

func unavailable(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
	w.WriteHeader(http.StatusServiceUnavailable)
}

func internal(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
	http.Error(w, "<Error><Code>InternalError</Code></Error>", http.StatusInternalServerError)
}

// cut sends half of the answer.
func cut(w http.ResponseWriter, r *http.Request, next http.Handler) {
	rec := httptest.NewRecorder()
	next.ServeHTTP(rec, r)
	for k, v := range rec.Header() {
		w.Header()[k] = v
	}
	w.WriteHeader(rec.Code)
	_, _ = w.Write(rec.Body.Bytes()[:rec.Body.Len()/2])
	panic(http.ErrAbortHandler)
}

// done lets the request succeed and loses the answer.
func done(w http.ResponseWriter, r *http.Request, next http.Handler) {
	next.ServeHTTP(httptest.NewRecorder(), r)
	reset(w, r, nil)
}

// Whatever breaks a few requests is tried again, and what comes back or is stored is whole.
func TestFaultsThatPass(t *testing.T) {
	server := start(t)
	proxy := newFaulty(t, server.Endpoint())
	s := open(t, proxy.URL, "faults", true)
	ctx := context.Background()
	body := bytes.Repeat([]byte("walproxy"), 100_000)
	for name, how := range map[string]func(http.ResponseWriter, *http.Request, http.Handler){
		"reset": reset, "hang": hang, "unavailable": unavailable, "internal": internal, "cut": cut, "done": done,
	} {
		n := int32(2)
		if name == "hang" {
			n = 1 // takes the whole timeout
		}
		proxy.breakNext(n, how)
		err := s.Put(ctx, name, bytes.NewReader(body), int64(len(body)))
		if lost := name == "done" || name == "cut"; err != nil && !(lost && errors.Is(err, archive.ErrExists)) {
			t.Errorf("%s: put: %v", name, err)
		}
		proxy.breakNext(n, how)
		got, err := s.Get(ctx, []byte("x"), name, 8, int64(len(body)))
		if err != nil || !bytes.Equal(got, append([]byte("x"), body[8:]...)) {
			t.Errorf("%s: get: %d bytes, %v", name, len(got), err)
		}
		proxy.breakNext(1, how)
		found := 0
		for info, err := range s.List(ctx, name, "") {
			if found++; err != nil || info.Bytes != int64(len(body)) {
				t.Errorf("%s: list: %+v, %v", name, info, err)
			}
		}
		if found != 1 {
			t.Errorf("%s: %d objects listed", name, found)
		}
	}
}

// A store that stays broken is unavailable in time, never empty; one that refuses is neither.
func TestFaultsThatStay(t *testing.T) {
	server := start(t)
	proxy := newFaulty(t, server.Endpoint())
	s := open(t, proxy.URL, "faults", true)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	proxy.breakNext(1<<30, hang)
	begun := time.Now()
	_, err := s.Get(ctx, nil, "x", 0, 1)
	if err == nil || errors.Is(err, archive.ErrNotExist) || time.Since(begun) > 10*time.Second {
		t.Errorf("a store that hangs: %v after %s", err, time.Since(begun))
	}
	proxy.breakNext(1<<30, unavailable)
	if _, err := s.Get(context.Background(), nil, "x", 0, 1); !archive.Retryable(err) || errors.Is(err, archive.ErrNotExist) {
		t.Errorf("a store that says 503: %v", err)
	}
	proxy.breakNext(0, unavailable)
	t.Setenv("AWS_SECRET_ACCESS_KEY", "wrong")
	denied := open(t, proxy.URL, "faults", true)
	if _, err := denied.Get(context.Background(), nil, "x", 0, 1); err == nil || archive.Retryable(err) || errors.Is(err, archive.ErrNotExist) {
		t.Errorf("a wrong key: %v", err)
	}
	server.Stop()
	nobody := open(t, server.Endpoint(), "faults", true)
	if err := nobody.Put(ctx, "y", bytes.NewReader(nil), 0); err == nil || errors.Is(err, archive.ErrExists) {
		t.Errorf("nobody listens: %v", err)
	}
}
