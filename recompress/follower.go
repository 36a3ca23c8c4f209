package recompress

import (
	"encoding/binary"

	"walproxy/protocol"
	"walproxy/protocol/wal"
)

// follower goes over WAL without decoding it: it tells where records begin and end by their lengths alone. What it says may be
// wrong on WAL that is none; then it costs ratio.
type follower struct {
	pos   protocol.LSN
	rest  int64 // bytes of the record in progress, padding included, that are still to come; 0 if none
	lost  bool  // up to the next page
	known bool  // the record in progress began in sight
	old   bool  // PostgreSQL 13 or 14, which mark compressed images otherwise
}

// step is a stretch of WAL that belongs to one record, or to none.
type step struct {
	bytes  int
	header bool   // a page header
	begins bool   // it is the beginning of a record, or all that there is of it on its page
	begun  bool   // it belongs to a record whose beginning was seen
	total  uint32 // xl_tot_len of a record that begins
}

const walPageBytes = wal.DefaultPageSize

// next returns what b, not empty, begins with, and moves behind it.
func (f *follower) next(b []byte) (s step) {
	s = f.look(b)
	f.pos += protocol.LSN(s.bytes)
	return s
}

func (f *follower) look(b []byte) step {
	room := min(walPageBytes-int(uint64(f.pos)%walPageBytes), len(b))
	if uint64(f.pos)%walPageBytes == 0 {
		if n := wal.PageHeaderBytes(b, f.pos); n > 0 {
			h, _, _ := wal.ParsePageHeader(b) // it looks like one
			f.lost, f.old = false, h.Version < wal.PG15
			left := int64(h.RemLen+7) &^ 7
			if h.Flags&wal.FirstIsContrecord == 0 {
				left = 0
			}
			f.known = f.known && f.rest > 0 && left == f.rest
			f.rest = left
			return step{bytes: n, header: true, begun: f.known}
		}
		f.lost, f.rest, f.known = true, 0, false
	}
	switch {
	case f.rest > 0:
		n := int(min(int64(room), f.rest))
		s := step{bytes: n, begun: f.known}
		if f.rest -= int64(n); f.rest == 0 {
			f.known = false
		}
		return s
	case f.lost:
		return step{bytes: room}
	}
	total := uint32(0)
	if len(b) >= 4 {
		total = binary.LittleEndian.Uint32(b)
	}
	if uint64(f.pos)%8 != 0 || total < wal.RecordHeaderBytes || total > wal.MaxRecordBytes {
		f.lost = true
		return step{bytes: room}
	}
	size := int64(total+7) &^ 7
	n := int(min(int64(room), size))
	f.rest, f.known = size-int64(n), size > int64(n)
	return step{bytes: n, begins: true, begun: true, total: total}
}

// frame returns how much of b, not empty, goes into a frame of a sealed window, and moves behind it.
func (f *follower) frame(b []byte) (n int) {
	for n < len(b) && n < sealedFrameBytes+sealedSlackBytes && (n < sealedFrameBytes || f.rest > 0) {
		n += f.next(b[n:]).bytes
	}
	return n
}

// pass moves behind b.
func (f *follower) pass(b []byte) {
	for len(b) > 0 {
		b = b[f.next(b).bytes:]
	}
}
