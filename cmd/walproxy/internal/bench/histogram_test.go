package bench

import (
	"testing"
	"time"
)

func TestHistogram(t *testing.T) {
	var h, other histogram
	if got := h.percentile(50); got != 0 {
		t.Errorf("percentile of nothing is %g", got)
	}
	for i := range 1000 {
		h.add(time.Duration(i+1) * time.Microsecond)
		other.add(-time.Second)
		other.add(1 << 62)
	}
	for p, want := range map[int64]float64{1: 10, 50: 500, 99: 990, 100: 1000} {
		if got := h.percentile(p); got < want*0.97 || got > want*1.03 {
			t.Errorf("percentile %d is %g, want %g", p, got, want)
		}
	}
	h.merge(&other)
	if got := h.percentile(30); h.count != 3000 || got != 0 {
		t.Errorf("count %d, percentile 30 is %g", h.count, got)
	}
}
