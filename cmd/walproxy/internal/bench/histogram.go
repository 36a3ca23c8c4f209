package bench

import (
	"math/bits"
	"time"
)

// subBits of a duration in nanoseconds are kept below its highest bit: percentiles are right to 3 %.
const subBits = 4

// histogram counts durations in classes that grow with them; it takes the same memory however many there are.
type histogram struct {
	count   int64
	classes [64 << subBits]int64
}

func (h *histogram) add(d time.Duration) {
	h.classes[class(uint64(max(d, 0)))]++
	h.count++
}

func class(ns uint64) int {
	if ns < 1<<subBits {
		return int(ns)
	}
	exponent := bits.Len64(ns) - 1 - subBits
	return (exponent+1)<<subBits + int(ns>>exponent)&(1<<subBits-1)
}

// middle returns the nanoseconds in the middle of a class.
func middle(class int) float64 {
	if class < 1<<subBits {
		return float64(class)
	}
	exponent := class>>subBits - 1
	low := uint64(1<<subBits+class&(1<<subBits-1)) << exponent
	return float64(low) + float64(uint64(1)<<exponent)/2
}

func (h *histogram) merge(o *histogram) {
	h.count += o.count
	for i, n := range o.classes {
		h.classes[i] += n
	}
}

// percentile returns the duration, in microseconds, that p percent of all do not exceed; 0 if there are none.
func (h *histogram) percentile(p int64) float64 {
	rank := (h.count*p + 99) / 100
	for i, n := range h.classes {
		if rank -= n; n > 0 && rank <= 0 {
			return middle(i) / 1e3
		}
	}
	return 0
}
