package slots

import (
	"testing"
	"time"
)

func TestPace(t *testing.T) {
	var p Pace
	start := time.Unix(1e9, 0)
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	behind := func(what string, now int, value uint64, want time.Duration) {
		t.Helper()
		if got := p.Behind(at(now), value); got != want {
			t.Errorf("%s: behind for %s, want %s", what, got, want)
		}
	}
	behind("without a sample", 0, 5, 0)
	if got := p.Rate(at(0), time.Minute); got != 0 {
		t.Errorf("rate without a sample: %v", got)
	}
	for i := range 11 { // 100 per second
		p.Add(at(i), uint64(i)*100)
	}
	behind("who has everything", 10, 1000, 0)
	behind("who has more", 10, 2000, 0)
	behind("who has it all but the last second", 10, 900, 0) // 1000 was reached at 10, just now
	behind("half", 10, 500, 4*time.Second)
	behind("between samples", 10, 550, 4*time.Second)
	behind("later", 15, 550, 9*time.Second)
	behind("further than is known", 10, 0, 9*time.Second)
	if got := p.Rate(at(10), time.Minute); got != 100 {
		t.Errorf("rate %v", got)
	}
	if got := p.Rate(at(12), 5*time.Second); got != 100 {
		t.Errorf("rate of the last seconds %v", got)
	}
	if got := p.Rate(at(100), 5*time.Second); got != 0 {
		t.Errorf("rate long after the last sample: %v", got)
	}
	for i := 11; i < 100; i++ {
		p.Add(at(i), 1000)
	}
	behind("idle, everything", 99, 1000, 0)
	behind("idle, not everything", 99, 950, 87*time.Second) // 89 really: old samples are four seconds apart
	if got := p.Rate(at(99), time.Minute); got != 0 {
		t.Errorf("rate while idle: %v", got)
	}
	p.Add(at(100), 400) // back, as a spool from which WAL is removed
	if got := p.Rate(at(100), 2*time.Second); got != -300 {
		t.Errorf("rate of a fall: %v", got)
	}
	behind("after a fall", 100, 400, 0)
}

// A Pace that is fed for long reaches back to its beginning, with an error that grows with the age.
func TestPaceReachesBack(t *testing.T) {
	var p Pace
	start := time.Unix(1e9, 0)
	const n = 100000
	for i := range n {
		p.Add(start.Add(time.Duration(i)*time.Second), uint64(i))
	}
	now := start.Add((n - 1) * time.Second)
	for _, value := range []uint64{n - 2, n - 50, n - 120, n - 1000, n / 2, 0} {
		want := time.Duration(n-2-value) * time.Second // since value+1 was reached
		got := p.Behind(now, value)
		if got > want || got < want-want/10-time.Second {
			t.Errorf("at %d: behind for %s, want about %s", value, got, want)
		}
	}
	if got := testing.AllocsPerRun(1000, func() { now = now.Add(time.Second); p.Add(now, uint64(now.Unix())) }); got != 0 {
		t.Errorf("%v allocations", got)
	}
}
