package rangecoder

// prob is an adaptive probability: how likely the next bit is one, and how often it was used. The zero prob is even odds and
// learns fastest. The upper 22 bits hold the probability with its top bit inverted, the lower 10 the count.
type prob uint32

const (
	countBits  = 10
	countMask  = 1<<countBits - 1
	countLimit = 90 // the slowest rate is about 1/91
	even       = 1 << 31
	certain    = 1<<(32-countBits) - 1
	rateBits   = 16
	one        = ^uint64(0) // a bit of value one, as a mask
)

// rate[n] is the share, in 1/65536, by which a probability used n times moves towards the bit; above it is one, if n still grows.
var rate = func() (r [countMask + 1]uint32) {
	for n := range r {
		r[n] = uint32(10 << rateBits / (10*min(n, countLimit) + 16))
		if n < countLimit {
			r[n] |= 1 << rateBits
		}
	}
	return r
}()

// Flag codes a truth value in one of the sixteen places of a context. It branches on the value, as its callers do.
func (c *Coder) Flag(context uint32, place int, flag bool) bool {
	if c.mixer != nil {
		return c.mixedFlag(context, place, flag)
	}
	p := &c.table.group(context)[place&15]
	bound := p.share(c.width)
	if c.decoding {
		flag = c.code < bound
	}
	if flag {
		c.width = bound
		p.learn(one)
	} else {
		c.width -= bound
		p.learn(0)
		if c.decoding {
			c.code -= bound
		} else {
			c.raise(bound)
		}
	}
	if c.width < minRange {
		c.shift()
	}
	return flag
}

// Bit is Flag for a bit, 0 or 1.
func (c *Coder) Bit(context uint32, place int, bit int) int {
	if c.Flag(context, place, bit != 0) {
		return 1
	}
	return 0
}

// share returns the part of an interval that belongs to bit one.
func (p *prob) share(width uint64) uint64 { return width >> 16 * uint64((uint32(*p)^even)>>16|1) }

// learn moves the probability towards the bit that mask stands for: one, or 0.
func (p *prob) learn(mask uint64) {
	v := int64(int32(*p))
	r := rate[v&countMask]
	d := int64(mask&(certain<<countBits)) - even - v&^countMask
	*p = prob(uint32(v+d*int64(r&(1<<rateBits-1))>>rateBits&^countMask) + r>>rateBits)
}

// Direct codes the low n bits of v, n at most 64, at even odds and without a model.
func (c *Coder) Direct(n int, v uint64) uint64 {
	var out uint64
	for n > directBits {
		n -= directBits
		out = out<<directBits | c.direct(directBits, v>>(n&63)&(1<<directBits-1))
	}
	return out<<(n&63) | c.direct(n, v&(1<<(n&63)-1))
}

// Bytes codes b at even odds and without a model; a decoder fills it.
func (c *Coder) Bytes(b []byte) {
	for ; len(b) >= directBits/8; b = b[directBits/8:] {
		v := c.direct(directBits, uint64(b[0])|uint64(b[1])<<8|uint64(b[2])<<16)
		if c.decoding {
			b[0], b[1], b[2] = byte(v), byte(v>>8), byte(v>>16)
		}
	}
	for i := range b {
		if v := c.direct(8, uint64(b[i])); c.decoding {
			b[i] = byte(v)
		}
	}
}

// directBits is how many bits are coded in one step. The interval loses less than 1/256 by it, as a rule next to nothing.
const directBits = 24

// direct codes k bits, at most directBits, in one step.
func (c *Coder) direct(k int, v uint64) uint64 {
	step := c.width >> (k & 63)
	if c.decoding {
		v = min(c.code/step, 1<<(k&63)-1)
		c.code -= v * step
	} else {
		c.raise(v * step)
	}
	c.width = step
	if c.width < minRange {
		c.shift()
	}
	return v
}

// Uniform codes a number below n, which all are as likely. n is at least 1 and at most 1<<28.
func (c *Coder) Uniform(n uint32, v uint32) uint32 {
	step := c.width / uint64(n)
	if c.decoding {
		v = uint32(min(c.code/step, uint64(n-1)))
		c.code -= uint64(v) * step
	} else {
		c.raise(uint64(v) * step)
	}
	c.width = step
	if c.width < minRange {
		c.shift()
	}
	return v
}
