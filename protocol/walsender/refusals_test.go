package walsender

import (
	"errors"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// TestRefusalsAreBounded: strangers cannot fill the log, and what they did is counted.
func TestRefusalsAreBounded(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	var r refusals
	start := time.Unix(1e9, 0)
	for i := range 1000 {
		r.log(zap.New(core), "u", 1, errors.New("no"), start.Add(time.Duration(i)*10*time.Millisecond)) // for ten seconds
	}
	if logs.Len() != 10*maxRefusalsLogged {
		t.Errorf("%d of 1000 are logged", logs.Len())
	}
	total := int64(logs.Len())
	for _, e := range logs.All() {
		total += e.ContextMap()["not_logged_before"].(int64)
	}
	if want := int64(1000 - 100 + maxRefusalsLogged); total != want {
		t.Errorf("%d are accounted for, want %d", total, want)
	}
}
