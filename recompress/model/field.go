package model

import "walproxy/recompress/rangecoder"

const (
	fieldLog   = 13
	noPick     = 15 // no candidate is right
	maxPicks   = 15
	historyLen = 3
)

// choice is what a context remembers of its candidates: which was right last, and for how long that has held.
type choice struct{ last, history uint8 }

// fields is the memory of the small fields.
type fields struct {
	choices [1 << fieldLog]choice
}

func (f *fields) reset() { clear(f.choices[:]) }

// pick codes which of the candidates is v: the one that was right last time, most likely. It returns noPick if none is; the
// caller codes v in full then.
func (m *model) pick(context uint32, candidates []uint32, v uint32) int {
	s := &m.field.choices[context*0x85EBCA6B>>(32-fieldLog)]
	last, n := int(s.last), min(len(candidates), maxPicks)
	if last >= n && last != noPick {
		last = 0
	}
	index := noPick
	if !m.decoding {
		if last < n && candidates[last] == v {
			index = last
		} else {
			for i, c := range candidates[:n] {
				if c == v {
					index = i
					break
				}
			}
		}
	}
	hit := m.Flag(context, int(s.history&(1<<historyLen-1)), index == last)
	s.history <<= 1
	if hit {
		s.history |= 1
		index = last
	} else if n == 1 {
		index = noPick
		if last == noPick {
			index = 0
		}
	} else {
		index = m.Nibble(context+0x5bd1e995, index)
		if index >= n {
			index = noPick
		}
	}
	s.last = uint8(index)
	return index
}

// u16 codes a number of 16 bits: one of the candidates, or a literal near its last neighbours.
func (m *model) u16(context uint32, candidates []uint32, v uint32) uint32 {
	if i := m.pick(context, candidates, v); i != noPick {
		return candidates[i]
	}
	return m.literal16(context+1, v)
}

// literal16 codes a number of 16 bits in full.
func (m *model) literal16(context, v uint32) uint32 {
	if !m.Flag(context, 0, v > 255) { // the group's tree begins behind its first place
		return uint32(m.Byte(context, byte(v)))
	}
	high := m.Byte(context+1<<24, byte(v>>8))
	return uint32(high)<<8 | uint32(m.Byte(rangecoder.Hash(context, uint32(high)+0x300), byte(v)))
}

// u32 codes a number of 32 bits: one of the candidates, or its distance from the first.
func (m *model) u32(context uint32, candidates []uint32, v uint32) uint32 {
	if i := m.pick(context, candidates, v); i != noPick {
		return candidates[i]
	}
	return candidates[0] + uint32(m.Int(context+1, int64(int32(v-candidates[0]))))
}

// byteLike codes a byte that is usually what it was before.
func (m *model) byteLike(context uint32, before, v byte) byte {
	if m.Flag(context, int(before&15), v == before) {
		return before
	}
	return m.Byte(context+1, v)
}

// get and put of parts of a record: an encoder's record is the caller's and is never written to.

func (m *model) put16(b []byte, v uint32) {
	if m.decoding {
		le.PutUint16(b, uint16(v))
	}
}

func (m *model) put32(b []byte, v uint32) {
	if m.decoding {
		le.PutUint32(b, v)
	}
}

func (m *model) put8(b []byte, v byte) {
	if m.decoding {
		b[0] = v
	}
}

// Bytes behind the end of a reference read as zero.

func at8(b []byte, i int) byte {
	if i < len(b) {
		return b[i]
	}
	return 0
}

func at16(b []byte, i int) uint32 {
	if i+2 <= len(b) {
		return uint32(le.Uint16(b[i:]))
	}
	return 0
}

func at32(b []byte, i int) uint32 {
	if i+4 <= len(b) {
		return le.Uint32(b[i:])
	}
	return 0
}
