package model

import (
	"math/bits"

	"walproxy/recompress/rangecoder"
)

const (
	classLog = 10
	setLog   = 8
	pairLog  = 13
	rowWords = 64 // words of a part of a row
	rowBytes = 4 * rowWords
	rowParts = 2 // of rowBytes each

	longRowBytes = 64 // coded as words of a row that has more parts
	baseCount    = 4
	yieldSpan    = 64

	numberBonus = 12    // numbers that are this much longer than text, in 1/8 bit, are still better: they are faster
	textCost    = 5 * 8 // bits, in 1/8, that a byte of text is expected to take before it is known
	noiseCost   = 235   // bits, in 1/8, that a residual takes of a word that is noise: nothing is saved by a model
	noiseText   = 58    // the same, of a byte
	chainWords  = 16    // words of a row that may be foreign keys
)

// rowClass is what is known of rows of one kind: tuples of a relation, keys of an index.
type rowClass struct {
	ctx   uint32
	rows  uint32
	yield int       // how well text of this class has matched earlier text
	sets  [2]uint16 // what is known of its words, without and with an old version: places in rows.sets, from one on
	row   [rowBytes]byte
}

// wordSet is what is known of the words of a class. In a set of words, bit i stands for the word at byte 4*i.
type wordSet struct {
	history uint32              // of the hits being as in the last row
	hits    [historyRows]uint64 // words of the last rows that were as expected, latest first
	odd     uint64              // words whose choice is not guessSame
	moved   uint64              // words whose step is not zero
	wide    uint64              // words that are coded with the next as one number
	slots   [rowWords]slot
}

const historyRows = 4

// slot is what is known of one word of the rows of a class.
type slot struct {
	step   uint32            // by how much it changed last, row to row
	cost   [baseCount]uint16 // bits, in 1/8, of the residual against each base, smoothed
	text   uint16            // the same, of a byte of text
	gain   int16             // the same, saved by coding the word and the next as one number
	choice uint8             // which prediction was right last
	near   uint8             // its map of neighbours: from one on, 0 if it has none yet
	digits uint8             // rows in which its places were hexadecimal digits and the rest as before
	places uint8             // bytes that are such digits
	plain  uint8             // the last rows in which none of them was a letter
	seen   bool              // cost holds something
	zeros  zeros
}

// word is one word of the row being coded.
type word struct {
	i        int // number of the word
	at       int // in the row
	n        int // bytes that are coded
	low      int // bytes of the word in front of them
	mask     uint32
	old      uint32
	previous uint32
	expected uint32
	hasOld   bool
	slot     *slot
	ctx      uint32
}

// rowPart is a part of a row while it is coded.
type rowPart struct {
	class       *rowClass
	set         *wordSet
	xact        *xact
	start, end  int // bytes of the row
	first, last int // words
	all         uint64
	hasOld      uint64
	old         version
	expected    []byte // the part as it is expected to be, from byte 0 of the row
}

// rows is the memory of tuples and keys.
type rows struct {
	classes  []rowClass
	sets     []wordSet
	used     int // of sets
	pairs    []companion
	part     rowPart
	expected [rowBytes]byte
	time     uint64   // last time of commit
	old      []byte   // the old version of the row being coded
	text     cursor   // in the row being coded
	textAt   int      // word behind the last one that was coded as text
	head     [64]byte // header of the last tuple of a MULTI INSERT
	size     uint32   // its datalen
}

func (t *rows) init() {
	t.classes = make([]rowClass, 1<<classLog)
	t.sets = make([]wordSet, 1<<setLog)
	t.pairs = make([]companion, 1<<pairLog)
}

func (t *rows) reset() {
	for i := range t.classes {
		if c := &t.classes[i]; c.ctx != 0 || c.rows != 0 {
			*c = rowClass{}
		}
	}
	clear(t.sets[:min(t.used, len(t.sets))])
	clear(t.pairs)
	*t = rows{classes: t.classes, sets: t.sets, pairs: t.pairs, old: t.old[:0]}
}

// companion is a word that was written by a transaction that updated a row: a foreign key, likely.
type companion struct{ key, v uint32 }

func (t *rows) companion(w *word, row uint32) *companion {
	return &t.pairs[rangecoder.Hash(w.ctx, row)>>(32-pairLog)]
}

// class returns the class of a context.
func (t *rows) class(ctx uint32) *rowClass {
	c := &t.classes[ctx*0x9E3779B1>>(32-classLog)]
	if c.ctx != ctx || ctx == 0 {
		*c = rowClass{ctx: ctx}
	}
	return c
}

// set returns what is known of the words of a class. The sets that were taken first make room when there are too many classes.
func (t *rows) set(c *rowClass, i int) *wordSet {
	if at := c.sets[i]; at > 0 {
		return &t.sets[at-1]
	}
	at := t.used % len(t.sets)
	t.used++
	t.sets[at] = wordSet{}
	c.sets[i] = uint16(at + 1)
	return &t.sets[at]
}

const (
	ctxMask = 0x0701_0000 + iota
	ctxWord
	ctxWordLiteral
	ctxWordBytes
	ctxWordNear = ctxWordBytes + 0x100 + iota
	ctxRowText
	ctxWordWide
	ctxMaskPart
)

// row codes b, the part of a row that begins at byte start of it. old is what is known of the row's old version; values that the
// transaction x wrote earlier are predictions too. What is behind the parts that are coded as words is coded as text.
func (m *model) row(c *rowClass, b []byte, start int, old version, x *xact) {
	m.rows.text = cursor{}
	first, limit := c, rowBytes
	if start+len(b) > rowParts*rowBytes {
		limit = longRowBytes // more text than numbers, most likely
	}
	for k := range rowParts {
		if n := min(len(b), limit-start); n > 0 {
			if k > 0 {
				c = m.rows.class(first.ctx + uint32(k))
			}
			m.rowPart(c, b[:n], start, old, x)
			b, start = b[n:], limit
		}
		if len(b) == 0 {
			break
		}
		start -= limit
		old = old.from(limit)
		if limit != rowBytes {
			break
		}
	}
	m.mark(costValue)
	if len(b) > 0 {
		var rest []byte
		if old.low <= start && old.high > start {
			rest = old.data[start:old.high]
		}
		m.tail(first, b, rest)
		m.mark(costText)
	}
}

// from returns what is known of the row behind its first n bytes.
func (v version) from(n int) version {
	return version{v.data[min(n, len(v.data)):], max(v.low-n, 0), max(v.high-n, 0)}
}

// rowPart codes b, which begins at byte start of a part of a row and ends in it.
func (m *model) rowPart(c *rowClass, b []byte, start int, old version, x *xact) {
	t := &m.rows
	p := &t.part
	m.prepare(p, c, start, start+len(b), old, x)
	s := p.set
	wides := s.wide & p.all & (p.all >> 1) &^ (p.hasOld | p.hasOld>>1)
	if wides != 0 {
		wides = p.wholePairs(wides)
	}
	var hits uint64
	if !m.decoding {
		hits = p.hits(b) &^ (wides | wides<<1)
	}
	hits = m.mask(p, hits)
	c.rows++
	if m.decoding {
		copy(b, p.expected[start:])
	}
	p.settle(hits)
	if misses := p.all &^ hits; misses != 0 {
		m.misses(p, b, misses, wides)
		copy(c.row[start:], b)
	} else {
		t.text = cursor{}
		if s.odd|p.hasOld != 0 {
			copy(c.row[start:], b)
		}
	}
	if x.nChains > 0 && p.hasOld != p.all {
		m.accompany(p, b)
	}
}

// prepare fills p with what is expected of the part of a row from byte start to end.
func (m *model) prepare(p *rowPart, c *rowClass, start, end int, old version, x *xact) {
	p.class, p.xact, p.start, p.end, p.old = c, x, start, end, old
	p.first, p.last = start/4, (end-1)/4
	p.all = span(p.first, p.last)
	p.hasOld = 0
	kind := 0
	if old.high > old.low {
		low, high := p.first, p.last
		if old.low > start {
			low = (old.low + 3) / 4
		}
		if old.high < end {
			high = old.high/4 - 1
		}
		if low <= high {
			p.hasOld, kind = span(low, high), 1
		}
	}
	t := &m.rows
	p.set = t.set(c, kind)
	odd := p.set.odd & p.all
	if odd == 0 && p.hasOld == 0 {
		p.expected = c.row[:]
		return
	}
	p.expected = t.expected[:]
	copy(p.expected[4*p.first:4*p.last+4], c.row[4*p.first:])
	if p.hasOld != 0 {
		low, end := 4*bits.TrailingZeros64(p.hasOld), 4*bits.Len64(p.hasOld)
		n := copy(p.expected[low:end], old.data[min(low, len(old.data)):])
		clear(p.expected[low+n : end])
	}
	alone := x.count|x.nChains == 0
	for ; odd != 0; odd &= odd - 1 {
		i := bits.TrailingZeros64(odd)
		slot := &p.set.slots[i]
		if slot.choice == guessStep {
			le.PutUint32(p.expected[4*i:], le.Uint32(c.row[4*i:])+slot.step)
			continue
		}
		if alone && slot.choice >= guessValue && p.hasOld>>i&1 == 0 {
			continue // the row before, that is
		}
		var w word
		m.word(&w, p, i)
		le.PutUint32(p.expected[4*w.i:], m.candidate(&w, int(w.slot.choice), x))
	}
}

// span returns the words from low to high.
func span(low, high int) uint64 { return ^uint64(0) >> (63 - high) >> low << low }

// wholePairs returns those of the pairs that begin at an even word and have all their bytes.
func (p *rowPart) wholePairs(pairs uint64) uint64 {
	pairs &= 0x5555555555555555
	if p.start&3 != 0 {
		pairs &^= 1 << p.first
	}
	if p.end&3 != 0 {
		pairs &^= 1 << p.last >> 1
	}
	return pairs
}

// hits returns the words of b that are as expected.
func (p *rowPart) hits(b []byte) uint64 {
	e := p.expected[p.start:p.end]
	e = e[:len(b)]
	i, at := p.first, 0
	var misses uint64
	if n := min(-p.start&3, len(b)); n > 0 {
		if string(e[:n]) != string(b[:n]) {
			misses = 1 << i
		}
		i, at = i+1, n
	}
	for ; at+8 <= len(b); at += 8 {
		if d := le.Uint64(e[at:]) ^ le.Uint64(b[at:]); d != 0 {
			if uint32(d) != 0 {
				misses |= 1 << i
			}
			if d>>32 != 0 {
				misses |= 2 << i
			}
		}
		i += 2
	}
	if at+4 <= len(b) {
		if le.Uint32(e[at:]) != le.Uint32(b[at:]) {
			misses |= 1 << i
		}
		i, at = i+1, at+4
	}
	if at < len(b) && string(e[at:]) != string(b[at:]) {
		misses |= 1 << i
	}
	return p.all &^ misses
}

// settle learns from the words that were as expected.
func (p *rowPart) settle(hits uint64) {
	s := p.set
	for set := hits & s.moved &^ s.odd &^ p.hasOld; set != 0; set &= set - 1 {
		s.slots[bits.TrailingZeros64(set)].step = 0
	}
	s.moved &^= hits &^ s.odd &^ p.hasOld
	for set := hits & s.odd; set != 0; set &= set - 1 {
		i := bits.TrailingZeros64(set)
		if s.slots[i].choice == guessStep {
			continue
		}
		if step := le.Uint32(p.expected[4*i:]) - le.Uint32(p.class.row[4*i:]); step != 0 || s.moved>>i&1 != 0 {
			s.step(i, step)
		}
	}
}

// step notes by how much a word changed.
func (s *wordSet) step(i int, step uint32) {
	s.slots[i].step = step
	s.moved |= 1 << i
}

// misses codes the words that are not as expected, wides with the ones behind them.
func (m *model) misses(p *rowPart, b []byte, misses, wides uint64) {
	t, s := &m.rows, p.set
	t.textAt = p.first
	pairs := p.wholePairs((misses | misses>>1) & p.all & (p.all >> 1) &^ (p.hasOld | p.hasOld>>1) &^ wides)
	var w, next word
	for set := misses; set != 0; {
		i := bits.TrailingZeros64(set)
		if n := m.digitWords(p, b, i, set&^(wides|wides<<1)); n > 0 {
			set &^= span(i, i+n-1)
			pairs &^= span(i, i+n-1)
			continue
		}
		set &= set - 1
		m.word(&w, p, i)
		if wides>>i&1 != 0 {
			m.word(&next, p, i+1)
			m.widePair(p, &w, &next, b[w.at-p.start:])
			set &= set - 1
			continue
		}
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
		m.word(&w, p, i)
		m.word(&next, p, i+1)
		s.learnWide(&w, &next, b[w.at-p.start:])
	}
}

// accompany remembers the words of a row with the rows that its transaction updated.
func (m *model) accompany(p *rowPart, b []byte) {
	var w word
	for i := p.first; i <= min(p.last, p.first+chainWords); i++ {
		if m.word(&w, p, i); w.hasOld {
			continue
		}
		v := w.load(b[w.at-p.start:])
		for _, row := range p.xact.chains[:p.xact.nChains] {
			*m.rows.companion(&w, row) = companion{w.ctx ^ row, v}
		}
	}
}

// widePair codes two words as one number.
func (m *model) widePair(p *rowPart, w, next *word, b []byte) {
	low, high := m.wide(w, next, b)
	m.put32(b, low)
	m.put32(b[4:], high)
	p.set.step(w.i, low-w.previous)
	p.set.step(next.i, high-next.previous)
	p.set.learnWide(w, next, b)
	if w.previous != low {
		p.xact.note(low)
	}
}

// tail codes what is behind the words of a row.
func (m *model) tail(c *rowClass, b, old []byte) {
	if len(b) == len(old) && m.flag(c.ctx+ctxRowText, 0, string(b) == string(old)) {
		if m.decoding {
			copy(b, old)
		}
		return
	}
	for len(b) > 0 {
		n := min(len(b), sampleBytes)
		m.area(c.ctx+ctxRowText, &m.rows.text, b[:n], old)
		b, old = b[n:], old[min(n, len(old)):]
	}
}

// load returns the word whose coded bytes are at the start of b, with the old version's other bytes.
func (w *word) load(b []byte) uint32 {
	if w.n == 4 {
		return le.Uint32(b)
	}
	v := w.old &^ w.mask
	for k := range w.n {
		v |= uint32(b[k]) << (8 * (w.low + k))
	}
	return v
}

// word fills w with what is known of word i of the part. expected is what it was when the part began.
func (m *model) word(w *word, p *rowPart, i int) {
	base := 4 * i
	at, next := max(base, p.start), min(base+4, p.end)
	w.i, w.at, w.n, w.low = i, at, next-at, at-base
	w.mask = ^uint32(0)
	shape := uint32(0)
	if w.n < 4 {
		w.mask = (1<<(8*w.n) - 1) << (8 * w.low)
		shape = uint32(w.n + 4*w.low)
	}
	w.hasOld = p.hasOld>>i&1 != 0
	w.old = 0
	if w.hasOld {
		w.old = p.old.word(base)
		shape += 32
	}
	w.previous = le.Uint32(p.class.row[base:])
	w.expected = le.Uint32(p.expected[base:])
	w.ctx = rangecoder.Hash(p.class.ctx, uint32(base)<<8+shape)
	w.slot = &p.set.slots[i]
}

// word returns the four bytes at base, zero where the data ends.
func (v *version) word(base int) uint32 {
	if base+4 <= len(v.data) {
		return le.Uint32(v.data[base:])
	}
	var w uint32
	for i, c := range v.data[base:] {
		w |= uint32(c) << (8 * i)
	}
	return w
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

func (m *model) candidate(w *word, guess int, x *xact) uint32 {
	switch guess {
	case guessSame:
		if w.hasOld {
			return w.old
		}
	case guessStep:
		return w.previous + w.slot.step
	case guessDelta:
		return w.old + x.delta
	default:
		if i := guess - guessValue; i < x.count && i < xactValues/2 {
			return x.values[i]
		}
		if i := guess - guessChain; i >= 0 && i < x.nChains && !w.hasOld {
			if e := m.rows.companion(w, x.chains[i]); e.key == w.ctx^x.chains[i] {
				return e.v
			}
		}
	}
	return w.previous
}

// mask codes which words of the part are as expected: as in the last row, or word by word.
func (m *model) mask(p *rowPart, hits uint64) uint64 {
	s := p.set
	last := s.hits[0] & p.all
	g := m.table.Group(p.class.ctx + ctxMask)
	same := m.Flag(&g[s.history&15], hits == last)
	s.history <<= 1
	if same {
		s.history |= 1
		hits = last
	} else {
		hits = m.otherMask(p, hits)
	}
	for k := historyRows - 1; k > 0; k-- {
		s.hits[k] ^= (s.hits[k] ^ s.hits[k-1]) & p.all
	}
	s.hits[0] = s.hits[0]&^p.all | hits
	return hits
}

// otherMask codes which words are as expected: for eight words at a time, whether they are as in the last row, and each.
func (m *model) otherMask(p *rowPart, hits uint64) uint64 {
	s := p.set
	var out uint64
	for at := p.first &^ 7; at <= p.last; at += 8 {
		all := p.all & (255 << at)
		last := s.hits[0] & all
		if p.last-p.first >= 8 && m.flag(p.class.ctx+ctxMaskPart, at/8, hits&all == last) {
			out |= last
			continue
		}
		for ; all != 0; all &= all - 1 {
			i := bits.TrailingZeros64(all)
			place := s.hits[0]>>i&1 | s.hits[1]>>i&1<<1 | s.hits[2]>>i&1<<2 | s.hits[3]>>i&1<<3
			if m.flag(rangecoder.Hash(p.class.ctx+uint32(i), ctxWord), int(place), hits>>i&1 != 0) {
				out |= 1 << i
			}
		}
	}
	return out
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
			if (m.candidate(w, i, x)^v)&w.mask == 0 {
				guess = i
				break
			}
		}
	}
	g := m.table.Group(w.ctx + ctxWordLiteral)
	if !m.Flag(&g[s.choice&7], guess == guessCount) {
		if guess = m.Nibble(m.table.Group(w.ctx+ctxWordLiteral<<1), guess); guess >= guessCount {
			guess = guessSame
		}
		s.choice = uint8(guess)
		p.set.odd &^= 1 << w.i
		if guess != guessSame {
			p.set.odd |= 1 << w.i
		}
		return m.candidate(w, guess, x)
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
	best := 0
	for i := 1; i < baseCount; i++ {
		if s.cost[i] < s.cost[best] {
			best = i
		}
	}
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
		v = guess + uint32(m.Int(m.table, w.ctx+ctxWordNear, int64(int32(v-guess))))
	case s.seen && w.n == 4 && s.cost[best] >= noiseCost && s.text >= noiseText:
		v = uint32(m.Direct(32, uint64(v)))
	case s.seen && int(s.cost[best]) < int(s.text)*w.n+numberBonus && (w.n == 4 || w.hasOld):
		v = bases[best] + uint32(m.Int(m.table, w.ctx+ctxWordBytes+uint32(best), int64(int32(v-bases[best]))))
	default:
		before := m.Spent()
		v = m.wordText(p, w, v, b)
		s.text = uint16((int(s.text)*7 + (m.Spent()-before)*8/w.n) / 8)
	}
	for i, base := range bases {
		now := residualBits(v-base) * 8
		if s.seen {
			now = (int(s.cost[i])*7 + now + 4) / 8
		}
		s.cost[i] = uint16(now)
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
