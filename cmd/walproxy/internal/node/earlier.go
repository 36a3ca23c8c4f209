package node

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"

	"walproxy/protocol"
	"walproxy/protocol/relay"
	"walproxy/protocol/walreceiver"
	"walproxy/protocol/walsender"
	"walproxy/slots/feed"
)

// earlier serves WAL from before the spool's beginning. The streamer of a base backup needs it if the upstream is a standby that has
// not checkpointed since this node began. It comes from the upstream by a connection of its own, up to where the spool begins.
// It implements walsender.WALReader.
type earlier struct {
	feed     *feed.Feed
	tli      protocol.Timeline
	next     protocol.LSN // of the next byte
	end      protocol.LSN // the spool begins here
	up       *walreceiver.Connection
	messages *relay.Scanner
	rest     []byte          // WAL that has arrived, from next on
	then     *feed.WALReader // from end on
}

// openWAL opens WAL at start: in the spool or, for a base backup that runs, before it.
func (b *backend) openWAL(ctx context.Context, tli protocol.Timeline, start protocol.LSN) (walsender.WALReader, error) {
	n := b.node
	wal, refusal := n.feed.OpenWAL(tli, start)
	if refusal == nil {
		return wal, nil
	}
	end, held := n.feed.Held(tli)
	if !held || start >= end || !n.backupNeeds(start) {
		return nil, refusal
	}
	id, _ := n.log.Identity()
	up, err := n.receiver.Dial(ctx, &sink{Feed: n.feed, node: n}, id.SystemID, n.config.Upstream.ApplicationName+" earlier WAL")
	if err != nil {
		n.logger.Warn("cannot get earlier WAL for a base backup", zap.Stringer("lsn", start), zap.Error(err))
		return nil, refusal
	}
	e := &earlier{feed: n.feed, tli: tli, next: start, end: end, up: up}
	e.messages = relay.NewScanner(up, func(byte) bool { return true })
	if err := e.send('Q', fmt.Appendf(nil, "START_REPLICATION PHYSICAL %s TIMELINE %d\x00", start, tli)); err != nil {
		return nil, errors.Join(err, up.Close())
	}
	return e, nil
}

// backupNeeds reports whether WAL at lsn is needed by a base backup that runs: its slot begins in that segment or before it.
func (n *Node) backupNeeds(lsn protocol.LSN) bool {
	segment := uint64(n.retention(0, 0).SegmentSize)
	for _, s := range n.store.List() {
		if s.Temporary && strings.HasPrefix(s.Name, backupSlot) && s.RestartLSN.Floor(segment) <= lsn {
			return true
		}
	}
	return false
}

// Append implements walsender.WALReader.
func (e *earlier) Append(ctx context.Context, dst []byte, limit int) (protocol.LSN, []byte, error) {
	if e.next >= e.end {
		if e.then == nil {
			then, err := e.feed.OpenWAL(e.tli, e.next)
			if err != nil {
				return 0, dst, err
			}
			e.then = then
		}
		return e.then.Append(ctx, dst, limit)
	}
	stop := context.AfterFunc(ctx, func() { _ = e.up.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	for len(e.rest) == 0 {
		if err := e.receive(); err != nil {
			if ctx.Err() != nil {
				err = ctx.Err()
			}
			return 0, dst, err
		}
	}
	n := min(limit, len(e.rest), int(min(e.end-e.next, 1<<30)))
	start, wal := e.next, e.rest[:n]
	e.next, e.rest = e.next+protocol.LSN(n), e.rest[n:]
	return start, append(dst, wal...), nil
}

// receive takes one message of the upstream.
func (e *earlier) receive() error {
	m, err := e.messages.Next()
	if err != nil {
		return fmt.Errorf("read earlier WAL at %s from upstream %s: %w", e.next, e.up.Peer(), err)
	}
	body := m.Body()
	switch {
	case m.Kind == 'W', m.Kind == 'N', m.Kind == 'S':
		return nil
	case m.Kind == 'd' && len(body) > 0 && body[0] == protocol.MessageKeepalive:
		status := protocol.Status{Write: e.next, SendTime: time.Now()}
		return e.send('d', status.Append(nil))
	case m.Kind == 'd':
		data, err := protocol.ParseXLogData(body)
		if err != nil {
			return err
		}
		if data.Start != e.next {
			return fmt.Errorf("upstream %s sent WAL at %s, expected %s", e.up.Peer(), data.Start, e.next)
		}
		e.rest = data.Data
		return nil
	}
	// The upstream has it neither, or its timeline has ended: what that means is known here.
	return protocol.Errorf(protocol.CodeUndefinedFile, "requested WAL at %s has already been removed, here and upstream", e.next)
}

func (e *earlier) send(kind byte, body []byte) error {
	message := binary.BigEndian.AppendUint32([]byte{kind}, uint32(4+len(body)))
	if err := e.up.SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	if _, err := e.up.Write(append(message, body...)); err != nil {
		return fmt.Errorf("ask upstream %s for earlier WAL: %w", e.up.Peer(), err)
	}
	return nil
}

// Close implements walsender.WALReader.
func (e *earlier) Close() error {
	var err error
	if e.then != nil {
		err = e.then.Close()
	}
	return errors.Join(err, e.up.Close())
}
