package zstd3

import "encoding/binary"

// bitWriter appends bits, least significant first, to a buffer known to be large enough. The reader takes them from the end, so
// what is to be read first is written last.
type bitWriter struct {
	buf   []byte
	at    int // next byte to write
	acc   uint64
	count uint // bits in acc, at most 7 after flush
}

// add adds the low n bits of v, whose other bits are zero. At most 57 bits fit between two flushes.
func (w *bitWriter) add(v uint64, n uint) {
	w.acc |= v << (w.count & 63)
	w.count += n
}

// flush moves whole bytes to the buffer.
func (w *bitWriter) flush() {
	binary.LittleEndian.PutUint64(w.buf[w.at:], w.acc)
	w.at += int(w.count >> 3)
	w.acc >>= w.count & 56
	w.count &= 7
}

// close adds the mark bit that tells the reader where to begin and returns the position behind the last byte.
func (w *bitWriter) close() int {
	w.add(1, 1)
	w.flush()
	if w.count > 0 {
		w.at++
	}
	return w.at
}
