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

	// Set while the WAL is read from the spool rather than from the tail.
	frames  *spool.Reader
	decoder *recompress.Reader
	from    protocol.Timeline // the timeline that frames reads, tli or an ancestor
	limit   protocol.LSN      // where from hands over to the next timeline; 0 if it is open
	raw     []byte            // decoded WAL
	rawAt   protocol.LSN      // LSN of raw[0]
	again   protocol.LSN      // where the spool was opened a second time
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
	if r.inTail() {
		return r, nil
	}
	if err := r.openSpool(); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *WALReader) inTail() bool {
	_, _, ok := r.feed.tail.read(nil, r.tli, r.lsn, 0)
	return ok
}

// Close releases files and the decoder. Idempotent.
func (r *WALReader) Close() error {
	if r.frames == nil {
		return nil
	}
	err := r.frames.Close()
	r.frames, r.decoder, r.raw = nil, nil, nil
	return err
}

// Next waits until there is WAL and returns up to limit bytes of it with their LSN. If more is there already, what it returns
// ends at a WAL page boundary, given that limit is at least a page. wal is valid until the next call.
//
// Errors: *protocol.TimelineEndError behind the last byte of a timeline that has ended; *protocol.Error as OpenWAL returns
// them; ctx's error.
func (r *WALReader) Next(ctx context.Context, limit int) (start protocol.LSN, wal []byte, err error) {
	for {
		more, err := r.fill(limit)
		if err != nil {
			return 0, nil, err
		}
		if n := len(r.buf); n > 0 {
			if more {
				n = r.cut(n)
			}
			start, r.lsn = r.lsn, r.lsn+protocol.LSN(n)
			return start, r.buf[:n], nil
		}
		if pushed := r.feed.tail.after(r.tli, r.lsn); pushed != nil {
			select {
			case <-pushed:
			case <-ctx.Done():
				return 0, nil, ctx.Err()
			}
		}
	}
}

// cut shortens n bytes at lsn so that they end at a page boundary, if there is one in them.
func (r *WALReader) cut(n int) int {
	id, _ := r.feed.log.Identity()
	if id.WALBlockSize == 0 {
		return n
	}
	if end := (r.lsn + protocol.LSN(n)).Floor(uint64(id.WALBlockSize)); end > r.lsn {
		return int(end - r.lsn)
	}
	return n
}

// fill puts the next bytes at lsn into buf: from the tail if it has them, else from the spool. Nothing without an error
// means that lsn is the end of the current timeline, or was a moment ago.
func (r *WALReader) fill(limit int) (more bool, err error) {
	var ok bool
	if r.buf, more, ok = r.feed.tail.read(r.buf[:0], r.tli, r.lsn, limit); ok {
		return more, r.Close()
	}
	if end, next, ended := r.ended(); ended && r.lsn >= end {
		return false, &protocol.TimelineEndError{Timeline: r.tli, Next: next, At: end}
	}
	if r.frames == nil {
		if err := r.openSpool(); err != nil {
			return false, err
		}
	}
	return r.fillFromSpool(limit)
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
func (r *WALReader) openSpool() error {
	from, limit, err := r.feed.locate(r.tli, r.lsn)
	if err != nil {
		return err
	}
	frames, err := r.feed.log.OpenReader(from, r.lsn)
	if err != nil {
		return r.feed.serverError(err, r.tli, r.lsn)
	}
	if r.decoder == nil {
		if r.decoder, err = newDecoder(); err != nil {
			return errors.Join(err, frames.Close())
		}
	}
	r.frames, r.from, r.limit, r.raw, r.rawAt = frames, from, limit, r.raw[:0], 0
	return nil
}

// fillFromSpool decodes frames until limit bytes at lsn are there, or all that there is.
func (r *WALReader) fillFromSpool(limit int) (more bool, err error) {
	for {
		if r.limit != 0 && r.lsn >= r.limit { // the ancestor ends here; go on with its successor
			err := r.frames.Close()
			r.frames = nil
			return false, err
		}
		end := r.limit
		if end == 0 {
			_, end = r.feed.tail.position()
		}
		have := r.rawAt + protocol.LSN(len(r.raw))
		if have < end && have < r.lsn+protocol.LSN(limit) {
			if err := r.decodeNext(); err != nil {
				return false, err
			}
			continue
		}
		r.buf = append(r.buf[:0], r.raw[r.lsn-r.rawAt:]...)
		r.buf = r.buf[:min(len(r.buf), limit, int(end-r.lsn))]
		return r.lsn+protocol.LSN(len(r.buf)) < end, nil
	}
}

// decodeNext adds one frame's WAL to raw and drops what lies before lsn. It never has to wait: the spool holds more.
func (r *WALReader) decodeNext() error {
	fr, err := r.frames.Next(context.Background())
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("read spool at %s on timeline %d: it ends before the timeline does", r.lsn, r.from)
	}
	if err != nil {
		return r.feed.serverError(err, r.tli, r.lsn) // retention may have overtaken this reader
	}
	if len(r.raw) == 0 {
		if r.rawAt = fr.Start; r.rawAt > r.lsn {
			return fmt.Errorf("read spool at %s on timeline %d: the next frame starts at %s", r.lsn, r.from, r.rawAt)
		}
	}
	var unseen *link.UnseenStreamError
	r.raw, err = r.decoder.Decode(r.raw, fr)
	switch {
	case errors.As(err, &unseen) && r.again != r.lsn:
		// The spool was entered behind the start of fr's stream, at a frame that stands alone; enter it at that start, once.
		r.again = r.lsn
		return errors.Join(r.frames.Close(), r.openSpool())
	case err != nil:
		return fmt.Errorf("read spool at %s on timeline %d: %w", r.lsn, r.from, err)
	}
	if drop := min(r.lsn-r.rawAt, protocol.LSN(len(r.raw))); drop > 0 {
		r.raw = r.raw[:copy(r.raw, r.raw[drop:])]
		r.rawAt += drop
	}
	return nil
}
