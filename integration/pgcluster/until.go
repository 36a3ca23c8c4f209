package pgcluster

import (
	"context"
	"fmt"
	"time"
)

// Until calls condition again and again, at first every 2 ms and later every 100 ms, until it returns true or an error,
// or ctx ends. The error for the latter wraps ctx's cause.
func Until(ctx context.Context, condition func() (bool, error)) error {
	pause := 2 * time.Millisecond
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		done, err := condition()
		if done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("gave up waiting: %w", context.Cause(ctx))
		case <-timer.C:
		}
		pause = min(pause*3/2, 100*time.Millisecond)
		timer.Reset(pause)
	}
}
