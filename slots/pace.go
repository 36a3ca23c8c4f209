package slots

import (
	"sync"
	"time"
)

// A Pace keeps so many samples on each level, and so many levels: with a sample each second it reaches back 12 days.
const (
	paceLevels  = 16
	paceSamples = 32
)

// Pace remembers when a value that normally grows, an LSN or a number of bytes, had which size: how long ago did a position
// come by, how fast does it move? Level 0 holds the newest samples, level k every 2^k-th one, so that ages are known to about a
// thirtieth, with one sampling interval as the least. The zero value is ready; safe for concurrent use; nothing is allocated.
type Pace struct {
	mu     sync.Mutex
	count  uint64 // of all samples ever added
	levels [paceLevels]paceLevel
	newest paceSample
}

type paceSample struct {
	at    int64 // nanoseconds since 1970
	value uint64
}

// paceLevel is a ring.
type paceLevel struct {
	samples [paceSamples]paceSample
	added   uint64
}

func (l *paceLevel) add(s paceSample) {
	l.samples[l.added%paceSamples] = s
	l.added++
}

func (l *paceLevel) held() int { return int(min(l.added, paceSamples)) }

// back returns the i-th newest sample, from 0 on.
func (l *paceLevel) back(i int) paceSample { return l.samples[(l.added-1-uint64(i))%paceSamples] }

// Add notes the value at a time that is not before the last one. The value may go back: another timeline, WAL that was removed.
func (p *Pace) Add(at time.Time, value uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.newest = paceSample{at.UnixNano(), value}
	for k := range p.levels {
		if p.count%(1<<k) != 0 {
			break
		}
		p.levels[k].add(p.newest)
	}
	p.count++
}

// Behind returns for how long there has been more than value: the age of the oldest byte that somebody at value lacks. It is 0
// for somebody who has everything, and a lower bound for one who is further behind than was sampled.
func (p *Pace) Behind(now time.Time, value uint64) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.count == 0 || p.newest.value <= value {
		return 0
	}
	oldest := p.newest
	for k := range p.levels {
		level := &p.levels[k]
		for i := range level.held() {
			s := level.back(i)
			if s.value <= value {
				return p.age(now, oldest)
			}
			if s.at < oldest.at {
				oldest = s
			}
		}
		if level.held() < paceSamples { // the level holds the very first sample
			break
		}
	}
	return p.age(now, oldest)
}

func (p *Pace) age(now time.Time, s paceSample) time.Duration {
	return max(time.Duration(now.UnixNano()-s.at), 0)
}

// Rate returns the growth per second over the last window, which may be negative; 0 with less than two samples in it.
func (p *Pace) Rate(now time.Time, window time.Duration) float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	from := p.newest
	for k := range p.levels {
		level := &p.levels[k]
		for i := range level.held() {
			s := level.back(i)
			if now.UnixNano()-s.at > int64(window) {
				return growth(from, p.newest)
			}
			if s.at < from.at {
				from = s
			}
		}
		if level.held() < paceSamples {
			break
		}
	}
	return growth(from, p.newest)
}

func growth(from, to paceSample) float64 {
	if to.at <= from.at {
		return 0
	}
	return (float64(to.value) - float64(from.value)) / time.Duration(to.at-from.at).Seconds()
}
