package wal

import "walproxy/protocol"

// begin starts a piece at start, which is the walker's position unless bytes of the piece are in w.page already.
func (w *Walker) begin(kind Kind, rule Rule, start, end protocol.LSN) {
	if len(w.page.bytes) == 0 {
		w.page.clear(start)
	}
	w.state, w.piece = inPiece, piece{kind: kind, rule: rule, end: end}
}

// beginRaw starts a raw piece up to the end of the page that starts at or before pos and forgets what was learnt.
func (w *Walker) beginRaw(rule Rule, start, end protocol.LSN) {
	w.begin(KindRaw, rule, start, end)
	w.known, w.last = w.options.Stream, 0
}

// stepPiece completes a piece, then what comes next is decided by the position alone.
func (w *Walker) stepPiece() progress {
	missing := uint64(w.piece.end - w.pos)
	if uint64(len(w.chunk)) < missing {
		w.page.bytes = append(w.page.bytes, w.take(len(w.chunk))...)
		return starved
	}
	start, data := w.page.start, w.take(int(missing))
	if len(w.page.bytes) > 0 {
		w.page.bytes = append(w.page.bytes, data...)
		data = w.page.bytes[w.page.emitted:]
	}
	p := moved
	if len(data) > 0 {
		kind, rule := w.pieceKind(data)
		p = w.emit(kind, rule, start, w.pos, data)
	}
	w.page.clear(w.pos)
	if w.record.active && w.record.long {
		w.endLongPiece()
	}
	w.settle()
	return p
}

// pieceKind returns how data of the current piece is to be called.
func (w *Walker) pieceKind(data []byte) (Kind, Rule) {
	if w.piece.kind == KindSwitchTail && !IsZero(data) {
		return KindRaw, RuleSwitchTail
	}
	return w.piece.kind, w.piece.rule
}

// stepBoundary reads a page header.
func (w *Walker) stepBoundary() progress {
	boundary := w.pos - protocol.LSN(len(w.page.bytes))
	pageEnd := boundary + protocol.LSN(w.options.PageSize)
	if w.tailEnd > boundary {
		w.begin(KindSwitchTail, RuleNone, boundary, pageEnd)
		return moved
	}
	w.tailEnd = 0
	header, ok := w.peek(ShortHeaderBytes)
	if ok && PageFlags(le.Uint16(header[2:]))&LongHeader != 0 {
		header, ok = w.peek(LongHeaderBytes)
	}
	if !ok {
		return starved
	}
	n, rule := w.header.parse(header)
	if rule == RuleNone {
		rule = w.header.check(boundary, &w.known)
	}
	if w.record.active {
		if kind, broken := w.breaks(rule); broken != RuleNone || kind == KindAborted {
			if p := w.dropRecord(kind, broken, boundary); p == emitted {
				return p
			}
		}
	}
	if rule != RuleNone {
		w.beginRaw(rule, boundary, pageEnd)
		return moved
	}
	return w.enterPage(boundary, n)
}

// peek returns the first n bytes of the page without consuming them if the chunk holds them all, else it collects them in w.page.
func (w *Walker) peek(n int) ([]byte, bool) {
	p := &w.page
	if len(p.bytes) == 0 {
		if len(w.chunk) >= n {
			return w.chunk[:n], true
		}
		p.clear(w.pos)
	}
	if more := min(n-len(p.bytes), len(w.chunk)); more > 0 {
		p.bytes = append(p.bytes, w.take(more)...)
	}
	return p.bytes, len(p.bytes) >= n
}

// breaks tells whether the record in progress ends at the page whose header breaks rule: as what, and why.
func (w *Walker) breaks(rule Rule) (Kind, Rule) {
	h := &w.header
	switch {
	case rule != RuleNone:
		return KindRaw, rule
	case h.Flags&OverwroteContrecord != 0:
		return KindAborted, RuleNone
	case h.Flags&FirstIsContrecord == 0:
		return KindRaw, RuleContrecord
	case uint64(h.RemLen) != uint64(w.record.total)-w.record.got:
		return KindRaw, RuleRemLen
	}
	return 0, RuleNone
}

// enterPage passes the valid header of n bytes at boundary.
func (w *Walker) enterPage(boundary protocol.LSN, n int) progress {
	h := &w.header
	changed := w.known.Timeline != 0 && h.Timeline != w.known.Timeline
	w.known.Version, w.known.Timeline = h.Version, h.Timeline
	if h.Flags&LongHeader != 0 {
		w.known.SystemID = h.SystemID
	}
	torn := w.page.emitted > 0
	start, data := boundary, w.page.bytes
	if len(data) == 0 {
		data = w.take(n)
	} else {
		start, data = w.page.start, data[w.page.emitted:]
	}
	w.page.clear(w.pos)
	w.afterHeader(boundary)
	if !torn {
		w.emit(KindPage, RuleNone, start, boundary+protocol.LSN(n), data)
		w.event.Page, w.event.NewTimeline = h, changed
		return emitted
	}
	if len(data) == 0 {
		return moved
	}
	return w.emit(KindFragment, RuleNone, start, boundary+protocol.LSN(n), data)
}

// afterHeader decides what the page begins with.
func (w *Walker) afterHeader(boundary protocol.LSN) {
	pageEnd := boundary + protocol.LSN(w.options.PageSize)
	switch {
	case w.record.active:
		if r := &w.record; len(r.bytes) == r.emitted {
			r.start = w.pos
		}
		if w.record.long {
			w.beginLongPiece()
			return
		}
		w.state = inContent
	case w.header.Flags&FirstIsContrecord != 0 && w.header.RemLen > 0:
		w.last = 0
		w.begin(KindFragment, RuleNone, w.pos, min(pageEnd, w.pos+protocol.LSN(align(uint64(w.header.RemLen)))))
	default:
		w.state = inContent
	}
}

// align rounds up to a multiple of 8, as MAXALIGN does on every host that is read.
func align(n uint64) uint64 { return (n + 7) &^ 7 }
