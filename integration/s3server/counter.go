package s3server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
)

// Counter is an S3 server that counts requests by method; a listing is a method of its own, LIST. Methods are safe for
// concurrent use.
type Counter struct {
	*Server
	web   *httptest.Server
	mu    sync.Mutex
	count map[string]int
}

// NewCounter starts a server. The caller ends it with Close.
func NewCounter(ctx context.Context) (*Counter, error) {
	server, err := New(ctx)
	if err != nil {
		return nil, err
	}
	target, err := url.Parse(server.Endpoint())
	if err != nil {
		return nil, errors.Join(err, server.Close())
	}
	c := &Counter{Server: server, count: map[string]int{}}
	pass := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = r.In.Host // it is signed
	}}
	c.web = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		method := r.Method
		if r.URL.Query().Has("list-type") {
			method = "LIST"
		}
		c.mu.Lock()
		c.count[method]++
		c.mu.Unlock()
		pass.ServeHTTP(w, r)
	}))
	return c, nil
}

// URL returns what --store takes for a prefix of the bucket, by way of the counter.
func (c *Counter) URL(prefix string) string {
	return fmt.Sprintf("s3://%s/%s?endpoint=%s&region=%s", Bucket, prefix, c.web.URL, Region)
}

// Take returns what was counted since it was called last.
func (c *Counter) Take() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := maps.Clone(c.count)
	clear(c.count)
	return taken
}

// Close ends the server.
func (c *Counter) Close() error {
	c.web.Close()
	return c.Server.Close()
}
