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

// WALReader reads the WAL of one timeline as the server's walsender would: bytes before the timeline's fork come from its
// ancestors. Not safe for concurrent use.
type WALReader struct {
	feed *Feed
	tli  protocol.Timeline // what the consumer asked for
	lsn  protocol.LSN      // next byte to return
	buf  []byte            // what Next returned last
	left bool              // it reads the tail no more
	flow flow

	// Set while the WAL is read from the spool rather than from the tail.
	frames  *spool.Reader
	decoder *recompress.Reader
	limit   protocol.LSN // where the timeline that frames reads hands over to the next one; 0 if it is open
	raw     []byte       // decoded WAL: in decoded, or in what frames returned last
	decoded []byte
	rawAt   protocol.LSN // LSN of raw[0]
	again   protocol.LSN // where the spool was opened a second time
}

// OpenWAL returns a reader of tli's WAL from start on.
//
// Errors: *protocol.Error with SQLSTATE 58P01 if the WAL is no longer held, XX000 if start lies ahead of what is held or tli
// is not in the history of the current timeline.
func (f *Feed) OpenWAL(tli protocol.Timeline, start protocol.LSN) (*WALReader, error) {
	current, end := f.tail.position()
	if current == 0 {
		return nil, protocol.Errorf(protocol.CodeCannotConnectNow, "no WAL has been received yet")
	}
	if tli == current && start > end {
		return nil, protocol.Errorf(protocol.CodeInternalError,
			"requested starting point %s is ahead of the WAL flush position of this server %s", start, end)
	}
	if err := f.checkSegment(tli, start); err != nil {
		return nil, err
	}
	r := &WALReader{feed: f, tli: tli, lsn: start}
	f.tail.join()
	if r.inTail() {
		return r, nil
	}
	if err := r.openSpool(start); err != nil {
		_ = r.Close() // nothing is open
		return nil, err
	}
	return r, nil
}

func (r *WALReader) inTail() bool {
	_, ok := r.feed.tail.read(nil, r.tli, r.lsn, 0)
	return ok
}

// Close ends the reader. Idempotent.
func (r *WALReader) Close() error {
	if !r.left {
		r.left = true
		r.feed.tail.leave()
	}
	return r.release()
}

// release lets go of files and the decoder, while the tail holds what the reader needs.
func (r *WALReader) release() error {
	if r.frames == nil {
		return nil
	}
	err := r.frames.Close()
	r.frames, r.decoder, r.raw, r.decoded = nil, nil, nil, nil
	return err
}

// Next waits until there is WAL and returns up to limit bytes of it with their LSN; fewer only if there is no more at the
// moment. wal is valid until the next call. Errors are those of Append.
func (r *WALReader) Next(ctx context.Context, limit int) (start protocol.LSN, wal []byte, err error) {
	start, r.buf, err = r.Append(ctx, r.buf[:0], limit)
	return start, r.buf, err
}

// Append is Next for WAL that goes behind dst: it returns the extended buffer, or dst with an error.
//
// Errors: *protocol.TimelineEndError behind the last byte of a timeline that has ended; *protocol.Error as OpenWAL returns
// them; ctx's error.
func (r *WALReader) Append(ctx context.Context, dst []byte, limit int) (start protocol.LSN, out []byte, err error) {
	for {
		out, err := r.fill(dst, limit)
		if err != nil {
			return 0, dst, err
		}
		if n := len(out) - len(dst); n > 0 {
			start, r.lsn = r.lsn, r.lsn+protocol.LSN(n)
			r.flow.taken(&r.feed.bulk, n)
			return start, out, nil
		}
		if pushed := r.feed.tail.after(r.tli, r.lsn); pushed != nil {
			select {
			case <-pushed:
			case <-ctx.Done():
				return 0, dst, ctx.Err()
			}
		}
	}
}

// fill appends up to limit bytes at lsn: from the tail where it has them, else from the spool. Nothing without an error means that
// lsn is the end of the current timeline, or was a moment ago.
func (r *WALReader) fill(dst []byte, limit int) ([]byte, error) {
	for begin := len(dst); len(dst)-begin < limit; {
		have := len(dst) - begin
		at := r.lsn + protocol.LSN(have)
		var ok bool
		if dst, ok = r.feed.tail.read(dst, r.tli, at, limit-have); ok {
			if err := r.release(); err != nil || len(dst)-begin == have {
				return dst, err
			}
			continue
		}
		more, err := r.fillFromSpool(dst, at, limit-have)
		if err != nil && have > 0 {
			return dst, nil // it comes again with the next call, which has nothing to return before it
		}
		if err != nil {
			return dst, err
		}
		dst = more
	}
	return dst, nil
}

// fillFromSpool appends up to limit bytes at lsn, which the tail does not hold.
func (r *WALReader) fillFromSpool(dst []byte, lsn protocol.LSN, limit int) ([]byte, error) {
	if end, next, ended := r.ended(); ended && lsn >= end {
		return nil, &protocol.TimelineEndError{Timeline: r.tli, Next: next, At: end}
	}
	if r.frames != nil && r.limit != 0 && lsn >= r.limit { // the ancestor ends here; go on with its successor
		if err := r.release(); err != nil {
			return nil, err
		}
	}
	if r.frames == nil {
		if err := r.openSpool(lsn); err != nil {
			return nil, err
		}
	}
	for lsn >= r.rawAt+protocol.LSN(len(r.raw)) {
		if err := r.decodeNext(lsn); err != nil {
			return nil, err
		}
	}
	wal := r.raw[lsn-r.rawAt:]
	if r.limit != 0 {
		wal = wal[:min(protocol.LSN(len(wal)), r.limit-lsn)] // beyond lies what was sent before the switch was known
	}
	return append(dst, wal[:min(len(wal), limit)]...), nil
}

// ended returns where the requested timeline ended, if it has.
func (r *WALReader) ended() (end protocol.LSN, next protocol.Timeline, ok bool) {
	h, err := r.feed.currentHistory()
	if err != nil {
		return 0, 0, false
	}
	return h.End(r.tli)
}

// openSpool opens the spool at lsn on the timeline that holds it.
func (r *WALReader) openSpool(lsn protocol.LSN) error {
	from, limit, err := r.feed.locate(r.tli, lsn)
	if err != nil {
		return err
	}
	frames, err := r.feed.log.OpenReader(from, lsn)
	if err != nil {
		return r.feed.serverError(err, r.tli, lsn)
	}
	if r.decoder == nil {
		if r.decoder, err = newDecoder(); err != nil {
			return errors.Join(err, frames.Close())
		}
	}
	r.frames, r.limit, r.raw, r.rawAt = frames, limit, nil, 0
	return nil
}

// decodeNext replaces raw by the next frame's WAL. It never has to wait: the spool holds the byte at lsn.
func (r *WALReader) decodeNext(lsn protocol.LSN) error {
	fr, err := r.frames.Next(context.Background())
	if errors.Is(err, io.EOF) {
		return r.feed.disordered(r.tli, lsn, "the spool ends before the timeline does")
	}
	if err != nil {
		return r.feed.serverError(err, r.tli, lsn) // retention may have overtaken this reader
	}
	if fr.Start > lsn {
		return r.feed.disordered(r.tli, lsn, fmt.Sprintf("the next frame starts at %s", fr.Start))
	}
	var unseen *link.UnseenStreamError
	r.raw, r.decoded, err = r.decoder.View(r.decoded, fr)
	r.rawAt = fr.Start
	if errors.As(err, &unseen) && r.again != lsn {
		// The spool was entered behind the start of fr's stream, at a frame that stands alone; enter it at that start, once.
		r.again = lsn
		return errors.Join(r.frames.Close(), r.openSpool(lsn))
	}
	if err != nil {
		return r.feed.serverError(r.frames.Damaged(fr, err), r.tli, lsn)
	}
	return nil
}
