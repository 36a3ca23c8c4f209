package recompress

import (
	"walproxy/protocol"
	"walproxy/protocol/link"
)

// piece is a piece of WAL, within one window, that frames are made of. Bytes that are not coded, for whatever reason, share a raw frame.
type piece struct {
	w        *Writer
	timeline protocol.Timeline
	start    protocol.LSN
	wal      []byte
	emit     func(*link.Frame) error
	given    int // bytes in frames that were emitted; those behind them that were seen are plain
	// What goes into the stream next: records above the threshold, of the kind that was met last and of others.
	large        kind
	largeRecords int32
	largeBytes   int
}

// note tells of a record above the threshold that goes into the stream.
func (p *piece) note(k kind, bytes int) {
	if k != p.large {
		p.large, p.largeRecords, p.largeBytes = k, 0, 0
	}
	p.largeRecords, p.largeBytes = p.largeRecords+1, p.largeBytes+bytes
}

// learn keeps what a frame of the stream took that holds bytes of WAL, if these are nearly all records of one kind.
func (p *piece) learn(bytes, payload int) {
	if p.largeBytes > bytes-bytes/4 {
		l := &p.w.large[p.large]
		l.records = min(l.records+p.largeRecords, learntRecords)
		if l.bytes == 0 || int64(payload)*int64(l.bytes) < int64(l.payload)*int64(bytes) {
			l.bytes, l.payload = int32(bytes), int32(payload)
		}
	}
	p.largeRecords, p.largeBytes = 0, 0
}

// Between plain bytes a frame of the stream costs its own header and that of the raw frame behind it. A window may lose as much to such
// frames as a stream takes to learn, but no more.
const (
	betweenBytes   = 26
	maxLostBetween = 64
)

// streamed makes the next frame of the stream of wal[from:to].
func (p *piece) streamed(from, to int) error {
	if from == to {
		return nil
	}
	p.w.build(p.timeline, p.start+protocol.LSN(from), p.wal[from:to])
	p.learn(to-from, len(p.w.frame.Payload))
	if p.w.frame.Codec == link.CodecRaw {
		return nil
	}
	if from > 0 || to < len(p.wal) {
		lost := p.w.lostBetween + len(p.w.frame.Payload) + betweenBytes - (to - from)
		if lost > maxLostBetween {
			p.w.stream = 0 // the encoder has learnt from it, and its reader will not
			return nil
		}
		p.w.lostBetween = lost
	}
	return p.coded(from, to)
}

// apart makes frames of wal[from:to], which does not go into the stream: one of its own if it is closed, coded if it is to be.
func (p *piece) apart(from, to int, alone, closed bool) error {
	lsn, content := p.start+protocol.LSN(from), p.wal[from:to]
	if alone && p.w.buildAlone(p.timeline, lsn, content) {
		return p.coded(from, to)
	}
	p.w.pass(p.timeline, lsn, content)
	if !closed {
		return nil
	}
	if err := p.plain(from); err != nil {
		return err
	}
	return p.plain(to)
}

// coded emits the Writer's frame, which holds wal[from:to], behind what is plain before it.
func (p *piece) coded(from, to int) error {
	if err := p.plain(from); err != nil {
		return err
	}
	p.given = to
	p.w.count(&p.w.frame)
	return p.emit(&p.w.frame)
}

// plain emits the raw frame of what is plain before to, if there is anything.
func (p *piece) plain(to int) error {
	if p.given == to {
		return nil
	}
	f := &p.w.plain
	*f = link.Frame{Timeline: p.timeline, Start: p.start + protocol.LSN(p.given), RawLen: uint32(to - p.given), Payload: p.wal[p.given:to]}
	f.SealRaw()
	p.given = to
	p.w.count(f)
	return p.emit(f)
}
