// Package rangecoder is a binary range coder with adaptive probabilities. One Coder works in either direction: every method
// codes the value it is given when encoding, and returns the value that was coded when decoding, so that a model written
// once over it cannot drift apart between the two sides. It is pure, uses integer arithmetic only, and gives the same bytes on
// every machine.
//
// The coded form of a frame is a number in base 256 that lies in an interval; bit one takes the lower part of the interval.
// Frames end at any time: Finish writes the shortest number inside the interval (a decoder reads zeros behind the end), which
// costs about a third of a byte. What was learnt goes on from frame to frame. A Coder can combine several predictions for each decision.
package rangecoder

import (
	"encoding/binary"
	"math/bits"
)

const (
	fullRange = ^uint64(0)
	minRange  = 1 << 32 // below it 32 bits leave the interval
	shiftBits = 32

	maxStripped = 8 // zero bytes left out at the end of a frame
)

// Coder is an encoder or a decoder of one frame at a time, with the probabilities that it has learnt. It is neither before the
// first call of Encode or Decode. Not safe for concurrent use.
type Coder struct {
	table    *table
	mixer    *mixer // nil: one prediction for each decision
	idle     *mixer // kept for when it is needed again
	decoding bool
	low      uint64 // encoder: the lower end of the interval, behind the bytes in buf
	code     uint64 // decoder: the coded number, relative to the lower end
	width    uint64 // of the interval
	buf      []byte // encoder: output, caller's buffer included; decoder: input
	base     int    // encoder: where this frame starts in buf; decoder: the next byte to read
	shifts   int    // how often 32 bits left the interval
}

// New returns a Coder that knows nothing, with one prediction for each decision.
func New() Coder { return Coder{table: new(table)} }

// Forget makes the Coder as it was made, but keeps its memory.
func (c *Coder) Forget() {
	clear(c.table[:])
	c.Predict(1)
}

// Predict has the Coder combine n predictions for each decision from now on, 1 to MaxPredictions. Both sides must do it in the same
// places. Each takes another MiB of memory, from the first time on.
func (c *Coder) Predict(n int) {
	if c.mixer != nil {
		c.mixer.forget()
		c.idle, c.mixer = c.mixer, nil
	}
	if n == 1 {
		return
	}
	if c.mixer = c.idle; c.mixer == nil {
		c.mixer = new(mixer)
	}
	c.mixer.use(n)
}

// Encode begins a frame that is appended to dst. The coder owns dst until Finish.
func (c *Coder) Encode(dst []byte) {
	*c = Coder{table: c.table, mixer: c.mixer, idle: c.idle, width: fullRange, buf: dst, base: len(dst)}
}

// Decode begins to read the frame in payload, which must stay unchanged until the next call of Encode or Decode.
func (c *Coder) Decode(payload []byte) {
	*c = Coder{table: c.table, mixer: c.mixer, idle: c.idle, decoding: true, width: fullRange, buf: payload}
	c.code = uint64(c.next())<<shiftBits | uint64(c.next())
}

// Decoding reports the direction.
func (c *Coder) Decoding() bool { return c.decoding }

// Overrun reports whether a decoder has read far enough behind the end of its payload that no encoder wrote it.
func (c *Coder) Overrun() bool { return c.decoding && c.base > len(c.buf)+2*shiftBits/8+maxStripped }

// Finish ends an encoder's frame and returns the buffer that Encode was given with the frame appended. The frame may be empty.
func (c *Coder) Finish() []byte {
	for n := 0; n <= 8; n++ {
		top, carry := bits.Add64(c.low, c.width-1, 0)
		keep := fullRange
		if n < 8 {
			keep = ^(fullRange >> (8 * n))
		}
		v := top & keep
		if carry == 0 && v < c.low {
			continue
		}
		if carry != 0 {
			c.carry()
		}
		for i := range n {
			c.buf = append(c.buf, byte(v>>(56-8*i)))
		}
		break
	}
	for i := 0; i < maxStripped && len(c.buf) > c.base && c.buf[len(c.buf)-1] == 0; i++ {
		c.buf = c.buf[:len(c.buf)-1]
	}
	dst := c.buf
	c.buf = nil
	return dst
}

// Spent returns the whole bits that the frame has taken so far. It is the same on both sides, so a model may learn from it.
func (c *Coder) Spent() int { return c.shifts*shiftBits + bits.LeadingZeros64(c.width) }

// Bits returns what an encoder has written in this frame, in 1/256 bit; differences attribute cost to fields.
func (c *Coder) Bits() int64 {
	used := bits.LeadingZeros64(c.width)
	fraction := int64(c.width<<used>>55) - 256 // linear between powers of two, good to 0.09 bit
	return int64(8*(len(c.buf)-c.base)+used)<<8 - fraction
}

// raise moves the lower end of an encoder's interval up.
func (c *Coder) raise(by uint64) {
	low, carry := bits.Add64(c.low, by, 0)
	if c.low = low; carry != 0 {
		c.carry()
	}
}

// carry adds one to the number in front of the interval. It cannot run out of the frame: the whole number stays below one.
func (c *Coder) carry() {
	for i := len(c.buf) - 1; i >= c.base; i-- {
		c.buf[i]++
		if c.buf[i] != 0 {
			return
		}
	}
}

// next reads 32 bits, zeros behind the end.
func (c *Coder) next() uint32 {
	at := c.base
	c.base += 4
	if at+4 <= len(c.buf) {
		return binary.BigEndian.Uint32(c.buf[at:])
	}
	if at > len(c.buf)+1<<20 {
		c.base = at // no need to count further, and no overflow
	}
	var v uint32
	for i := range 4 {
		v <<= 8
		if at+i < len(c.buf) {
			v |= uint32(c.buf[at+i])
		}
	}
	return v
}

// shift moves 32 bits out of the interval, which keeps width at or above minRange.
func (c *Coder) shift() {
	c.width <<= shiftBits
	c.shifts++
	if c.decoding {
		c.code = c.code<<shiftBits | uint64(c.next())
		return
	}
	c.buf = binary.BigEndian.AppendUint32(c.buf, uint32(c.low>>shiftBits))
	c.low <<= shiftBits
}
