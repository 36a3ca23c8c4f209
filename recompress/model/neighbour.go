package model

import (
	"math/bits"
	"slices"
)

const (
	neighbourLog   = 11
	neighbourCount = 1 << neighbourLog
	neighbourSpan  = 128 // entries looked at on either side
	maxNeighbours  = 24  // maps of a stream
)

// neighbour is one pair that was seen: the value v at the key k, and its fine part.
type neighbour struct {
	k, v, fine uint32
}

// neighbours predicts a number from another one that it grows with: a key from the place of its tuple, an index page from the
// key. It keeps one pair per stretch of keys and the slope between near pairs.
type neighbours struct {
	ctx   uint32
	shift uint
	slope int64 // in 1/65536
	seen  int
	cost  uint16 // bits, in 1/8, of what the last residuals took
	pairs [neighbourCount]neighbour
	used  [neighbourCount / 64]uint64 // pairs that were seen

	found    int // pair that find returned for foundKey, negative if it must look
	foundKey uint32
}

// find returns the pair whose key is nearest to k, of the next ones on either side that are close by; nil if there is none.
func (t *neighbours) find(k uint32) *neighbour {
	i := int(k >> t.shift)
	if i >= neighbourCount {
		return nil
	}
	if t.found >= 0 && t.foundKey == k {
		return &t.pairs[t.found]
	}
	best, distance := -1, ^uint32(0)
	low, high := t.below(i), t.above(i)
	if low >= 0 {
		best, distance = low, max(k, t.pairs[low].k)-min(k, t.pairs[low].k)
	}
	if high >= 0 && high != low {
		if d := max(k, t.pairs[high].k) - min(k, t.pairs[high].k); best < 0 || d < distance {
			best = high
		}
	}
	t.found, t.foundKey = best, k
	if best < 0 {
		return nil
	}
	return &t.pairs[best]
}

// below returns the last pair in use at i or in front of it, -1 if there is none close by.
func (t *neighbours) below(i int) int {
	for at := i; at >= 0 && at > i-neighbourSpan; at = at&^63 - 1 {
		if w := t.used[at/64] << (63 - at&63); w != 0 {
			return at - bits.LeadingZeros64(w)
		}
	}
	return -1
}

// above returns the first pair in use at i or behind it, -1 if there is none close by.
func (t *neighbours) above(i int) int {
	for at := i; at < neighbourCount && at < i+neighbourSpan; at = at&^63 + 64 {
		if w := t.used[at/64] >> (at & 63); w != 0 {
			return at + bits.TrailingZeros64(w)
		}
	}
	return -1
}

// predict returns the value expected at k.
func (t *neighbours) predict(k, fine uint32) uint32 {
	e := t.find(k)
	if e == nil {
		return 0
	}
	return e.v + uint32((int64(int32(k-e.k))*t.slope+1<<15)>>16) + fine - e.fine
}

// trusted reports whether predictions have been good enough to beat residuals of cost bits, in 1/8.
func (t *neighbours) trusted(cost uint16) bool { return t.seen > 16 && t.cost < cost }

// add notes that v came at k. miss is the length in bits of the residual against what predict said.
func (t *neighbours) add(k, v, fine uint32, miss int) {
	t.cost = uint16((int(t.cost)*7 + miss*8 + 4) / 8)
	if t.seen == 0 {
		t.shift = max(t.shift, uint(max(bits.Len32(k)-neighbourLog, 0)))
	}
	for k>>t.shift >= neighbourCount {
		t.widen()
	}
	if e := t.find(k); e != nil && e.k != k {
		step := (int64(int32(v-e.v)) - int64(int32(fine-e.fine))) << 16 / int64(int32(k-e.k))
		if t.seen == 0 {
			t.slope = step
		} else {
			limit := max(t.slope, -t.slope)>>min(10, 2+t.seen/16) + 1
			t.slope += max(-limit, min(limit, step-t.slope))
		}
	}
	t.seen++
	i := k >> t.shift
	t.pairs[i] = neighbour{k: k, v: v, fine: fine}
	t.used[i/64] |= 1 << (i % 64)
	t.found = -1
}

// widen makes each stretch of keys twice as long.
func (t *neighbours) widen() {
	t.shift++
	used := t.used
	t.used, t.found = [neighbourCount / 64]uint64{}, -1
	for i := range neighbourCount / 2 {
		j := 2*i + 1
		if used[j/64]>>(j%64)&1 == 0 {
			if j--; used[j/64]>>(j%64)&1 == 0 {
				continue
			}
		}
		t.pairs[i] = t.pairs[j]
		t.used[i/64] |= 1 << (i % 64)
	}
}

// neighbourMaps are the maps of a stream, by context.
type neighbourMaps struct {
	maps []*neighbours
	n    int
}

func (s *neighbourMaps) reset() { s.n = 0 }

// of returns the map of a context, or nil if there are too many.
func (s *neighbourMaps) of(ctx uint32) *neighbours {
	for _, t := range s.maps[:s.n] {
		if t.ctx == ctx {
			return t
		}
	}
	if s.n == maxNeighbours {
		return nil
	}
	if s.n == len(s.maps) {
		s.maps = append(s.maps, new(neighbours))
	}
	t := s.maps[s.n]
	*t = neighbours{ctx: ctx, found: -1}
	s.n++
	return t
}

// ofSlot returns the map of a word's context, which its slot remembers, or nil if there are too many.
func (s *neighbourMaps) ofSlot(w *slot, ctx uint32) *neighbours {
	if w.near > 0 && s.maps[w.near-1].ctx == ctx {
		return s.maps[w.near-1]
	}
	t := s.of(ctx)
	if t != nil {
		w.near = uint8(slices.Index(s.maps[:s.n], t) + 1)
	}
	return t
}
