package model

import (
	"math/bits"

	"walproxy/recompress/rangecoder"
)

const (
	classLog = 10
	slotLog  = 13
	pairLog  = 13
	rowWords = 64 // words of a part of a row
	rowBytes = 4 * rowWords
	rowParts = 2 // of rowBytes each

	longRowBytes = 64 // coded as words of a row that has more parts
	baseCount    = 4
	yieldSpan    = 64

	numberBonus = 12    // numbers that are this much longer than text, in 1/8 bit, are still better: they are faster
	textCost    = 5 * 8 // bits, in 1/8, that a byte of text is expected to take before it is known
)

// rowClass is what is known of rows of one kind: tuples of a relation, keys of an index.
type rowClass struct {
	ctx     uint32
	history uint32 // of the mask as last time
	mask    uint64 // words of the last row that were as expected
	row     [rowBytes]byte
	yield   int // how well text of this class has matched earlier text
	rows    uint32
}

// slot is what is known of one word of the rows of a class.
type slot struct {
	choice  uint8             // which prediction was right last
	history uint8             // of the expected one being right
	seen    bool              // cost holds something
	cost    [baseCount]uint16 // bits, in 1/8, of the residual against each base, smoothed
	text    uint16            // the same, of a byte of text
	gain    int16             // the same, saved by coding the word and the next as one number
	isWide  bool              // they are
	zeros   zeros
	digits  uint8  // rows in which it was nothing but hexadecimal digits
	step    uint32 // by how much it changed last, row to row
}

// word is one word of the row being coded.
type word struct {
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

// rows is the memory of tuples and keys.
type rows struct {
	classes []rowClass
	slots   []slot
	pairs   []companion
	words   [rowWords]word
	time    uint64   // last time of commit
	old     []byte   // the old version of the row being coded
	text    cursor   // in the row being coded
	head    [64]byte // header of the last tuple of a MULTI INSERT
	size    uint32   // its datalen
	wasText bool     // the last word was coded as text
}

func (t *rows) init() {
	t.classes = make([]rowClass, 1<<classLog)
	t.slots = make([]slot, 1<<slotLog)
	t.pairs = make([]companion, 1<<pairLog)
}

func (t *rows) reset() {
	clear(t.classes)
	clear(t.slots)
	clear(t.pairs)
	*t = rows{classes: t.classes, slots: t.slots, pairs: t.pairs, old: t.old[:0]}
}

// companion is a word that was written by a transaction that updated a row: a foreign key, likely.
type companion struct{ key, v uint32 }

func (t *rows) companion(w *word, row uint32) *companion {
	return &t.pairs[rangecoder.Hash(w.ctx, row)>>(32-pairLog)]
}

// class returns the class of a context.
func (t *rows) class(ctx uint32) *rowClass {
	c := &t.classes[ctx*0x9E3779B1>>(32-classLog)]
	if c.ctx != ctx {
		*c = rowClass{ctx: ctx}
	}
	return c
}

const (
	ctxMask = 0x0701_0000 + iota
	ctxWord
	ctxWordLiteral
	ctxWordBytes
	ctxWordNear = ctxWordBytes + 0x100 + iota
	ctxRowText
	ctxWordWide
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
	end := start + len(b)
	n := 0
	t := &m.rows
	for at := start; at < end; n++ {
		at = m.expect(c, &t.words[n], at, end, old, x)
	}
	words := t.words[:n]
	wides := t.pairs8(words)
	var hits uint64
	if !m.decoding {
		for i := range words {
			if w := &words[i]; (w.load(b[w.at-start:])^w.expected)&w.mask == 0 {
				hits |= 1 << i
			}
		}
	}
	hits = m.mask(c, words, hits&^(wides|wides<<1))
	c.rows++
	for i := 0; i < len(words); i++ {
		w := &words[i]
		if wides>>i&1 != 0 {
			m.widePair(c, w, &words[i+1], b[w.at-start:], x)
			i++
			continue
		}
		t.wasText = false
		v := w.expected
		if hits>>i&1 == 0 {
			v = m.miss(c, w, w.load(b[w.at-start:]), b, w.at-start, x)
			w.slot.history = w.slot.history << 1
		} else {
			w.slot.history = w.slot.history<<1 | 1
		}
		if m.decoding {
			for k := range w.n {
				b[w.at-start+k] = byte(v >> (8 * (w.low + k)))
			}
		}
		w.slot.step = v - w.previous
		if i > 0 && words[i-1].pairsWith(w) && (hits>>(i-1)&3 != 3 || words[i-1].slot.gain > -wideMargin) {
			words[i-1].learnWide(w, le.Uint32(b[words[i-1].at-start:]), v)
		}
		if !t.wasText {
			t.text = cursor{}
		}
		if !w.hasOld {
			for _, row := range x.chains[:x.nChains] {
				*t.companion(w, row) = companion{w.ctx ^ row, v}
			}
		}
	}
	copy(c.row[start:], b)
}

// widePair codes two words as one number.
func (m *model) widePair(c *rowClass, w, next *word, b []byte, x *xact) {
	low, high := m.wide(w, next, b)
	m.put32(b, low)
	m.put32(b[4:], high)
	w.slot.step, next.slot.step = low-w.previous, high-next.previous
	w.learnWide(next, low, high)
	m.rows.text = cursor{}
	if w.previous != low {
		x.note(low)
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

// expect prepares the word of a row at byte at, and returns where the next one begins.
func (m *model) expect(c *rowClass, w *word, at, end int, old version, x *xact) int {
	base := at &^ 3
	next := min(base+4, end)
	w.at, w.n, w.low = at, next-at, at-base
	w.mask = ^uint32(0)
	shape := uint32(0)
	if w.n < 4 {
		w.mask = (1<<(8*w.n) - 1) << (8 * w.low)
		shape = uint32(w.n + 4*w.low)
	}
	w.hasOld = at >= old.low && next <= old.high
	w.old = 0
	if w.hasOld {
		w.old = old.word(base)
		shape += 32
	}
	w.previous = le.Uint32(c.row[base:])
	w.ctx = rangecoder.Hash(c.ctx, uint32(base)<<8+shape)
	w.slot = &m.rows.slots[w.ctx>>(32-slotLog)]
	switch {
	case w.slot.choice != guessSame:
		w.expected = m.candidate(w, int(w.slot.choice), x)
	case w.hasOld:
		w.expected = w.old
	default:
		w.expected = w.previous
	}
	return next
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

// mask codes which words are as expected: as in the class's last row, or word by word.
func (m *model) mask(c *rowClass, words []word, hits uint64) uint64 {
	n := len(words)
	if n == 0 {
		return 0
	}
	all := ^uint64(0) >> (64 - n)
	last := c.mask & all
	same := m.flag(rangecoder.Hash(c.ctx, ctxMask), int(c.history&15), hits == last)
	c.history <<= 1
	if same {
		c.history |= 1
		return last
	}
	var out uint64
	for i := range words {
		w := &words[i]
		place := int(w.slot.history & 7)
		if last>>i&1 != 0 {
			place += 8
		}
		if m.flag(w.ctx+ctxWord, place, hits>>i&1 != 0) {
			out |= 1 << i
		}
	}
	c.mask = out | c.mask&^all
	return out
}

// miss codes a word that is not as expected: another prediction, a residual, or bytes.
func (m *model) miss(c *rowClass, w *word, v uint32, b []byte, at int, x *xact) uint32 {
	s := w.slot
	guess := guessCount
	if !m.decoding {
		for i := range guessCount {
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
		return m.candidate(w, guess, x)
	}
	v = m.residual(c, w, v, b, at, x)
	if w.hasOld {
		x.delta = v - w.old
	}
	if w.n == 4 {
		x.note(v)
	}
	return v
}

// residual codes a word against the base that has been nearest, or as bytes if none is near.
func (m *model) residual(c *rowClass, w *word, v uint32, b []byte, at int, x *xact) uint32 {
	s := w.slot
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
		if near = m.near.of(w.ctx); near != nil {
			guess = near.predict(x.upBlock, x.upItem)
		}
	}
	switch {
	case near != nil && near.trusted(s.cost[best]):
		v = guess + uint32(m.Int(m.table, w.ctx+ctxWordNear, int64(int32(v-guess))))
	case s.seen && int(s.cost[best]) < int(s.text)*w.n+numberBonus && (w.n == 4 || w.hasOld):
		v = bases[best] + uint32(m.Int(m.table, w.ctx+ctxWordBytes+uint32(best), int64(int32(v-bases[best]))))
	default:
		before := m.Spent()
		v = m.wordText(c, w, v, b, at)
		s.text = uint16((int(s.text)*7 + (m.Spent()-before)*8/w.n) / 8)
	}
	for i, base := range bases {
		s.cost[i] = uint16((int(s.cost[i])*7 + residualBits(v-base)*8 + 4) / 8)
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
func (m *model) wordText(c *rowClass, w *word, v uint32, b []byte, at int) uint32 {
	t, digits := &m.rows, &m.text.digits
	digits.run = int(w.slot.digits)
	tried := t.text.from > 0
	held := m.step(c.ctx, &t.text, b, at, w.n, nil, c.yield > -yieldSpan || c.rows%16 == 0)
	w.slot.digits = uint8(min(digits.run, 255))
	if held {
		c.yield = min(c.yield+8, yieldSpan)
	} else if tried {
		c.yield = max(c.yield-1, -yieldSpan)
	}
	for k := range w.n {
		shift := 8 * (w.low + k)
		v = v&^(255<<shift) | uint32(b[at+k])<<shift
	}
	m.rows.wasText = true
	return v
}
