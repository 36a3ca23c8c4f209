package feed

import (
	"context"
	"errors"
	"fmt"
	"io"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/recompress"
	"walproxy/slots/spool"
)

// FrameReader gives the frames of one timeline to a downstream node, from exactly the LSN that the node asked for. Frames
// travel as they lie in the spool; only WAL whose stream the node cannot continue goes out raw, at most up to the next
// reset boundary. Not safe for concurrent use.
type FrameReader struct {
	feed *Feed
	tli  protocol.Timeline
	lsn  protocol.LSN // start of the next frame to return

	wal    *WALReader // WAL from before the first frame of tli: raw frames until the spool takes over
	frames *spool.Reader
	stream uint32 // the stream that the node can continue

	decoder *recompress.Reader // while frames go out raw
	raw     []byte
	again   protocol.LSN // where the spool was opened a second time
	out     link.Frame
	ready   *link.Frame // read ahead by Ready
}

// OpenFrames returns a reader of tli's frames from start on. Begin comes before anything else. Errors as OpenWAL's.
func (f *Feed) OpenFrames(tli protocol.Timeline, start protocol.LSN) (*FrameReader, error) {
	wal, err := f.OpenWAL(tli, start) // checks the position, and serves what lies before the first frame of tli
	if err != nil {
		return nil, err
	}
	return &FrameReader{feed: f, tli: tli, lsn: start, wal: wal}, nil
}

// Begin takes what the downstream node says of itself: the stream that it can continue.
func (r *FrameReader) Begin(hello link.ClientHello) error {
	r.stream = hello.Stream
	span, held := r.feed.span(r.tli)
	if !held || r.lsn < span.Begin {
		return nil
	}
	err := errors.Join(r.wal.Close(), r.open())
	r.wal = nil
	return err
}

func (r *FrameReader) open() (err error) {
	if r.frames, err = r.feed.log.OpenReader(r.tli, r.lsn); err != nil {
		return r.feed.serverError(err, r.tli, r.lsn)
	}
	return nil
}

// Close releases what the reader holds. Idempotent.
func (r *FrameReader) Close() error {
	var errs [2]error
	if r.wal != nil {
		errs[0], r.wal = r.wal.Close(), nil
	}
	if r.frames != nil {
		errs[1], r.frames = r.frames.Close(), nil
	}
	return errors.Join(errs[:]...)
}

// Next waits for the next frame; it is valid until the next call. The end of the timeline is a frame too; io.EOF follows.
func (r *FrameReader) Next(ctx context.Context) (*link.Frame, error) {
	if fr := r.ready; fr != nil {
		r.ready = nil
		return fr, nil
	}
	if r.wal != nil {
		return r.fromWAL(ctx)
	}
	for {
		fr, err := r.frames.Next(ctx)
		if err != nil {
			if errors.Is(err, io.EOF) || ctx.Err() != nil {
				return nil, err
			}
			return nil, r.feed.serverError(err, r.tli, r.lsn)
		}
		if fr.Codec == link.CodecTimelineEnd {
			return fr, nil
		}
		out, err := r.pass(fr)
		if err != nil || out != nil {
			return out, err
		}
	}
}

// done is a context that has ended: a Next with it does not wait.
var done = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// Ready reports whether Next would return without waiting. The last frame that Next returned is no longer valid then.
func (r *FrameReader) Ready() bool {
	if r.ready != nil {
		return true
	}
	fr, err := r.Next(done)
	if err != nil {
		return !errors.Is(err, context.Canceled) // an error that stays is for Next to return
	}
	r.ready = fr
	return true
}

// pass returns the frame to send for fr, or nil if there is none: fr lies before the start, or the spool was opened again.
func (r *FrameReader) pass(fr *link.Frame) (*link.Frame, error) {
	known := fr.Continues && fr.Stream == r.stream || fr.Starts && fr.Sum == r.stream
	switch {
	case fr.Start == r.lsn && (fr.Starts || known):
		r.stream, r.decoder = fr.StreamID(), nil // from here on every stream starts in sight of the node
		r.lsn = fr.End()
		return fr, nil
	case fr.End() <= r.lsn && known:
		return nil, nil // the node has it, and its stream
	}
	return r.decode(fr)
}

// decode keeps up with a stream that the node has not seen from its start, and returns its WAL from r.lsn on as a raw frame.
func (r *FrameReader) decode(fr *link.Frame) (*link.Frame, error) {
	var err error
	if r.decoder == nil {
		if r.decoder, err = newDecoder(); err != nil {
			return nil, err
		}
	}
	var unseen *link.UnseenStreamError
	r.raw, err = r.decoder.Decode(r.raw[:0], fr)
	switch {
	case errors.As(err, &unseen) && r.again != r.lsn:
		// The spool was entered behind the start of fr's stream; enter it at that start, once.
		r.again, r.stream, r.decoder = r.lsn, 0, nil
		return nil, errors.Join(r.frames.Close(), r.open())
	case err != nil:
		return nil, fmt.Errorf("read frames at %s on timeline %d: %w", fr.Start, r.tli, err)
	case fr.End() <= r.lsn:
		return nil, nil
	}
	return r.rawFrame(r.lsn, r.raw[r.lsn-fr.Start:]), nil
}

func (r *FrameReader) rawFrame(start protocol.LSN, wal []byte) *link.Frame {
	r.out = link.Frame{
		Timeline: r.tli, Start: start, RawLen: uint32(len(wal)), Codec: link.CodecRaw,
		RawSum: link.Checksum(wal), Payload: wal,
	}
	r.out.Seal()
	r.lsn = r.out.End()
	return &r.out
}

// rawChunk bounds a raw frame made from WAL.
const rawChunk = 128 << 10

// fromWAL returns WAL from before the first frame of the timeline as raw frames.
func (r *FrameReader) fromWAL(ctx context.Context) (*link.Frame, error) {
	limit := uint64(rawChunk)
	if room := r.lsn.Next(uint64(r.feed.log.ResetDistance())) - r.lsn; uint64(room) < limit {
		limit = uint64(room)
	}
	span, held := r.feed.span(r.tli)
	if held {
		limit = min(limit, uint64(span.Begin-r.lsn))
	}
	start, wal, err := r.wal.Next(ctx, int(limit))
	if err != nil {
		return nil, err
	}
	out := r.rawFrame(start, wal)
	if held && r.lsn == span.Begin {
		err = errors.Join(r.wal.Close(), r.open())
		r.wal = nil
		out.Payload = append(r.raw[:0], wal...)
		r.raw = out.Payload
	}
	return out, err
}
