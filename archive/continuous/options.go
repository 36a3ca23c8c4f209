package continuous

import (
	"cmp"
	"time"

	"go.uber.org/zap"

	"walproxy/archive"
)

// Defaults of Options.
const (
	DefaultTailInterval = time.Second
	DefaultRetryMin     = time.Second
	DefaultRetryMax     = time.Minute
)

// Options of an archiver.
type Options struct {
	Store archive.Store // where to; the caller closes it
	// Tail also stores what is there of the newest window: TailInterval after it was stored last, or when so many bytes of WAL
	// have come since, if that is sooner and TailBytes is not 0.
	Tail         bool
	TailInterval time.Duration // 0: DefaultTailInterval
	TailBytes    uint64
	// Sealed says that the node seals windows in the background: that is waited for.
	Sealed bool
	// Attempts that failed are made again after RetryMin, and then after up to twice as long each time, up to RetryMax.
	RetryMin, RetryMax time.Duration
	Logger             *zap.Logger // nil: silent
	Metrics            *Metrics    // nil: none
}

func (o *Options) applyDefaults() {
	o.TailInterval = cmp.Or(o.TailInterval, DefaultTailInterval)
	o.RetryMin, o.RetryMax = cmp.Or(o.RetryMin, DefaultRetryMin), cmp.Or(o.RetryMax, DefaultRetryMax)
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics(nil)
	}
}
