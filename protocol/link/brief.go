package link

import "math/bits"

// A brief frame is a small piece of a stream: what a single commit leaves. Its checks have two bytes each, and a compact header
// is six or seven bytes long; see FORMAT.md.
const (
	flagBrief     = 0x80 // in the first byte of a compact header: a brief frame, the other bits are the payload's length
	briefUnit     = 8    // bytes of WAL that a brief header counts in
	briefLong     = 120  // units: from here on they take two bytes, of which the first is briefLong and their upper bits
	maxBriefRaw   = ((127-briefLong)<<8 | 255) * briefUnit
	maxBriefBytes = 127 // of payload
	briefBytes    = 1 + 1 + 2 + 2
	briefMask     = 0xffff
)

// brief reports whether frames with these properties are brief. It follows from what every header says.
func brief(continues bool, rawLen, payloadLen uint64) bool {
	return continues && payloadLen <= maxBriefBytes && rawLen%briefUnit == 0 && rawLen <= maxBriefRaw
}

// Brief reports whether the frame has checks of two bytes.
func (f *Frame) Brief() bool { return brief(f.Continues, uint64(f.RawLen), uint64(len(f.Payload))) }

// Holds reports whether wal is the WAL that f was made of, as far as its checksum says.
func (f *Frame) Holds(wal []byte) bool {
	sum := Checksum(wal)
	if f.Brief() {
		sum &= briefMask
	}
	return len(wal) == int(f.RawLen) && sum == f.RawSum
}

// appendBrief appends the compact header of a brief frame.
func (f *Frame) appendBrief(dst []byte) []byte {
	p, units := byte(len(f.Payload)), f.RawLen/briefUnit
	if r := byte(units); units < briefLong {
		dst = append(dst, flagBrief|p, r|briefParity(p, r))
	} else {
		r = briefLong + byte(units>>8)
		dst = append(dst, flagBrief|p, r|briefParity(p, r), byte(units))
	}
	dst = le.AppendUint16(dst, uint16(f.RawSum))
	return le.AppendUint16(dst, uint16(f.Sum))
}

// briefParity is the top bit of the second byte of a brief header. With it, a flipped bit in the first two bytes is always noticed,
// though the frame would end elsewhere.
func briefParity(payload, units byte) byte {
	return byte(bits.OnesCount8(payload^units)&1) << 7
}

// briefHeader reads the compact header of a brief frame, which continues c's stream, into f.
func (c *Cursor) briefHeader(f *Frame, b []byte) (n, payload int, err error) {
	f.Codec, f.Continues, f.Stream = c.Codec, true, c.Stream
	switch {
	case c.Timeline == 0:
		return 0, 0, f.corrupt("compact header without a predecessor")
	case c.Stream == 0:
		return 0, 0, &UnseenStreamError{Timeline: f.Timeline, LSN: f.Start}
	case c.Codec == CodecRaw:
		return 0, 0, f.corrupt("brief header behind another stream's frame")
	case len(b) < briefBytes:
		return 0, 0, ErrShort
	}
	p, r := b[0]&^flagBrief, b[1]&0x7f
	if b[1]&0x80 != briefParity(p, r) {
		return 0, 0, f.corrupt("parity of the lengths")
	}
	n, f.RawLen = briefBytes, uint32(r)*briefUnit
	if r >= briefLong {
		n++
		units := uint32(r-briefLong)<<8 | uint32(b[2])
		if units < briefLong {
			return 0, 0, f.corrupt("raw length in a longer form than it needs")
		}
		if f.RawLen = units * briefUnit; len(b) < n {
			return 0, 0, ErrShort
		}
	}
	f.RawSum, f.Sum = uint32(le.Uint16(b[n-4:])), uint32(le.Uint16(b[n-2:]))
	return n, int(p), c.check(f, byte(c.Codec)|flagContinues, uint64(f.RawLen), uint64(p))
}

// crc16 is the table of the CRC-16 with the polynomial x^16 + x^12 + x^5 + 1, which notices every error of up to three bits in
// as many bytes as a brief frame has.
var crc16 = func() (table [256]uint16) {
	for i := range table {
		v := uint16(i) << 8
		for range 8 {
			carry := v>>15 != 0
			if v <<= 1; carry {
				v ^= 0x1021
			}
		}
		table[i] = v
	}
	return table
}()

// checksum16 continues sum, all ones at first, over b.
func checksum16(sum uint16, b []byte) uint16 {
	for _, v := range b {
		sum = sum<<8 ^ crc16[byte(sum>>8)^v]
	}
	return sum
}
