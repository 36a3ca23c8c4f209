package rangecoder

import "math/bits"

// MaxPredictions is how many predictions for a decision can be combined.
const MaxPredictions = 4

const (
	weightBits = 16
	weightOne  = 1 << weightBits
	learnBits  = 18 // how slowly weights learn
	learnRate  = 6

	weightSetLog = 12
	usedLimit    = 31 // how often a probability was used, as far as weights depend on it

	// How many of the last bits the further predictions go by: of the context's own, of all, of all.
	ownBits    = 8
	recentBits = 12
	longBits   = 24
)

// mixer combines several predictions for each decision: the Coder's own of the context, and others of the context together with what
// was coded before. Each prediction is an adaptive probability; in the logistic domain they are added with weights, which learn which
// of them is worth how much, as in the PAQ family of compressors.
type mixer struct {
	n     int // predictions
	more  [MaxPredictions - 1]*table
	inUse [MaxPredictions]*group // of the decision or symbol in progress
	index uint32                 // of its context in the table

	own    [1 << tableLog]uint32 // the last bits coded in each context
	recent uint64                // the last bits coded

	// The weight of a prediction is the sum of what its context and how well known that is have taught. Both are small steps.
	byContext [1 << weightSetLog]weights
	byUse     [usedLimit + 1]weights
}

type weights [MaxPredictions]int32

// use begins with n predictions. The mixer was forgotten, or is new.
func (m *mixer) use(n int) {
	m.n = n
	for i := range n - 1 {
		if m.more[i] == nil {
			m.more[i] = new(table)
		}
	}
	first := weights{weightOne * 6 / 10}
	for i := 1; i < n; i++ {
		first[i] = weightOne * 6 / 10 / int32(n-1)
	}
	for i := range m.byContext {
		m.byContext[i] = first
	}
}

// forget makes the mixer as it was made, but keeps its memory.
func (m *mixer) forget() {
	for i := range m.n - 1 {
		clear(m.more[i][:])
	}
	clear(m.own[:])
	clear(m.byUse[:])
	m.recent = 0
}

// begin looks up the groups of a context.
func (m *mixer) begin(t *table, context uint32) {
	m.index = indexOf(context)
	m.inUse[0] = &t[m.index]
	histories := [...]uint64{uint64(m.own[m.index] & (1<<ownBits - 1)), m.recent & (1<<recentBits - 1), m.recent & (1<<longBits - 1)}
	for i := range m.n - 1 {
		h := (uint64(context) + histories[i]*0x9E3779B97F4A7C15 + uint64(i)) * 0xD6E8FEB86659FD93
		m.inUse[1+i] = &m.more[i][h>>(64-tableLog)]
	}
}

// end remembers the n bits that were coded.
func (m *mixer) end(n, v int) {
	m.recent = m.recent<<n | uint64(v)
	m.own[m.index] = m.own[m.index]<<n | uint32(v)
}

// mixedFlag is Flag with a mixer.
func (c *Coder) mixedFlag(context uint32, place int, flag bool) bool {
	c.mixer.begin(c.table, context)
	bit := 0
	if flag {
		bit = 1
	}
	bit = c.mixed(context, place&15, bit)
	c.mixer.end(1, bit)
	return bit != 0
}

// mixedSymbol is Symbol with a mixer.
func (c *Coder) mixedSymbol(context uint32, n, v int) int {
	c.mixer.begin(c.table, context)
	top, at := 1<<n, 1
	for i := n - 1; i >= 0; i-- {
		at = at<<1 | c.mixed(context, at&15, v>>i&1)
	}
	c.mixer.end(n, at-top)
	return at - top
}

// mixed codes a bit in one of the sixteen places of the context that was begun.
func (c *Coder) mixed(context uint32, place, bit int) int {
	m := c.mixer
	var in weights
	set := &m.byContext[(context<<4+uint32(place))*0x9E3779B1>>(32-weightSetLog)]
	use := &m.byUse[min(uint32(m.inUse[0][place])&countMask, usedLimit)]
	var sum int64
	for i := range m.n {
		in[i] = int32(stretch[(uint32(m.inUse[i][place])^even)>>(32-stretchLog)])
		sum += int64(in[i]) * int64(set[i]+use[i])
	}
	p := squash[min(max(sum>>weightBits, -maxLogit), maxLogit)+maxLogit]
	bit = c.split(c.width>>16*uint64(p), bit)
	e := (bit<<16 - int(p)) * learnRate
	for i := range m.n {
		d := int32((int(in[i])*e + 1<<(learnBits-1)) >> learnBits)
		set[i] += d
		use[i] += d
		m.inUse[i][place].learn(-uint64(bit))
	}
	return bit
}

// split codes a bit, of which one has the lower bound of the interval.
func (c *Coder) split(bound uint64, bit int) int {
	if c.decoding {
		if bit = 0; c.code < bound {
			bit = 1
		}
	}
	switch {
	case bit != 0:
		c.width = bound
	case c.decoding:
		c.width -= bound
		c.code -= bound
	default:
		c.width -= bound
		c.raise(bound)
	}
	if c.width < minRange {
		c.shift()
	}
	return bit
}

const (
	logitOne   = 256           // of the logarithm of odds
	maxLogit   = 11 * logitOne // odds of 1 to 60000
	stretchLog = 12
)

// logistic turns the logarithm of odds, in 1/logitOne from -maxLogit on, into a probability in 1/2^32. It is computed from integers,
// so that it is the same on every machine.
var logistic = func() (t [2*maxLogit + 1]uint32) {
	const step = 18374827034086858296 // 2^64 / exp(1/logitOne)
	odds := ^uint64(0)
	for k := range maxLogit + 1 {
		p, _ := bits.Div64(1<<31, 0, 1<<63+odds>>1) // 2^32 / (1 + odds)
		t[maxLogit+k], t[maxLogit-k] = uint32(p), uint32(-p)
		odds, _ = bits.Mul64(odds, step)
	}
	return t
}()

// squash is logistic in 1/65536, never 0.
var squash = func() (t [2*maxLogit + 1]uint16) {
	for i, p := range logistic {
		t[i] = uint16(max(p>>16, 1))
	}
	return t
}()

// stretch is the inverse of logistic, of a probability in 1/4096.
var stretch = func() (t [1 << stretchLog]int16) {
	x := 0
	for i := range t {
		for x < 2*maxLogit && logistic[x] < uint32(2*i+1)<<(31-stretchLog) {
			x++
		}
		t[i] = int16(x - maxLogit)
	}
	return t
}()
