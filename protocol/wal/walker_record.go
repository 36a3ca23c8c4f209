package wal

import "walproxy/protocol"

// stepContent reads records, or a part of one, on the page that was entered.
func (w *Walker) stepContent() progress {
	r := &w.record
	if !r.active {
		if p := w.wholeRecord(); p != starved {
			return p
		}
		if len(w.chunk) == 0 {
			return starved
		}
		*r = partial{held: r.held, active: true, begin: w.pos}
		r.clear(w.pos)
	}
	if !r.checked {
		return w.collectHeader()
	}
	return w.collectBody()
}

// wholeRecord is the short way for a record that lies within the page and the chunk. starved means: take the long way.
func (w *Walker) wholeRecord() progress {
	room := uint64(w.pageEnd() - w.pos)
	if len(w.chunk) < RecordHeaderBytes || room < RecordHeaderBytes {
		return starved
	}
	if rule := w.checkHeader(w.chunk, w.pos); rule != RuleNone {
		w.beginRaw(rule, w.pos, w.pageEnd())
		return moved
	}
	total := uint64(le.Uint32(w.chunk))
	size := align(total)
	if size > room || size > uint64(len(w.chunk)) || total > uint64(w.options.MaxRecordBytes) {
		return starved
	}
	begin := w.pos
	return w.complete(begin, begin, w.take(int(size)), int(total), 0)
}

// checkHeader holds the 24 bytes of a record header, found at lsn, against the rules.
func (w *Walker) checkHeader(b []byte, lsn protocol.LSN) Rule {
	total, prev := le.Uint32(b), protocol.LSN(le.Uint64(b[8:]))
	switch {
	case !validLength(total):
		return RuleLength
	case !w.known.Version.ValidRmgr(Rmgr(b[17])):
		return RuleRmgr
	case w.last != 0 && prev != w.last, prev >= lsn:
		return RulePrev
	}
	return RuleNone
}

func validLength(total uint32) bool { return total >= RecordHeaderBytes && total <= MaxRecordBytes }

// collectHeader adds content up to the 24 bytes of the header, then checks it.
func (w *Walker) collectHeader() progress {
	r := &w.record
	w.collect(RecordHeaderBytes)
	rule := RuleNone
	if len(r.bytes) >= 4 {
		r.total = le.Uint32(r.bytes)
		if !validLength(r.total) {
			rule = RuleLength
		}
	}
	if rule == RuleNone && len(r.bytes) < RecordHeaderBytes {
		return w.paused()
	}
	if rule == RuleNone {
		rule = w.checkHeader(r.bytes, r.begin)
	}
	if rule != RuleNone {
		return w.rejectHeader(rule)
	}
	r.checked = true
	r.long = uint64(r.total) > uint64(w.options.MaxRecordBytes)
	p := moved
	if r.long {
		if len(r.bytes) > r.emitted {
			p = w.emitHeld(KindFragment, RuleNone, &r.held, len(r.bytes), w.pos)
		}
		r.clear(w.pos)
	}
	switch {
	case w.atPageStart() && r.got < align(uint64(r.total)): // the header filled the page
		w.state = atBoundary
	case r.long:
		w.beginLongPiece()
	}
	return p
}

// rejectHeader makes the page raw from the record on. A header that lies on two pages is a raw piece of its own.
func (w *Walker) rejectHeader(rule Rule) progress {
	r := &w.record
	r.active = false
	pageSize := uint64(w.options.PageSize)
	// The last byte that was collected is on the page in question, also if it was the page's last one.
	pageStart := (w.pos - 1).Floor(pageSize)
	pageEnd := pageStart + protocol.LSN(pageSize)
	if r.begin >= pageStart {
		w.page.bytes = append(w.page.bytes[:0], r.bytes...)
		w.page.emitted, w.page.start = r.emitted, r.start
		r.clear(w.pos)
		w.beginRaw(rule, w.page.start, pageEnd)
		return moved
	}
	p := moved
	if len(r.bytes) > r.emitted {
		p = w.emitHeld(KindRaw, rule, &r.held, len(r.bytes), w.pos)
	}
	r.clear(w.pos)
	w.beginRaw(rule, w.pos, pageEnd)
	return p
}

// collectBody adds content up to the end of the record, padding included.
func (w *Walker) collectBody() progress {
	r := &w.record
	size := align(uint64(r.total))
	w.collect(size)
	if r.got < size {
		return w.paused()
	}
	r.active = false
	bytes, emitted, start := r.bytes, r.emitted, r.start
	r.clear(w.pos)
	return w.complete(r.begin, start, bytes, int(r.total), emitted)
}

// collect adds content of this page until the record has upTo bytes.
func (w *Walker) collect(upTo uint64) {
	r := &w.record
	if r.got >= upTo || len(w.chunk) == 0 {
		return
	}
	n := min(upTo-r.got, uint64(w.pageEnd()-w.pos), uint64(len(w.chunk)))
	r.bytes = append(r.bytes, w.take(int(n))...)
	r.got, r.end = r.got+n, w.pos
}

// paused is the state of a record that needs more content.
func (w *Walker) paused() progress {
	if w.atPageStart() {
		w.state = atBoundary
		return moved
	}
	return starved
}

// complete emits the record that began at begin and ends, with its padding, at the position. data is all of it; its first
// torn bytes were handed out by Flush, what is left starts at start.
func (w *Walker) complete(begin, start protocol.LSN, data []byte, total, torn int) progress {
	w.last = begin
	if ClassOf(Rmgr(data[17]), data[16]) == ClassSwitch {
		w.tailEnd = (w.pos - 1).Next(uint64(w.options.SegmentSize))
	}
	end := w.pos
	w.settle()
	switch {
	case torn == len(data):
		return moved
	case torn > 0:
		return w.emit(KindFragment, RuleNone, start, end, data[torn:])
	case !IsZero(data[total:]):
		return w.emit(KindRaw, RulePadding, start, end, data)
	}
	return w.emit(KindRecord, RuleNone, start, end, data[:total])
}

// dropRecord gives up the record in progress at the end of a page, and emits what is held of it.
func (w *Walker) dropRecord(kind Kind, rule Rule, end protocol.LSN) progress {
	r := &w.record
	r.active = false
	if kind != KindAborted {
		w.last = 0
	}
	p := moved
	if len(r.bytes) > r.emitted {
		p = w.emitHeld(kind, rule, &r.held, len(r.bytes), end)
	}
	r.clear(end)
	return p
}

// beginLongPiece starts the part on this page of a record that is not held.
func (w *Walker) beginLongPiece() {
	left := align(uint64(w.record.total)) - w.record.got
	w.begin(KindFragment, RuleNone, w.pos, min(w.pageEnd(), w.pos+protocol.LSN(left)))
	w.record.got += uint64(w.piece.end - w.pos)
}

// endLongPiece ends the record if its last piece is over.
func (w *Walker) endLongPiece() {
	if r := &w.record; r.got >= align(uint64(r.total)) {
		r.active = false
		w.last = r.begin
	}
}
