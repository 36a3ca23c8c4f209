package walsender

import (
	"context"
	"fmt"
	"time"

	"walproxy/protocol"
)

// pagesPerMessage bounds the WAL of one message, as stock servers do.
//
// Source: PostgreSQL src/backend/replication/walsender.c, MAX_SEND_SIZE (13-18).
const pagesPerMessage = 16

// WALReader reads the WAL of one timeline from a position on.
type WALReader interface {
	// Append waits for WAL and appends the next bytes to dst, at most limit. It adds fewer only if there is no more at the
	// moment: a standby that is promoted takes the end of what it got for the end of a record or page. start is the LSN of the
	// first byte added. Errors are those of Outgoing.Next.
	Append(ctx context.Context, dst []byte, limit int) (start protocol.LSN, out []byte, err error)
	Close() error
}

// plain sends WAL as it is, to stock consumers.
type plain struct {
	wal       WALReader
	next      protocol.LSN
	pageBytes protocol.LSN
	end       func() protocol.LSN
}

// NewPlain returns what streams WAL from start to a stock consumer, in messages cut at page boundaries. pageBytes is
// wal_block_size; end tells how far the node could send now. It closes wal.
func NewPlain(wal WALReader, start protocol.LSN, pageBytes uint32, end func() protocol.LSN) (Outgoing, error) {
	if pageBytes == 0 || pageBytes&(pageBytes-1) != 0 {
		return nil, fmt.Errorf("stream WAL from %s: page size %d is no power of two", start, pageBytes)
	}
	return &plain{wal: wal, next: start, pageBytes: protocol.LSN(pageBytes), end: end}, nil
}

// Next implements Outgoing.
func (p *plain) Next(ctx context.Context, dst []byte) ([]byte, protocol.LSN, error) {
	limit := p.next.Floor(uint64(p.pageBytes)) + pagesPerMessage*p.pageBytes - p.next
	header := len(dst)
	dst = protocol.AppendXLogDataHeader(dst, p.next, 0, time.Time{}) // room for it
	start, out, err := p.wal.Append(ctx, dst, int(limit))
	if err != nil {
		return nil, 0, err
	}
	n := len(out) - len(dst)
	if start != p.next || n <= 0 || n > int(limit) {
		return nil, 0, fmt.Errorf("stream WAL at %s: the reader returned %d bytes at %s, the limit is %d", p.next, n, start, limit)
	}
	p.next += protocol.LSN(n)
	protocol.AppendXLogDataHeader(out[:header], start, max(p.end(), p.next), time.Now())
	return out, p.next, nil
}

// Incoming implements Outgoing: a stock consumer sends nothing else.
func (p *plain) Incoming([]byte) (bool, error) { return false, nil }

// Close implements Outgoing.
func (p *plain) Close() error { return p.wal.Close() }
