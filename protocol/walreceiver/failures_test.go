package walreceiver

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// TestFailuresAreSaidOnce: each cause at once, again after a minute, in between for those who debug; the end of it once.
func TestFailuresAreSaidOnce(t *testing.T) {
	core, logs := observer.New(zap.DebugLevel)
	now := time.Unix(1e9, 0)
	f := newFailures(zap.New(core), func() time.Time { return now })
	refused, reset := errors.New("connection refused"), errors.New("connection reset")
	want := []string{}
	step := func(wait time.Duration, err error, line string) {
		now = now.Add(wait)
		f.failed(err)
		want = append(want, line)
	}
	f.back("up", now) // the first stream is nothing to speak of
	step(0, refused, "warn no stream from upstream: connection refused, attempt 1")
	step(10*time.Second, refused, "debug still no stream from upstream: connection refused, attempt 2")
	step(10*time.Second, reset, "warn no stream from upstream: connection reset, attempt 3")
	step(39*time.Second, refused, "debug still no stream from upstream: connection refused, attempt 4")
	step(time.Second, refused, "warn no stream from upstream: connection refused, attempt 5")
	step(time.Second, &ShutdownError{Peer: "up"}, "info upstream shut down: upstream up shut down, attempt 6")
	step(0, fmt.Errorf("x: %w", &RemovedError{Peer: "up", Err: refused}), "error upstream cannot continue our WAL: "+fmt.Sprintf("x: %v", &RemovedError{Peer: "up", Err: refused})+", attempt 7")
	f.back("up", now.Add(2*time.Second))
	want = append(want, "info the stream from the upstream is back: after 1m3s")
	step(3*time.Second, refused, "debug still no stream from upstream: connection refused, attempt 1") // a connection that does not last
	f.back("up", now)                                                                                  // of which nobody was told
	step(time.Minute, refused, "warn no stream from upstream: connection refused, attempt 1")
	var got []string
	for _, e := range logs.All() {
		fields := e.ContextMap()
		line := fmt.Sprintf("%s %s: %v, attempt %v", e.Level, e.Message, fields["error"], fields["attempts"])
		if away, ok := fields["away"]; ok {
			line = fmt.Sprintf("%s %s: after %v", e.Level, e.Message, away)
		}
		got = append(got, line)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
	for i := range 3 * maxCauses {
		f.failed(fmt.Errorf("cause %d", i))
	}
	if len(f.said) > maxCauses {
		t.Errorf("%d causes are remembered", len(f.said))
	}
}
