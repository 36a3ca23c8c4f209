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
// travel as they lie in the spool; only WAL whose stream the node cannot continue is coded anew, up to the next frame that does
// not need what the node lacks, which is at the next reset boundary at the latest. Not safe for concurrent use.
type FrameReader struct {
	feed *Feed
	tli  protocol.Timeline
	lsn  protocol.LSN // start of the next frame to return
	flow flow

	wal    *WALReader // WAL from before the first frame of tli, until the spool takes over
	frames *spool.Reader
	stream uint32 // the stream that the node can continue

	decoder *recompress.Reader // while frames are coded anew
	raw     []byte
	again   protocol.LSN // where the spool was opened a second time
	anew    recoder
	ready   *link.Frame // read ahead by Ready
}

// OpenFrames returns a reader of tli's frames from start on. Begin comes before anything else. Errors as OpenWAL's.
func (f *Feed) OpenFrames(tli protocol.Timeline, start protocol.LSN) (*FrameReader, error) {
	wal, err := f.OpenWAL(tli, start) // checks the position, and serves what lies before the first frame of tli
	if err != nil {
		return nil, err
	}
	return &FrameReader{feed: f, tli: tli, lsn: start, wal: wal, anew: recoder{options: f.opt.Recompress}}, nil
}

// Begin takes what the downstream node says of itself: the stream that it can continue.
func (r *FrameReader) Begin(hello link.ClientHello) error {
	r.stream = hello.Stream
	span, held := r.feed.span(r.tli)
	if !held || r.lsn < span.Begin {
		return nil
	}
	err := errors.Join(r.wal.Close(), r.open(r.lsn))
	r.wal = nil
	return err
}

func (r *FrameReader) open(lsn protocol.LSN) (err error) {
	if r.frames, err = r.feed.log.OpenReader(r.tli, lsn); err != nil {
		return r.feed.serverError(err, r.tli, lsn)
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
	if fr := r.anew.next(); fr != nil {
		r.lsn = fr.End()
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
		if out != nil {
			r.flow.taken(&r.feed.bulk, int(out.RawLen))
		}
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
		r.anew.end()
		r.lsn = fr.End()
		return fr, nil
	case fr.Start == r.lsn && !fr.Continues:
		r.lsn = fr.End() // it stands alone; a stream may go on behind it
		return fr, nil
	case fr.End() <= r.lsn && known:
		return nil, nil // the node has it, and its stream
	}
	return r.decode(fr)
}

// decode keeps up with a stream that the node has not seen from its start, and returns its WAL from r.lsn on as another frame.
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
		return nil, errors.Join(r.frames.Close(), r.open(r.lsn))
	case err != nil:
		return nil, r.feed.serverError(r.frames.Damaged(fr, err), r.tli, fr.Start)
	case fr.End() <= r.lsn:
		return nil, nil
	}
	return r.code(r.lsn, r.raw[r.lsn-fr.Start:])
}

// code returns the first frame of wal, which begins at start, coded anew.
func (r *FrameReader) code(start protocol.LSN, wal []byte) (*link.Frame, error) {
	if err := r.anew.code(r.tli, start, wal, r.feed.log.ResetDistance()); err != nil {
		return nil, fmt.Errorf("code WAL at %s on timeline %d: %w", start, r.tli, err)
	}
	fr := r.anew.next()
	r.lsn = fr.End()
	return fr, nil
}

// maxChunk bounds how much WAL from before the first frame of a timeline becomes one frame.
const maxChunk = 128 << 10

// fromWAL returns WAL from before the first frame of the timeline as frames.
func (r *FrameReader) fromWAL(ctx context.Context) (*link.Frame, error) {
	limit := uint64(maxChunk)
	span, held := r.feed.span(r.tli)
	if held {
		limit = min(limit, uint64(span.Begin-r.lsn))
	}
	start, wal, err := r.wal.Next(ctx, int(limit))
	if err != nil {
		return nil, err
	}
	out, err := r.code(start, wal)
	if err == nil && held && start+protocol.LSN(len(wal)) == span.Begin {
		err = errors.Join(r.wal.Close(), r.open(span.Begin))
		r.wal = nil
	}
	return out, err
}
