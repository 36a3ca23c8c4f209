package model

import "walproxy/recompress/rangecoder"

const (
	classLog = 10
	setLog   = 8
	rowLog   = 10
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
	chainWords  = 15    // words of a row that may be foreign keys
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
	history uint32    // of the hits being as in the last row
	hits    [4]uint64 // words of the last rows that were as expected, latest first
	odd     uint64    // words whose choice is not guessSame
	moved   uint64    // words whose step is not zero
	wide    uint64    // words that are coded with the next as one number
	slots   [rowWords]slot
}

// slot is what is known of one word of the rows of a class.
type slot struct {
	step   uint32            // by how much it changed last, row to row
	cost   [baseCount]uint16 // bits, in 1/8, of the residual against each base, smoothed
	text   uint16            // the same, of a byte of text
	best   uint8             // the base with the least cost
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

// rows is the memory of tuples and keys.
type rows struct {
	classes  []rowClass
	sets     []wordSet
	used     int // of sets
	written  []companion
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
	t.written = make([]companion, 1<<rowLog)
}

func (t *rows) reset() {
	for i := range t.classes {
		if c := &t.classes[i]; c.ctx != 0 || c.rows != 0 {
			*c = rowClass{}
		}
	}
	clear(t.sets[:min(t.used, len(t.sets))])
	clear(t.written)
	*t = rows{classes: t.classes, sets: t.sets, written: t.written, old: t.old[:0]}
}

// companion is a row of a class that was written by a transaction that updated another row, which is a foreign key in it, likely.
type companion struct {
	key uint32
	row [4 * chainWords]byte
}

// companion returns the place for what came last with the row of that number in a class, and the key that it is known by.
func (t *rows) companion(c *rowClass, row uint32) (*companion, uint32) {
	return &t.written[rangecoder.Hash(c.ctx, row)>>(32-rowLog)], c.ctx ^ row
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
	if len(b) == wideBytes && start == 0 && old.high <= old.low && m.wideKey(c, b, x) {
		return
	}
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

// tail codes what is behind the words of a row.
func (m *model) tail(c *rowClass, b, old []byte) {
	if len(b) == len(old) && m.Flag(c.ctx+ctxRowText, 0, string(b) == string(old)) {
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
