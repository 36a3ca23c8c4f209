package walreceiver

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"walproxy/protocol"
	"walproxy/protocol/link"
)

// Options configure a Receiver. Zero values mean the defaults.
type Options struct {
	// Conninfo is a libpq connection string or URI. Several hosts, target_session_attrs, passfile, service and the PG*
	// environment variables work as in libpq; the database is always "replication", as a stock walreceiver's.
	Conninfo string
	// Slot is the physical replication slot to use; none if empty. CreateSlot creates it, with its WAL reserved, if missing.
	Slot       string
	CreateSlot bool
	// ApplicationName is used where Conninfo gives none. Default "walproxy".
	ApplicationName string
	// StatusInterval is the longest time between two reports to the upstream. Default 10 s.
	StatusInterval time.Duration
	// ReceiverTimeout is how long the upstream may be silent; at half of it the receiver asks for a sign of life. Default 60 s.
	ReceiverTimeout time.Duration
	// BackoffMin and BackoffMax bound the wait between two attempts to connect. Default 100 ms and 10 s.
	BackoffMin, BackoffMax time.Duration
	// OverlapBytes is how much WAL that is held already is asked for again after a reconnect, to be compared.
	// Default 128 KiB, negative for none. It never leaves the segment of the position to go on at.
	OverlapBytes int64
	// ResetDistance is the reset distance in bytes: a receiver that starts from nothing starts at a boundary. Default 4 MiB.
	ResetDistance uint32
	// First is asked when the sink holds nothing: up to where somebody else holds WAL, which is to be continued without a gap. A
	// position of 0 is nowhere. nil: nobody.
	First func(ctx context.Context) (protocol.Timeline, protocol.LSN)
	// Link makes the stream of a link connection. nil: frames are not asked for.
	Link func(LinkRequest) LinkStream
	// Logger gets state changes. nil: nothing is logged.
	Logger *zap.Logger
	// Metrics is updated if not nil.
	Metrics *Metrics
}

const defaultResetDistance = 4 << 20

func (o *Options) applyDefaults() error {
	orDuration := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	orDuration(&o.StatusInterval, 10*time.Second)
	orDuration(&o.ReceiverTimeout, 60*time.Second)
	orDuration(&o.BackoffMin, 100*time.Millisecond)
	orDuration(&o.BackoffMax, max(10*time.Second, o.BackoffMin))
	if o.ApplicationName == "" {
		o.ApplicationName = "walproxy"
	}
	if o.OverlapBytes == 0 {
		o.OverlapBytes = 128 << 10
	}
	if o.ResetDistance == 0 {
		o.ResetDistance = defaultResetDistance
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics(nil)
	}
	return o.validate()
}

func (o *Options) validate() error {
	switch {
	case o.StatusInterval < 0 || o.ReceiverTimeout < 0 || o.BackoffMin < 0 || o.BackoffMax < o.BackoffMin:
		return fmt.Errorf("walreceiver options: durations must be positive, and backoff's minimum below its maximum")
	case !link.ValidResetDistance(uint64(o.ResetDistance)):
		return fmt.Errorf("walreceiver options: reset distance %d: want a power of two from %d to %d",
			o.ResetDistance, link.MinResetDistance, link.MaxResetDistance)
	case o.CreateSlot && o.Slot == "":
		return fmt.Errorf("walreceiver options: a slot to create needs a name")
	}
	return nil
}
