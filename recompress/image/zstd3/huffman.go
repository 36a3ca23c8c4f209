package zstd3

import "encoding/binary"

const (
	maxHuffBits = 11
	maxWeight   = 12 // the library sizes the alphabet of weights for one bit more
	weightLog   = 6
	firstInner  = 256 // nodes[firstInner:] are inner nodes
)

// huffNode is a leaf (symbol set) or an inner node of the tree.
type huffNode struct {
	count  uint32
	parent uint16
	symbol uint8
	bits   uint8
}

// huffCode is a symbol's code and its length.
type huffCode struct {
	code uint16
	bits uint8
}

// huffman codes literals with a table of the block's own. It owns its arrays; the zero value is ready.
type huffman struct {
	counts  [256]uint32
	nodes   [2 * firstInner]huffNode
	codes   [256]huffCode
	weights [256]uint8
	fse     fseTable
}

// write writes table and streams for src, at least minHuffLiterals bytes, to buf, which has room. It returns their length, 1 when all of
// src is one byte, or 0 when the library would not try or not succeed.
func (h *huffman) write(buf, src []byte, oneStream bool, profile Profile) int {
	h.counts = [256]uint32{}
	for _, c := range src {
		h.counts[c]++
	}
	top, most := 0, 0
	for s, n := range h.counts {
		if n > 0 {
			top = s
			most = max(most, int(n))
		}
	}
	if most == len(src) {
		return 1
	}
	if most <= len(src)>>7+4 {
		return 0 // too flat to gain anything
	}
	last := h.sort(top, profile.unstableSort())
	h.grow(last)
	log := h.limit(last, tableLogFor(maxHuffBits, len(src), top, 1))
	h.assign(top, last, log)
	at := h.writeTable(buf, top, log, profile)
	if at == 0 || at+12 >= len(src) {
		return 0
	}
	if oneStream {
		at = h.writeStream(buf, at, src)
	} else {
		jump := at
		at += 6
		quarter := (len(src) + 3) / 4
		for i := range 3 {
			begin := at
			at = h.writeStream(buf, at, src[i*quarter:(i+1)*quarter])
			binary.LittleEndian.PutUint16(buf[jump+2*i:], uint16(at-begin))
		}
		at = h.writeStream(buf, at, src[3*quarter:])
	}
	if at >= len(src)-1 {
		return 0
	}
	return at
}

// writeStream writes src's codes, last byte first, to buf[at:] and returns where they end.
func (h *huffman) writeStream(buf []byte, at int, src []byte) int {
	w := bitWriter{buf: buf, at: at}
	i := len(src)
	for ; i&3 != 0; i-- {
		w.addCode(h.codes[src[i-1]])
	}
	w.flush()
	for ; i > 0; i -= 4 {
		four := src[i-4 : i]
		w.addCode(h.codes[four[3]])
		w.addCode(h.codes[four[2]])
		w.addCode(h.codes[four[1]])
		w.addCode(h.codes[four[0]])
		w.flush()
	}
	return w.close()
}

func (w *bitWriter) addCode(c huffCode) { w.add(uint64(c.code), uint(c.bits)) }

// assign gives each symbol up to top its code: shorter lengths get the higher values, equal lengths ascend with the symbol (RFC 8878, 4.2.1).
func (h *huffman) assign(top, last, log int) {
	var perLength, value [maxHuffBits + 2]uint16
	for i := range h.codes[:top+1] {
		h.codes[i] = huffCode{}
	}
	for _, n := range h.nodes[:last+1] {
		h.codes[n.symbol].bits = n.bits
		perLength[n.bits]++
	}
	low := uint16(0)
	for n := log; n > 0; n-- {
		value[n] = low
		low = (low + perLength[n]) >> 1
	}
	for i := range h.codes[:top+1] {
		c := &h.codes[i]
		c.code = value[c.bits]
		value[c.bits]++
	}
}

// writeTable writes the weights of all symbols below top, whose own follows from them (RFC 8878, 4.2.1), and returns the length, or 0
// when neither form can hold them.
func (h *huffman) writeTable(buf []byte, top, log int, profile Profile) int {
	for i, c := range h.codes[:top] {
		h.weights[i] = 0
		if c.bits > 0 {
			h.weights[i] = uint8(log + 1 - int(c.bits))
		}
	}
	if n := h.writeWeights(buf[1:], h.weights[:top], profile); n > 1 && n < top/2 {
		buf[0] = byte(n)
		return n + 1
	}
	if top > 128 {
		return 0
	}
	h.weights[top] = 0
	buf[0] = byte(127 + top)
	for i := 0; i < top; i += 2 {
		buf[i/2+1] = h.weights[i]<<4 | h.weights[i+1]
	}
	return (top+1)/2 + 1
}

// writeWeights writes weights through FSE with two states that take turns, and returns the length; 0 or 1 mean it is of no use.
func (h *huffman) writeWeights(buf []byte, weights []uint8, profile Profile) int {
	n := len(weights)
	if n <= 1 {
		return 0
	}
	var counts [maxWeight + 1]uint32
	for _, x := range weights {
		counts[x]++
	}
	top, most := 0, 0
	for s, c := range counts {
		if c > 0 {
			top = s
			most = max(most, int(c))
		}
	}
	if most == n || most == 1 || n <= 2 {
		return 0
	}
	log := tableLogFor(weightLog, n, top, 2)
	var room [maxWeight + 1]int16
	norm := room[:top+1]
	normalize(norm, counts[:top+1], n, log, profile.rareCount(0))
	h.fse.build(norm, uint(log))
	w := bitWriter{buf: buf, at: writeNorm(buf, norm, log)}
	// An even index belongs to the first state, an odd one to the second; the last two are told by the states themselves.
	var states [2]uint32
	states[(n-1)&1] = h.fse.start(weights[n-1])
	states[n&1] = h.fse.start(weights[n-2])
	for i := n - 3; i >= 0; i-- {
		states[i&1] = h.fse.next(&w, states[i&1], weights[i])
		w.flush()
	}
	h.fse.finish(&w, states[1])
	h.fse.finish(&w, states[0])
	w.flush()
	return w.close()
}
