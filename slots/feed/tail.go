package feed

import (
	"sync"

	"walproxy/protocol"
)

// tail keeps the newest WAL of the current timeline uncompressed, so that consumers that keep up share one decoding.
// It is a ring: what does not fit pushes out the oldest. While nobody reads, it keeps nothing but the position. Safe for one writer
// and many readers.
type tail struct {
	mu       sync.RWMutex
	ring     []byte // the byte at lsn lies at lsn modulo len(ring), a power of two
	timeline protocol.Timeline
	begin    protocol.LSN  // oldest byte held
	end      protocol.LSN  // behind the newest one
	pushed   chan struct{} // closed and forgotten by the next push; nil while nobody waits
	readers  int
}

// join adds a reader; it leaves once.
func (t *tail) join() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.readers++
}

func (t *tail) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.readers--
}

func newTail(bytes int) *tail { return &tail{ring: make([]byte, bytes)} }

// push adds wal, which starts at start. If it does not follow what is held, it replaces it.
func (t *tail) push(tli protocol.Timeline, start protocol.LSN, wal []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pushed != nil {
		close(t.pushed)
		t.pushed = nil
	}
	if tli != t.timeline || start != t.end {
		t.timeline, t.begin, t.end = tli, start, start
	}
	t.end += protocol.LSN(len(wal))
	if t.readers == 0 {
		t.begin = t.end
		return
	}
	if len(wal) > len(t.ring) {
		wal = wal[len(wal)-len(t.ring):]
	}
	at := int(uint64(t.end)-uint64(len(wal))) & (len(t.ring) - 1)
	n := copy(t.ring[at:], wal)
	copy(t.ring, wal[n:])
	if held := t.end - t.begin; held > protocol.LSN(len(t.ring)) {
		t.begin = t.end - protocol.LSN(len(t.ring))
	}
}

// read appends up to limit bytes at lsn to dst, not beyond the end of the tail.
// ok is false if the tail does not hold lsn on tli; the position behind its last byte counts as held.
func (t *tail) read(dst []byte, tli protocol.Timeline, lsn protocol.LSN, limit int) (out []byte, ok bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if tli != t.timeline || lsn < t.begin || lsn > t.end {
		return dst, false
	}
	n := min(uint64(limit), uint64(t.end-lsn))
	at := int(uint64(lsn)) & (len(t.ring) - 1)
	first := min(n, uint64(len(t.ring)-at))
	dst = append(dst, t.ring[at:at+int(first)]...)
	dst = append(dst, t.ring[:n-first]...)
	return dst, true
}

// position returns the current timeline and the end of its WAL.
func (t *tail) position() (protocol.Timeline, protocol.LSN) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.timeline, t.end
}

// after returns a channel that is closed as soon as the tail is no longer what ends at lsn on tli; nil if it is not already.
func (t *tail) after(tli protocol.Timeline, lsn protocol.LSN) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timeline != tli || t.end != lsn {
		return nil
	}
	if t.pushed == nil {
		t.pushed = make(chan struct{})
	}
	return t.pushed
}
