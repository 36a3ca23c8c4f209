package model

import "slices"

const (
	neighbourLog   = 11
	neighbourCount = 1 << neighbourLog
	neighbourSpan  = 128 // entries looked at on either side
	maxNeighbours  = 24  // maps of a stream
)

// neighbour is one pair that was seen: the value v at the key k, and its fine part.
type neighbour struct {
	k, v, fine uint32
	used       bool
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
}

// find returns the pair whose key is nearest to k, among those close by.
func (t *neighbours) find(k uint32) *neighbour {
	i := int(k >> t.shift)
	if i >= neighbourCount {
		return nil
	}
	var best *neighbour
	distance := ^uint32(0)
	look := func(j int) {
		if j < 0 || j >= neighbourCount || !t.pairs[j].used {
			return
		}
		e := &t.pairs[j]
		if d := max(k, e.k) - min(k, e.k); best == nil || d < distance {
			best, distance = e, d
		}
	}
	for d := range neighbourSpan {
		look(i - d)
		if d > 0 {
			look(i + d)
			if best != nil {
				break
			}
		}
	}
	return best
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
	for k>>t.shift >= neighbourCount {
		t.shift++
		for i := range neighbourCount / 2 {
			e := t.pairs[2*i+1]
			if !e.used {
				e = t.pairs[2*i]
			}
			t.pairs[i] = e
		}
		clear(t.pairs[neighbourCount/2:])
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
	t.pairs[k>>t.shift] = neighbour{k: k, v: v, fine: fine, used: true}
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
	*t = neighbours{ctx: ctx}
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
