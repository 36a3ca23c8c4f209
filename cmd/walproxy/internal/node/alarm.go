package node

import (
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// The alarm begins when the spool has filled this much of its cap, and ends when it has fallen below the lower mark.
const (
	alarmFill = 0.8
	quietFill = 0.7
)

// alarm says that the spool comes near its cap, and that it has reached it. Safe for concurrent use.
type alarm struct {
	near    atomic.Bool
	blocked atomic.Bool // the receiver waits for room

	mu    sync.Mutex // guards what follows
	since time.Time  // when the spool became full; zero while it is not
	said  time.Time  // when the log said so last
	last  time.Time  // when the receiver began to wait last
}

const (
	// fullAgainAfter is how long the log is silent about a spool that is full.
	fullAgainAfter = time.Minute
	// roomAfter is how long WAL must be taken in without a wait before a spool is no longer full: a consumer that is slow
	// makes room for one window at a time.
	roomAfter = 5 * time.Second
)

// fill returns how much of its cap the spool takes, from 0 to 1; 0 without a cap.
func (n *Node) fill() float64 {
	if n.config.Spool.Cap == 0 {
		return 0
	}
	return float64(n.log.State().Bytes) / float64(n.config.Spool.Cap)
}

// checkAlarm is called whenever the spool changes.
func (n *Node) checkAlarm() {
	fill := n.fill()
	switch {
	case fill >= alarmFill && !n.alarm.near.Swap(true):
		_, holds := n.holds(0, 0)
		fields := []zap.Field{zap.Float64("fill", fill), zap.String("when_full", string(n.config.Spool.WhenFull)),
			zap.String("held_by", furthestBehind(holds))}
		if d, growing := n.untilCap(time.Now()); growing {
			fields = append(fields, zap.Duration("full_in", d))
		}
		n.logger.Warn("the spool is nearly full", fields...)
	case fill < quietFill && n.alarm.near.Swap(false):
		n.logger.Info("the spool is no longer nearly full", zap.Float64("fill", fill))
	}
}

// untilCap returns when the spool will be full at the present rate; false if it does not grow or has no cap.
func (n *Node) untilCap(now time.Time) (time.Duration, bool) {
	rate := n.pulse.spool.Rate(now, rateWindow)
	if n.config.Spool.Cap == 0 || rate <= 0 {
		return 0, false
	}
	seconds := max(0, float64(n.config.Spool.Cap)-float64(n.log.State().Bytes)) / rate
	return time.Duration(min(seconds, maxForecast.Seconds()) * float64(time.Second)), true
}

// maxForecast bounds forecasts: what is further away is never.
const maxForecast = 100 * 365 * 24 * time.Hour

// blocks notes that the receiver waits for room. It is logged when that begins, and then once a minute.
func (n *Node) blocks(full error, now time.Time) {
	a := &n.alarm
	a.blocked.Store(true)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last = now
	begins := a.since.IsZero()
	if begins {
		a.since = now
	}
	if !begins && now.Sub(a.said) < fullAgainAfter {
		return
	}
	a.said = now
	_, holds := n.holds(0, 0)
	n.logger.Error("the spool is full; the upstream is not read until there is room", zap.Error(full),
		zap.String("held_by", furthestBehind(holds)), zap.Int64("bytes", n.log.State().Bytes), zap.Duration("since", now.Sub(a.since)))
}

// flows notes that WAL was taken in.
func (n *Node) flows() {
	if n.alarm.blocked.Load() {
		n.alarm.blocked.Store(false)
	}
}

// checkRoom is called every now and then. It logs that a spool is no longer full.
func (n *Node) checkRoom(now time.Time) {
	a := &n.alarm
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.since.IsZero() || a.blocked.Load() || now.Sub(a.last) < roomAfter {
		return
	}
	n.logger.Info("there is room in the spool again; the upstream is read on", zap.Int64("bytes", n.log.State().Bytes),
		zap.Duration("after", a.last.Sub(a.since)))
	a.since = time.Time{}
}
