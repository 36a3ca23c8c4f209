package spool

import (
	"errors"
	"slices"

	"walproxy/protocol"
	"walproxy/protocol/link"
)

// compare checks that the log holds the frames of the model up to one at or behind the last confirmed one, bit by bit.
func (m *model) compare() {
	m.t.Helper()
	s := m.log.State()
	var held []*link.Frame
	for _, span := range m.log.Timelines() {
		r := openReader(m.t, m.log, span.Timeline, span.Begin)
		held = append(held, m.drain(r)...)
		_ = r.Close()
	}
	m.frames, m.confirmed, m.gone = slices.Concat(m.gone, m.frames), m.confirmed+len(m.gone), nil
	first := 0
	for len(held) > 0 && first < len(m.frames) && sameFrame(held[0], m.frames[first]) != nil {
		first++
	}
	if len(held) == 0 {
		first = 0
	}
	if n := len(held); n > 0 && first+n == len(m.frames)+1 {
		for _, f := range m.cut {
			if sameFrame(held[n-1], f) == nil {
				m.frames = append(slices.Clip(m.frames), f)
				break
			}
		}
	}
	m.cut = nil
	if first+len(held) > len(m.frames) || first+len(held) < m.confirmed {
		m.t.Fatalf("%d frames appended, %d confirmed; held are %d beginning with number %d", len(m.frames), m.confirmed, len(held), first)
	}
	for i, f := range held {
		if err := sameFrame(f, m.frames[first+i]); err != nil {
			m.t.Fatalf("frame %d: %v", first+i, err)
		}
	}
	if first > 0 && m.frames[first-1].End() > m.keep && !m.endedBelow(m.frames[first-1].Timeline, m.keep) {
		m.t.Fatalf("frame up to %s is gone, although WAL from %s on was to be kept", m.frames[first-1].End(), m.keep)
	}
	if m.mayReturn {
		m.gone = m.frames[:first]
	}
	m.frames = m.frames[first : first+len(held)]
	m.confirmed = len(m.frames)
	m.stream = s.Stream
	if n := len(m.frames); n > 0 && (s.End != m.frames[n-1].End() || s.Flushed != s.End || s.Stream != m.streamMet()) {
		m.t.Fatalf("state %+v behind frame %+v", s, m.frames[n-1])
	}
}

// streamMet returns the stream met last in the newest window, 0 behind the end of a timeline.
func (m *model) streamMet() uint32 {
	last := m.frames[len(m.frames)-1]
	for i := len(m.frames) - 1; i >= 0 && last.Codec != link.CodecTimelineEnd; i-- {
		f := m.frames[i]
		if f.Timeline != last.Timeline || f.Start.Floor(distance) != last.Start.Floor(distance) || f.Codec == link.CodecTimelineEnd {
			break
		}
		if f.StreamID() != 0 {
			return f.StreamID()
		}
	}
	return 0
}

// drain reads until nothing is left and returns copies.
func (m *model) drain(r *Reader) []*link.Frame {
	m.t.Helper()
	var frames []*link.Frame
	for !r.ended {
		ok, err := r.try()
		if err != nil {
			m.t.Fatal(err)
		}
		if !ok {
			break
		}
		f := r.frame
		f.Payload = append([]byte(nil), f.Payload...)
		frames = append(frames, &f)
	}
	return frames
}

// read opens a reader at random WAL and checks where it begins, and that all of the timeline follows.
func (m *model) read() {
	if len(m.frames) == 0 {
		return
	}
	at := m.rng.IntN(len(m.frames))
	f := m.frames[at]
	lsn := f.Start
	if f.RawLen > 0 {
		lsn += protocol.LSN(m.rng.IntN(int(f.RawLen)))
	}
	r, err := m.log.OpenReader(f.Timeline, lsn)
	var removed *RemovedError
	switch {
	case errors.As(err, &removed) && (lsn < m.keep || m.endedBelow(f.Timeline, m.keep)):
		return
	case errors.Is(err, ErrNotYet) && m.beyondSwitch(f.Timeline, lsn):
		return
	case err != nil:
		m.t.Fatalf("read WAL at %s: %v", lsn, err)
	}
	defer r.Close()
	for f.Codec == link.CodecTimelineEnd && at > 0 && m.frames[at-1].Timeline == f.Timeline && m.frames[at-1].End() > lsn {
		at-- // what was sent beyond the switch point comes first
		f = m.frames[at]
	}
	for f.Continues && !(m.frames[at].Starts && m.frames[at].Sum == f.Stream) {
		at--
	}
	got := m.drain(r)
	want := m.frames[at:]
	for i, w := range want {
		if w.Timeline != f.Timeline {
			want = want[:i]
			break
		}
	}
	if len(got) != len(want) {
		m.t.Fatalf("read WAL at %s on timeline %d: %d frames, want %d", lsn, f.Timeline, len(got), len(want))
	}
	for i := range got {
		if err := sameFrame(got[i], want[i]); err != nil {
			m.t.Fatalf("read WAL at %s: %v", lsn, err)
		}
	}
}

// endedBelow reports whether all of a timeline may be gone.
func (m *model) endedBelow(tli protocol.Timeline, keep protocol.LSN) bool {
	for _, f := range m.frames {
		if f.Timeline == tli && f.Codec == link.CodecTimelineEnd {
			return f.Start <= keep
		}
	}
	return false
}

func (m *model) beyondSwitch(tli protocol.Timeline, lsn protocol.LSN) bool {
	for _, span := range m.log.Timelines() {
		if span.Timeline == tli {
			return span.Next != 0 && lsn > span.End
		}
	}
	return false
}
