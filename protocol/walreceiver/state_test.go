package walreceiver_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"walproxy/protocol"
	"walproxy/protocol/walreceiver"
)

// TestState follows a receiver through a stream, its end, and a stop.
func TestState(t *testing.T) {
	end := make(chan struct{})
	f := newFake(t, func(c *fakeConn, _ string) {
		c.send(copyBoth, keepalive(fakeBegin+500, false), wal(fakeBegin, somewal(10)))
		<-end
		c.send(errorResponse(protocol.Fatalf(protocol.CodeAdminShutdown, "good bye")))
	})
	logger, logs := observe()
	r, err := walreceiver.New(walreceiver.Options{Conninfo: f.conninfo(), Logger: logger, BackoffMin: time.Hour, BackoffMax: time.Hour})
	must(t, err)
	if s := r.State(); s.Phase != walreceiver.PhaseStopped || !s.LastMessage.IsZero() || s.LastError != "" {
		t.Errorf("before it runs: %+v", s)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended, sink := make(chan error, 1), newMemSink()
	go func() { ended <- r.Run(ctx, sink) }()
	sink.waitFor(t, 1, fakeBegin+10)
	s := r.State()
	if s.Phase != walreceiver.PhaseStreaming || s.Peer != fmt.Sprintf("127.0.0.1:%d", f.port()) || s.Link || s.LastMessage.IsZero() || s.LastError != "" {
		t.Errorf("while it streams: %+v", s)
	}
	if s.End != fakeBegin+10 { // what the last message says
		t.Errorf("the upstream's end is %s", s.End)
	}
	close(end)
	logs.await(t, "good bye")
	if s := r.State(); s.Phase != walreceiver.PhaseWaiting || s.LastError == "" || s.Peer != "" || s.Since.IsZero() {
		t.Errorf("after the end: %+v", s)
	}
	cancel()
	<-ended
	if s := r.State(); s.Phase != walreceiver.PhaseStopped || s.LastError == "" {
		t.Errorf("afterwards: %+v", s)
	}
}
