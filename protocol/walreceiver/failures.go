package walreceiver

import (
	"errors"
	"time"

	"go.uber.org/zap"
)

const (
	// sayAgainAfter is how long the log is silent about a cause that it has named.
	sayAgainAfter = time.Minute
	// maxCauses bounds the causes that are remembered.
	maxCauses = 64
)

// failures says in the log why there is no stream, each cause once and then at most once a minute, and when there is one
// again. Of the goroutine of Run.
type failures struct {
	log      *zap.Logger
	now      func() time.Time
	said     map[string]time.Time // when each cause was logged last
	lost     time.Time            // when the stream was lost, or the first attempt failed; zero while there is a stream
	attempts int                  // that failed since
	told     bool                 // the log says that there is no stream
}

func newFailures(log *zap.Logger, now func() time.Time) *failures {
	return &failures{log: log, now: now, said: map[string]time.Time{}}
}

// due reports whether a cause is to be logged now.
func (f *failures) due(cause string) bool {
	now := f.now()
	if last, known := f.said[cause]; known && now.Sub(last) < sayAgainAfter {
		return false
	}
	if len(f.said) >= maxCauses {
		clear(f.said)
	}
	f.said[cause] = now
	return true
}

// failed says why there is no stream: as an error where somebody has to act, as information where nobody has.
func (f *failures) failed(err error) {
	if f.lost.IsZero() {
		f.lost = f.now()
	}
	f.attempts++
	fields := []zap.Field{zap.Error(err), zap.Int("attempts", f.attempts)}
	if !f.due(err.Error()) {
		f.log.Debug("still no stream from upstream", fields...)
		return
	}
	f.told = true
	var removed *RemovedError
	var timeline *TimelineError
	var shutdown *ShutdownError
	switch {
	case errors.As(err, &removed), errors.As(err, &timeline):
		f.log.Error("upstream cannot continue our WAL", fields...)
	case errors.As(err, &shutdown):
		f.log.Info("upstream shut down", fields...)
	default:
		f.log.Warn("no stream from upstream", fields...)
	}
}

// back says that there is a stream again. since is when it began.
func (f *failures) back(peer string, since time.Time) {
	if f.told {
		f.log.Info("the stream from the upstream is back", zap.String("peer", peer), zap.Duration("away", since.Sub(f.lost).Round(time.Millisecond)),
			zap.Int("attempts", f.attempts+1))
	}
	f.lost, f.attempts, f.told = time.Time{}, 0, false
}
