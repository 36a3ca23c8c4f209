package integration

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"walproxy/integration/pgcluster"
	"walproxy/integration/wire"
	"walproxy/protocol"
)

// brought is the WAL that one stream brought.
type brought struct {
	start  protocol.LSN
	wal    []byte
	cuts   []protocol.LSN // where messages ended
	walEnd protocol.LSN   // what the last message said of the end of the WAL
	alive  protocol.Keepalive
}

func (r *brought) end() protocol.LSN { return r.start + protocol.LSN(len(r.wal)) }

// take reads a stream until enough says so or the connection ends. WAL and keepalives leave no trace in the log; WAL that does not
// follow what came before is an error.
func (r *brought) take(c *wire.Conn, enough func(wire.Message) bool) error {
	for {
		m, err := c.Next()
		if err != nil {
			return err
		}
		if m.Type == 'd' {
			c.Log = c.Log[:len(c.Log)-1]
			if err := r.note(m.Body); err != nil {
				return err
			}
		}
		if m.Type == 0 || enough(m) {
			return nil
		}
	}
}

func (r *brought) note(body []byte) (err error) {
	if len(body) > 0 && body[0] == protocol.MessageKeepalive {
		r.alive, err = protocol.ParseKeepalive(body)
		return err
	}
	x, err := protocol.ParseXLogData(body)
	if err != nil {
		return err
	}
	if x.Start != r.end() {
		return fmt.Errorf("WAL at %s, want %s", x.Start, r.end())
	}
	r.wal = append(r.wal, x.Data...)
	r.cuts, r.walEnd = append(r.cuts, r.end()), x.WALEnd
	return nil
}

// ofType is a condition for take.
func ofType(types string) func(wire.Message) bool {
	return func(m wire.Message) bool { return bytes.IndexByte([]byte(types), m.Type) >= 0 }
}

// answered is true of the keepalive that answers a report.
func answered(m wire.Message) bool {
	return m.Type == 'd' && m.Body[0] == protocol.MessageKeepalive && m.Body[len(m.Body)-1] == 0
}

// startStream sends START_REPLICATION and reads up to CopyBothResponse, or ReadyForQuery where there is none.
func startStream(c *wire.Conn, at protocol.LSN, tli protocol.Timeline) (*brought, error) {
	if err := c.Send(wire.Query(fmt.Sprintf("START_REPLICATION %s TIMELINE %d", at, tli))); err != nil {
		return nil, err
	}
	_, err := c.Until("WZ")
	return &brought{start: at}, err
}

// report sends a report of everything up to a position, which wants an answer or not.
func report(c *wire.Conn, at protocol.LSN, reply bool) error {
	status := protocol.Status{Write: at, Flush: at, SendTime: time.Now(), ReplyRequested: reply}
	return c.Send(wire.Typed('d', status.Append(nil)))
}

// stop ends a stream from the client's side.
func (r *brought) stop(c *wire.Conn) error {
	if err := c.Send(wire.Typed('c', nil)); err != nil {
		return err
	}
	return r.take(c, ofType("Z"))
}

// everything streams from one position to another, or up to the end of the timeline if that comes first, and ends.
func everything(c *wire.Conn, from, to protocol.LSN, tli protocol.Timeline) (*brought, error) {
	if err := as(c, pgcluster.User); err != nil {
		return nil, err
	}
	r, err := startStream(c, from, tli)
	if err != nil {
		return nil, err
	}
	if err := r.take(c, func(m wire.Message) bool { return r.end() >= to && m.Type == 'd' || m.Type == 'c' || m.Type == 'E' }); err != nil {
		return nil, err
	}
	return r, r.stop(c)
}

// 34: whatever WAL there is, of each timeline the same bytes; 36: the same rules for what is in one message.
func (w *twins) sameBytes(ctx context.Context, t *testing.T) {
	for _, part := range []struct {
		tli      protocol.Timeline
		from, to protocol.LSN
	}{{1, w.from, w.fork}, {2, w.fork.Floor(segmentBytes), w.end}} {
		theirs, err := pgcluster.ReadWAL(w.server.WAL(), part.tli, part.from, part.to)
		must(t, err)
		w.same(t, fmt.Sprintf("timeline %d", part.tli), func(c *wire.Conn) error {
			r, err := everything(c, part.from, part.to, part.tli)
			if err == nil && !bytes.Equal(r.wal[:min(len(r.wal), len(theirs))], theirs) {
				err = fmt.Errorf("%d bytes of WAL from %s on, and not those of the server's files", len(r.wal), part.from)
			}
			return err
		})
	}
}

func (w *twins) chunks(ctx context.Context, t *testing.T) {
	const pageBytes = 8192
	for _, offset := range []protocol.LSN{0, 1, pageBytes, 12345, segmentBytes - 1} {
		from := w.from + offset
		w.same(t, fmt.Sprintf("chunks from %s on", from), func(c *wire.Conn) error {
			r, err := everything(c, from, w.fork, 1)
			if err != nil {
				return err
			}
			if r.end() != w.fork || r.walEnd != w.fork {
				return fmt.Errorf("up to %s, said to be %s, want %s", r.end(), r.walEnd, w.fork)
			}
			begin := from
			for _, cut := range r.cuts {
				if cut-begin > 16*pageBytes || cut%pageBytes != 0 && cut != w.fork {
					return fmt.Errorf("a message with the WAL from %s to %s", begin, cut)
				}
				begin = cut
			}
			return nil
		})
	}
}

// 37: a stream begins anywhere in the WAL, and where it ends it is silent.
func (w *twins) anywhere(ctx context.Context, t *testing.T) {
	segment := w.end.Floor(segmentBytes) - segmentBytes
	for _, at := range []protocol.LSN{segment, segment + 3*8192, segment + 3*8192 + 1, segment + 100001, w.end - 8, w.end} {
		theirs, err := pgcluster.ReadWAL(w.server.WAL(), 2, at, w.end)
		must(t, err)
		w.sameWhenQuiet(ctx, t, fmt.Sprintf("start at %s of %s", at, w.end), func(c *wire.Conn) error {
			if err := as(c, pgcluster.User); err != nil {
				return err
			}
			r, err := startStream(c, at, 2)
			if err != nil {
				return err
			}
			if err := r.take(c, func(wire.Message) bool { return r.end() >= w.end }); at < w.end && err != nil {
				return err
			}
			if !bytes.Equal(r.wal[:min(len(r.wal), len(theirs))], theirs) {
				return fmt.Errorf("other WAL from %s to %s", at, w.end)
			}
			return r.stop(c)
		})
	}
}

// 38: what is not there yet or no longer is refused inside of the copy, and the session goes on.
func (w *twins) outOfReach(ctx context.Context, t *testing.T) {
	w.sameWhenQuiet(ctx, t, "out of reach", func(c *wire.Conn) error {
		c.Values = true
		if err := as(c, pgcluster.User); err != nil {
			return err
		}
		for _, command := range []string{
			"START_REPLICATION FFFFFFF/0 TIMELINE 2", "START_REPLICATION FFFFFFF/0", "START_REPLICATION 0/0 TIMELINE 1",
			fmt.Sprintf("START_REPLICATION %s TIMELINE 1", w.removed), "SHOW wal_block_size", "IDENTIFY_SYSTEM",
		} {
			if err := c.Command(command); err != nil {
				return err
			}
		}
		return nil
	})
}

// 39: a timeline that is not the server's, one that ended before the start, and one that ended there.
func (w *twins) timelines(ctx context.Context, t *testing.T) {
	w.same(t, "timelines", func(c *wire.Conn) error {
		c.Values = true
		if err := as(c, pgcluster.User); err != nil {
			return err
		}
		for _, command := range []string{
			fmt.Sprintf("START_REPLICATION %s TIMELINE 7", w.fork), fmt.Sprintf("START_REPLICATION %s TIMELINE 1", w.fork+1),
			fmt.Sprintf("START_REPLICATION %s TIMELINE 1", w.fork), fmt.Sprintf("START_REPLICATION SLOT none %s TIMELINE 7", w.fork),
			"IDENTIFY_SYSTEM",
		} {
			if err := c.Command(command); err != nil {
				return err
			}
		}
		return nil
	})
}

// 40: a child timeline has its parent's bytes in the segment of the fork and none of the segments before.
func (w *twins) child(ctx context.Context, t *testing.T) {
	segment := w.fork.Floor(segmentBytes)
	parent, err := pgcluster.ReadWAL(w.server.WAL(), 1, segment, w.fork)
	must(t, err)
	w.same(t, "segment of the fork", func(c *wire.Conn) error {
		r, err := everything(c, segment, w.fork+100, 2)
		if err == nil && !bytes.HasPrefix(r.wal, parent) {
			err = fmt.Errorf("not the parent's WAL from %s to %s", segment, w.fork)
		}
		return err
	})
	w.same(t, "segment before", func(c *wire.Conn) error {
		if err := as(c, pgcluster.User); err != nil {
			return err
		}
		return c.Command(fmt.Sprintf("START_REPLICATION %s TIMELINE 2", segment-8))
	})
}

// 41: two tags end a copy, and the connection serves the next command, also one that was sent with CopyDone.
func (w *twins) twoTags(ctx context.Context, t *testing.T) {
	w.sameWhenQuiet(ctx, t, "two tags", func(c *wire.Conn) error {
		c.Values = true
		if err := as(c, pgcluster.User); err != nil {
			return err
		}
		for _, at := range []protocol.LSN{w.end, w.end.Floor(segmentBytes)} {
			r, err := startStream(c, at, 2)
			if err != nil {
				return err
			}
			if err := c.Send(append(wire.Typed('c', nil), wire.Query("IDENTIFY_SYSTEM")...)); err != nil {
				return err
			}
			for range 2 {
				if err := r.take(c, ofType("Z")); err != nil {
					return err
				}
			}
		}
		return c.Command("TIMELINE_HISTORY 2")
	})
}

// 45: a silent client is asked once and hung up on, one that reports hears nothing. Of both at a time, for it takes a while.
func (w *twins) silence(ctx context.Context, t *testing.T) {
	direct, through := w.dial(t, false, false), w.dial(t, true, false)
	ended := make(chan error, 1)
	go func() { ended <- silent(direct, w.end) }()
	err := silent(through, w.end)
	if theirs := <-ended; err != nil || theirs != nil {
		t.Errorf("the server: %v, the node: %v", theirs, err)
	}
	if problem := wire.Diff(direct.Log, through.Log); problem != "" {
		t.Error(problem)
	}
}

func silent(c *wire.Conn, at protocol.LSN) error {
	const timeout = 600 * time.Millisecond
	if err := as(c, pgcluster.User, "options", fmt.Sprintf("-c wal_sender_timeout=%dms", timeout.Milliseconds())); err != nil {
		return err
	}
	r, err := startStream(c, at, 2)
	if err != nil {
		return err
	}
	tick := time.NewTicker(timeout / 6)
	defer tick.Stop()
	for range 9 {
		<-tick.C
		if err := report(c, at, false); err != nil {
			return err
		}
	}
	var asked []time.Duration
	last := time.Now()
	err = r.take(c, func(m wire.Message) bool {
		if m.Type == 'd' && m.Body[0] == protocol.MessageKeepalive {
			asked = append(asked, time.Since(last))
		}
		return false
	})
	ended := time.Since(last)
	if err == nil && (len(asked) != 1 || !r.alive.ReplyRequested || asked[0] < timeout/3 || ended < timeout*5/6 || ended > 10*timeout) {
		err = fmt.Errorf("asked at %v, the last time %+v, hung up on after %s", asked, r.alive, ended)
	}
	return err
}

// 48: CopyDone in the middle of much WAL is followed by little more of it.
func (w *twins) doneEarly(ctx context.Context, t *testing.T) {
	w.same(t, "CopyDone in the middle", func(c *wire.Conn) error {
		if err := as(c, pgcluster.User); err != nil {
			return err
		}
		r, err := startStream(c, w.fork.Floor(segmentBytes), 2)
		if err != nil {
			return err
		}
		if err := r.take(c, ofType("d")); err != nil {
			return err
		}
		if err := r.stop(c); err != nil {
			return err
		}
		if rest := w.end - r.end(); rest < bigRecord/4 {
			return fmt.Errorf("%d bytes came, all but %d", len(r.wal), rest)
		}
		return nil
	})
}

// 53: a server flushes whole pages of a record that goes on, and no client gets more than that, of the server or of the node.
func (w *twins) restsInARecord(ctx context.Context, t *testing.T) {
	conn, err := w.server.Connect(ctx)
	must(t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	_, err = conn.Exec(ctx, "BEGIN; INSERT INTO t (text) SELECT repeat(md5(n::text), 5) FROM generate_series(1, 1000) n").ReadAll()
	must(t, err)
	var end protocol.LSN
	must(t, pgcluster.Until(ctx, func() (bool, error) {
		rows, err := w.server.Query(ctx, "SELECT pg_current_wal_flush_lsn(), pg_current_wal_insert_lsn()")
		if err != nil {
			return false, err
		}
		end = parseLSN(t, rows[0][0])
		// All whole pages are flushed, so that nothing moves any more: WAL writer may do it in several steps.
		insert := parseLSN(t, rows[0][1])
		return end == insert.Floor(8192) && insert > end && end > w.end, nil
	}))
	from := end.Floor(segmentBytes)
	theirs, err := pgcluster.ReadWAL(w.server.WAL(), 2, from, end)
	must(t, err)
	w.sameWhenQuiet(ctx, t, "rest in a record", func(c *wire.Conn) error {
		if err := as(c, pgcluster.User); err != nil {
			return err
		}
		r, err := startStream(c, from, 2)
		if err != nil {
			return err
		}
		if err := r.take(c, func(wire.Message) bool { return r.end() >= end }); err != nil {
			return err
		}
		if err := report(c, r.end(), true); err != nil {
			return err
		}
		if err := r.take(c, answered); err != nil {
			return err
		}
		if !bytes.Equal(r.wal, theirs) || r.alive.WALEnd != end {
			return fmt.Errorf("%d bytes from %s on, keepalive of %s, want %s", len(r.wal), from, r.alive.WALEnd, end)
		}
		return r.stop(c)
	})
	_, err = conn.Exec(ctx, "COMMIT").ReadAll()
	must(t, err)
}
