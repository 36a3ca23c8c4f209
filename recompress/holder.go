package recompress

import "walproxy/protocol"

// MaxHeldBytes bounds what a Holder keeps back: longer records are handed on as they come.
const MaxHeldBytes = 512 << 10

// Holder keeps back, of WAL that comes in chunks, the record that is incomplete at a chunk's end, for the chunk with the rest of it.
// Half a record is coded as bytes of unknown meaning, in whatever frame. The zero Holder is ready. Not safe for concurrent use.
type Holder struct {
	follow   follower
	timeline protocol.Timeline
	start    protocol.LSN // of what is held
	held     []byte
	joined   []byte
}

// Take returns the WAL to hand on now and where it begins: what was held and chunk, which begins at start on tli, except the record
// that is incomplete at its end; maybe nothing. It is valid until the next call; chunk is not retained, but may be what is returned.
// A chunk that does not follow the last one drops what was held.
func (h *Holder) Take(tli protocol.Timeline, start protocol.LSN, chunk []byte) (protocol.LSN, []byte) {
	if tli != h.timeline || start != h.start+protocol.LSN(len(h.held)) {
		h.held = h.held[:0]
		h.timeline, h.start = tli, start
		h.follow = follower{pos: start, lost: uint64(start)%walPageBytes != 0}
	}
	begun := -1 // where in chunk the last record begins
	for at := 0; at < len(chunk); {
		s := h.follow.next(chunk[at:])
		if s.begins {
			begun = at
		}
		at += s.bytes
	}
	keep := 0 // of chunk
	switch {
	case h.follow.rest == 0 || !h.follow.known:
	case begun >= 0:
		keep = len(chunk) - begun
	case len(h.held) > 0:
		if keep = len(chunk); len(h.held)+keep <= MaxHeldBytes {
			h.held = append(h.held, chunk...)
			return h.start, nil
		}
	}
	if keep > MaxHeldBytes || begun < 0 {
		keep = 0
	}
	from, out := h.start, chunk[:len(chunk)-keep]
	if len(h.held) > 0 {
		h.joined = append(append(h.joined[:0], h.held...), out...)
		out = h.joined
	}
	h.held = append(h.held[:0], chunk[len(chunk)-keep:]...)
	h.start += protocol.LSN(len(out))
	return from, out
}

// Release returns what is held, and where; nothing is held any more. It is valid until the next call.
func (h *Holder) Release() (protocol.Timeline, protocol.LSN, []byte) {
	start := h.start
	h.joined = append(h.joined[:0], h.held...)
	h.held = h.held[:0]
	h.start += protocol.LSN(len(h.joined))
	return h.timeline, start, h.joined
}

// Discard drops what is held. The next chunk may begin where that did, or anywhere.
func (h *Holder) Discard() { *h = Holder{held: h.held[:0], joined: h.joined} }

// Held returns where that begins which is held, and how many bytes of WAL it is.
func (h *Holder) Held() (protocol.LSN, int) { return h.start, len(h.held) }
