package continuous

import (
	"errors"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"

	"walproxy/archive"
	"walproxy/protocol/link"
)

// sayAgainAfter is how long the log is silent about the same trouble.
const sayAgainAfter = time.Minute

// failures is what went wrong lately.
type failures struct {
	count int // in a row
	since time.Time
	said  time.Time
}

// failed notes a failed attempt and returns how long to wait before the next one.
func (a *Archiver) failed(err error) time.Duration {
	f, now := &a.failures, a.now()
	a.opt.Metrics.failures.Inc()
	a.opt.Metrics.failing.Set(1)
	if f.count == 0 {
		f.since = now
	}
	f.count++
	stays := refused(err)
	if stays {
		a.opt.Metrics.refused.Set(1)
	}
	if f.count == 1 || now.Sub(f.said) >= sayAgainAfter {
		f.said = now
		fields := []zap.Field{zap.Error(err), zap.Stringer("lsn", a.done.lsn), zap.Int("attempts", f.count), zap.Duration("since", now.Sub(f.since))}
		if stays {
			a.log.Error("the archive does not take this WAL; it stays in the spool until somebody has looked", fields...)
		} else {
			a.log.Warn("WAL cannot be archived now; it stays in the spool", fields...)
		}
	}
	if stays {
		return a.opt.RetryMax
	}
	// From half of it to all of it, so that nodes that failed together do not come again together.
	most := min(a.opt.RetryMin<<min(f.count-1, 16), a.opt.RetryMax)
	return most/2 + rand.N(most/2+1)
}

// refused reports whether trying again does not help.
func refused(err error) bool {
	var conflict *archive.ConflictError
	var cluster *archive.IdentityError
	var version *archive.VersionError
	return errors.As(err, &conflict) || errors.As(err, &cluster) || errors.As(err, &version) || errors.Is(err, link.ErrCorrupt)
}

// recovered notes an attempt that did not fail.
func (a *Archiver) recovered() {
	f := &a.failures
	if f.count == 0 {
		return
	}
	a.log.Info("WAL is archived again", zap.Int("attempts", f.count), zap.Duration("after", a.now().Sub(f.since)))
	*f = failures{}
	a.opt.Metrics.failing.Set(0)
	a.opt.Metrics.refused.Set(0)
}
