package model

import "math/bits"

// misses codes the words that are not as expected, wides with the ones behind them.
func (m *model) misses(p *rowPart, b []byte, misses, wides uint64) {
	t, s := &m.rows, p.set
	t.textAt = p.first
	pairs := p.wholePairs((misses | misses>>1) & p.all & (p.all >> 1) &^ (p.hasOld | p.hasOld>>1) &^ wides)
	var w word
	for set := misses; set != 0; {
		i := bits.TrailingZeros64(set)
		if n := m.digitWords(p, b, i, set&^(wides|wides<<1)); n > 0 {
			set &^= span(i, i+n-1)
			pairs &^= span(i, i+n-1)
			continue
		}
		set &= set - 1
		if wides>>i&1 != 0 {
			m.widePair(p, i, b[4*i-p.start:])
			set &= set - 1
			continue
		}
		m.word(&w, p, i)
		if t.textAt != i {
			t.text = cursor{}
		}
		v := m.miss(p, &w, w.load(b[w.at-p.start:]), b)
		if m.decoding {
			for k := range w.n {
				b[w.at-p.start+k] = byte(v >> (8 * (w.low + k)))
			}
		}
		s.step(i, v-w.previous)
	}
	if t.textAt != p.last+1 {
		t.text = cursor{}
	}
	for ; pairs != 0; pairs &= pairs - 1 {
		i := bits.TrailingZeros64(pairs)
		s.learnWide(i, le.Uint64(p.class.row[4*i:]), le.Uint64(p.expected[4*i:]), le.Uint64(b[4*i-p.start:]))
	}
}

// Predictions of a word.
const (
	guessSame  = iota                      // as in the old version, or in the row before
	guessStep                              // the row before, and the step once more
	guessDelta                             // the old version, changed as the transaction changed another number
	guessValue                             // a number of the transaction
	guessChain = guessValue + xactValues/2 // what came with a row that the transaction updated, last time
	guessCount = guessChain + xactChains
)

// candidate returns what the guess says that word i of the part is.
func (t *rows) candidate(p *rowPart, i, guess int) uint32 {
	x, hasOld := p.xact, p.hasOld>>i&1 != 0
	switch guess {
	case guessSame:
		if hasOld {
			return p.old.word(4 * i)
		}
	case guessStep:
		return le.Uint32(p.class.row[4*i:]) + p.set.slots[i].step
	case guessDelta:
		if hasOld {
			return p.old.word(4*i) + x.delta
		}
		return x.delta
	default:
		if j := guess - guessValue; j < x.count && j < xactValues/2 {
			return x.values[j]
		}
		if j := guess - guessChain; j >= 0 && j < x.nChains && !hasOld && i < chainWords {
			if e, key := t.companion(p.class, x.chains[j]); e.key == key {
				return le.Uint32(e.row[4*i:])
			}
		}
	}
	return le.Uint32(p.class.row[4*i:])
}

// miss codes a word that is not as expected: another prediction, a residual, or bytes.
func (m *model) miss(p *rowPart, w *word, v uint32, b []byte) uint32 {
	s, x := w.slot, p.xact
	guess := guessCount
	if !m.decoding {
		last := guessCount
		if x.count|x.nChains == 0 {
			last = guessValue
		}
		for i := range last {
			if (m.rows.candidate(p, w.i, i)^v)&w.mask == 0 {
				guess = i
				break
			}
		}
	}
	if !m.Flag(w.ctx+ctxWordLiteral, int(s.choice&7), guess == guessCount) {
		if guess = m.Nibble(w.ctx+ctxWordLiteral<<1, guess); guess >= guessCount {
			guess = guessSame
		}
		s.choice = uint8(guess)
		p.set.odd &^= 1 << w.i
		if guess != guessSame {
			p.set.odd |= 1 << w.i
		}
		return m.rows.candidate(p, w.i, guess)
	}
	v = m.residual(p, w, v, b)
	if w.hasOld {
		x.delta = v - w.old
	}
	if w.n == 4 {
		x.note(v)
	}
	return v
}

// residual codes a word against the base that has been nearest, or as bytes if none is near.
func (m *model) residual(p *rowPart, w *word, v uint32, b []byte) uint32 {
	s, x := w.slot, p.xact
	bases := [baseCount]uint32{w.old, w.previous, uint32(m.rows.time), 0}
	if !w.hasOld {
		bases[0] = w.previous + s.step
	}
	best := s.best
	if !s.seen {
		s.text = textCost
	}
	var near *neighbours
	var guess uint32
	if x.updates > 0 && !w.hasOld && w.n == 4 && w.at < 16 {
		if near = m.near.ofSlot(s, w.ctx); near != nil {
			guess = near.predict(x.upBlock, x.upItem)
		}
	}
	switch {
	case near != nil && near.trusted(s.cost[best]):
		v = guess + uint32(m.Int(w.ctx+ctxWordNear, int64(int32(v-guess))))
	case s.seen && w.n == 4 && s.cost[best] >= noiseCost && s.text >= noiseText:
		v = uint32(m.Direct(32, uint64(v)))
	case s.seen && int(s.cost[best]) < int(s.text)*w.n+numberBonus && (w.n == 4 || w.hasOld):
		v = bases[best] + uint32(m.Int(w.ctx+ctxWordBytes+uint32(best), int64(int32(v-bases[best]))))
	default:
		before := m.Spent()
		v = m.wordText(p, w, v, b)
		s.text = uint16((int(s.text)*7 + (m.Spent()-before)*8/w.n) / 8)
	}
	s.best = 0
	for i, base := range bases {
		now := uint(residualBits(v-base)) * 8
		if s.seen {
			now = (uint(s.cost[i])*7 + now + 4) / 8
		}
		if s.cost[i] = uint16(now); s.cost[i] < s.cost[s.best] {
			s.best = uint8(i)
		}
	}
	if near != nil {
		near.add(x.upBlock, v, x.upItem, residualBits(v-guess))
	}
	s.seen = true
	return v
}

// residualBits returns the length in bits of a signed residual.
func residualBits(d uint32) int { return bits.Len32(d<<1 ^ uint32(int32(d)>>31)) }

// wordText codes the bytes of a word in the order of the row, and remembers them as text.
func (m *model) wordText(p *rowPart, w *word, v uint32, b []byte) uint32 {
	t, digits, c := &m.rows, &m.text.digits, p.class
	at := w.at - p.start
	digits.resume(w.slot, w.previous>>(8*w.low))
	tried := t.text.from > 0
	held := m.step(c.ctx, &t.text, b, at, w.n, nil, c.yield > -yieldSpan || c.rows%16 == 0)
	digits.keep(w.slot)
	if held {
		c.yield = min(c.yield+8, yieldSpan)
	} else if tried {
		c.yield = max(c.yield-1, -yieldSpan)
	}
	for k := range w.n {
		shift := 8 * (w.low + k)
		v = v&^(255<<shift) | uint32(b[at+k])<<shift
	}
	t.textAt = w.i + 1
	return v
}
