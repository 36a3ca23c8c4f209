package feed

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"walproxy/protocol"
	"walproxy/protocol/link"
)

// Resume returns where the upstream should go on; zero if nothing is held yet. It may be called at any time, from anywhere: what is
// kept back at that moment does not count.
func (f *Feed) Resume() (protocol.Timeline, protocol.LSN) { return f.tail.position() }

// Held returns the oldest LSN held on tli, and whether anything is.
func (f *Feed) Held(tli protocol.Timeline) (protocol.LSN, bool) {
	s, ok := f.span(tli)
	return s.Begin, ok
}

// Hello returns what this node tells an upstream node before frames flow. If the node holds the beginning of a stream, it
// decodes it up to the end once more, so that the upstream can continue it.
func (f *Feed) Hello() link.ClientHello {
	h := link.ClientHello{ResetDistance: link.MaxResetDistance}
	stream, err := f.resync()
	if err != nil {
		f.zap.Warn("the stream of the last frame cannot be continued; asking for a new one", zap.Error(err))
		return h
	}
	h.Stream = stream
	return h
}

// Accept takes the answer of the upstream node: from here on its windows are this node's too.
func (f *Feed) Accept(hello link.ServerHello) error { return f.setResetDistance(hello.ResetDistance) }

// setResetDistance makes the spool cut windows as the frames that come are cut.
func (f *Feed) setResetDistance(bytes uint32) error {
	if f.log.ResetDistance() == bytes {
		return nil
	}
	f.zap.Info("reset distance changes", zap.Uint32("bytes", bytes))
	return f.log.SetResetDistance(bytes)
}

// resync brings the verifying reader to the end of the spool and returns the stream it is in then; 0 if it is in none.
func (f *Feed) resync() (uint32, error) {
	s := f.log.State()
	if f.synced == s.Stream {
		return f.synced, nil
	}
	f.synced = 0
	if s.Stream == 0 {
		return 0, nil
	}
	synced, err := f.decodeUpTo(s.Timeline, s.End)
	if err != nil || synced != s.Stream {
		return 0, err
	}
	f.synced = synced
	return synced, nil
}

// decodeUpTo runs the verifying reader over the stream that the last byte before end belongs to.
func (f *Feed) decodeUpTo(tli protocol.Timeline, end protocol.LSN) (stream uint32, err error) {
	frames, err := f.log.OpenReader(tli, end-1)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, frames.Close()) }()
	for at := protocol.LSN(0); at < end; {
		fr, err := frames.Next(context.Background()) // never waits: the spool reaches end
		if err != nil {
			return 0, err
		}
		if f.raw, err = f.verify.Decode(f.raw[:0], fr); err != nil {
			return 0, frames.Damaged(fr, err)
		}
		at = fr.End()
		if id := fr.StreamID(); id != 0 { // frames that stand alone do not end a stream
			stream = id
		}
	}
	return stream, nil
}
