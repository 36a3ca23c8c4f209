package s3_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"walproxy/archive"
	"walproxy/archive/s3"
	"walproxy/archive/storetest"
	"walproxy/integration/s3server"
)

// start returns a running server, for whose clients the environment is set.
func start(t *testing.T) *s3server.Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	server, err := s3server.New(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(server.Log())
		}
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Setenv("AWS_ACCESS_KEY_ID", server.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", server.SecretKey)
	return server
}

func open(t *testing.T, endpoint, prefix string, conditional bool) *s3.Store {
	t.Helper()
	s, err := s3.New(s3server.Bucket, prefix, s3.Options{
		Endpoint: endpoint, Region: s3server.Region, Conditional: conditional, Timeout: 2 * time.Second, RetryFor: 5 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestStore(t *testing.T) {
	server := start(t)
	for i, prefix := range []string{"", "deep/er"} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			storetest.Run(t, func(t *testing.T) archive.Store { return open(t, server.Endpoint(), prefix, true) })
		})
	}
}
