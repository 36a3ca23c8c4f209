package recompress

import (
	"walproxy/protocol"
	"walproxy/protocol/wal"
)

// How a run of WAL is carried.
type carriage uint8

const (
	streamed carriage = iota // coded in the stream
	asIs                     // in a raw frame
	whole                    // one record, coded alone
)

// minCodedRun is the shortest run between raw ones that is worth a frame in the stream.
const minCodedRun = 128

// sorter tells which runs of WAL are to be carried how. A record that did not begin in the piece is carried as its beginning was, but the
// rest of one that goes over a reset boundary in the stream: windows are coded alike whatever was coded before.
type sorter struct {
	options  Options
	standing bool // records that readers come for by their LSN stand in raw frames of their own
	placed   bool // follow and current go on from the WAL before
	follow   follower
	current  carriage // of the record in progress
	runs     []run
}

type run struct {
	how    carriage
	bytes  int
	closed bool // no other run is joined to it
	kind   kind // of the record that is the run; of whole ones
}

// kind is a resource manager and the upper half of xl_info.
type kind uint16

const kinds = 1 << 12

// active reports whether there is anything to sort out.
func (s *sorter) active() bool {
	o := &s.options
	return s.standing || o.Compress != CompressAll || o.MaxRecordBytes > 0 || o.RecordThreshold > 0 || len(o.Except) > 0
}

// sort returns the runs of wal, which begins at start. They are valid until the next call.
func (s *sorter) sort(start protocol.LSN, b []byte) []run {
	if !s.placed || s.follow.pos != start {
		s.placed, s.follow, s.current = true, follower{pos: start, lost: uint64(start)%walPageBytes != 0}, streamed
	}
	s.runs = s.runs[:0]
	for len(b) > 0 {
		st := s.follow.next(b)
		alone := false
		if st.begins {
			s.current, alone = s.decide(b, st)
		} else if !st.begun && !st.header {
			s.current = streamed
		}
		n := st.bytes
		k := kind(0)
		if alone {
			k = kind(b[17])<<4 | kind(b[16]>>4)
		}
		for alone && s.follow.rest > 0 { // all of it is here
			n += s.follow.next(b[n:]).bytes
		}
		s.add(s.current, n, alone, k)
		b = b[n:]
	}
	s.join()
	return s.runs
}

// decide returns how the record at the start of b is carried, and whether it has a frame to itself, which needs all of it.
func (s *sorter) decide(b []byte, st step) (carriage, bool) {
	o := &s.options
	if st.bytes < wal.RecordHeaderBytes {
		return streamed, false
	}
	rmgr, info := wal.Rmgr(b[17]), b[16]
	all := s.reaches(b, st)
	if s.standing && all && wal.ClassOf(rmgr, info).StandsAlone() {
		return asIs, true
	}
	if o.MaxRecordBytes > 0 && int64(st.total) > o.MaxRecordBytes || !o.Compress.covers(wal.WorkOf(rmgr, info)) || s.excepted(b[:st.bytes]) {
		return asIs, false
	}
	if o.RecordThreshold > 0 && int64(st.total) > o.RecordThreshold && all {
		return whole, true
	}
	return streamed, false
}

// reaches reports whether all of the record at the start of b lies in b.
func (s *sorter) reaches(b []byte, st step) bool {
	f, at := s.follow, st.bytes
	for f.rest > 0 {
		if at >= len(b) {
			return false
		}
		next := f.next(b[at:])
		if !next.begun {
			return false
		}
		at += next.bytes
	}
	return true
}

func (s *sorter) excepted(record []byte) bool {
	if len(s.options.Except) == 0 {
		return false
	}
	compressed := byte(0x1c)
	if s.follow.old {
		compressed = 0x02
	}
	rel := firstRelation(record, compressed)
	for _, r := range s.options.Except {
		if rel != nil && r.holds(rel) {
			return true
		}
	}
	return false
}

func (s *sorter) add(how carriage, bytes int, alone bool, k kind) {
	if last := len(s.runs) - 1; last >= 0 && !alone && s.runs[last].how == how && !s.runs[last].closed {
		s.runs[last].bytes += bytes
		return
	}
	s.runs = append(s.runs, run{how: how, bytes: bytes, closed: alone, kind: k})
}

// join gives short coded runs between raw ones to these.
func (s *sorter) join() {
	out := s.runs[:0]
	for i, r := range s.runs {
		raw := func(i int) bool { return i < 0 || i >= len(s.runs) || s.runs[i].how == asIs && !s.runs[i].closed }
		if r.how == streamed && r.bytes < minCodedRun && len(s.runs) > 1 && raw(i+1) && (len(out) == 0 || out[len(out)-1].how == asIs && !out[len(out)-1].closed) {
			r.how = asIs
		}
		if last := len(out) - 1; last >= 0 && out[last].how == r.how && !out[last].closed && !r.closed {
			out[last].bytes += r.bytes
			continue
		}
		out = append(out, r)
	}
	s.runs = out
}
