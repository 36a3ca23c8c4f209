package walreceiver

import (
	"context"
	"fmt"
	"slices"

	"go.uber.org/zap"

	"walproxy/protocol"
)

// begin is a stream to ask for: from start on, of which the sink holds the bytes below held.
type begin struct {
	timeline    protocol.Timeline
	start, held protocol.LSN
}

// begins returns the streams to try in turn; the later ones only if the upstream no longer has the WAL of those before.
func (s *serving) begins(ctx context.Context, theirs position, history []byte) ([]begin, error) {
	tli, lsn := s.sink.Resume()
	if tli == 0 {
		return s.firstBegins(ctx, theirs, history)
	}
	if s.link() {
		return []begin{{tli, lsn, lsn}}, nil // a frame starts where the last one ended, and its stream identifies the WAL
	}
	return []begin{{tli, s.overlapFrom(lsn), lsn}}, nil
}

// overlapFrom returns where to start so that the WAL in front of lsn is compared: at a page boundary if possible, not below
// what can be compared, and in the segment of lsn, since a slot keeps no earlier one.
func (s *serving) overlapFrom(lsn protocol.LSN) protocol.LSN {
	back := protocol.LSN(max(s.r.options.OverlapBytes, 0))
	start := protocol.LSN(0)
	if lsn > back {
		start = (lsn - back).Floor(uint64(s.upstream.identity.WALBlockSize))
	}
	if back == 0 {
		start = lsn
	}
	return min(max(start, s.sink.Begin(), lsn.Floor(uint64(s.upstream.identity.SegmentSize))), lsn)
}

// firstBegins chooses where a node begins that holds nothing: where the slot keeps WAL, or else where the upstream is now,
// from the reset boundary or the segment's start. A child timeline is served from the segment of its fork on.
func (s *serving) firstBegins(ctx context.Context, theirs position, history []byte) ([]begin, error) {
	parsed, err := protocol.ParseHistory(theirs.timeline, history)
	if err != nil {
		return nil, err
	}
	base := theirs.end
	reserved, err := s.slotPosition()
	if err != nil {
		return nil, err
	}
	if reserved != 0 {
		base = min(base, reserved)
	}
	segment := uint64(s.upstream.identity.SegmentSize)
	lowest := max(parsed.Begin().Floor(segment), protocol.LSN(segment)) // the first segment of all is not used
	list := s.continued(ctx, begin{theirs.timeline, max(base.Floor(segment), lowest), 0}, parsed)
	for _, start := range []protocol.LSN{
		min(base.Floor(segment), base.Floor(uint64(s.r.options.ResetDistance))), base.Floor(segment), theirs.end.Floor(segment),
	} {
		b := begin{theirs.timeline, max(start, lowest), 0}
		if !slices.Contains(list, b) {
			list = append(list, b)
		}
	}
	return list, nil
}

// continued returns where to begin to continue what Options.First tells, if that lies before where the node would begin otherwise.
func (s *serving) continued(ctx context.Context, otherwise begin, parsed protocol.History) []begin {
	if s.r.options.First == nil {
		return nil
	}
	tli, end := s.r.options.First(ctx)
	if end == 0 || !parsed.Contains(tli) || tli == otherwise.timeline && end >= otherwise.start {
		return nil
	}
	if fork, _, ended := parsed.End(tli); ended && end >= fork { // all of it: its successor begins there
		tli, end = parsed.At(fork), fork
	}
	segment := uint64(s.upstream.identity.SegmentSize)
	start := min(end.Floor(segment), end.Floor(uint64(s.r.options.ResetDistance)))
	begins := protocol.LSN(segment)
	for i, e := range parsed.Entries {
		if i > 0 && e.Timeline == tli {
			begins = parsed.Entries[i-1].End.Floor(segment)
		}
	}
	if tli == parsed.Timeline && parsed.Begin() != 0 {
		begins = parsed.Begin().Floor(segment)
	}
	return []begin{{tli, max(start, begins), 0}}
}

// slotPosition returns the slot's restart_lsn; 0 if it has none, or none is used, or the server is too old to tell (before 15).
func (s *serving) slotPosition() (protocol.LSN, error) {
	row, err := s.readSlot()
	if err != nil || row == nil || row[1] == nil {
		return 0, err
	}
	return protocol.ParseLSN(string(row[1]))
}

// readSlot returns the row of READ_REPLICATION_SLOT {type, restart_lsn, restart_tli}, nil if the server cannot tell.
func (s *serving) readSlot() ([][]byte, error) {
	if s.r.options.Slot == "" || s.upstream.identity.Major() < 15 {
		return nil, nil
	}
	results, err := s.exec(s.r.options.ReceiverTimeout, "READ_REPLICATION_SLOT "+quoteName(s.r.options.Slot))
	if err != nil {
		return nil, err
	}
	row, err := results[0].one(3)
	if hasCode(err, protocol.CodeFeatureNotSupported, protocol.CodeSyntaxError) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read slot %q on upstream %s: %w", s.r.options.Slot, s.peer, err)
	}
	return row, nil
}

// ensureSlot creates the slot, with WAL reserved, if it is missing and that is wanted.
func (s *serving) ensureSlot() error {
	o := &s.r.options
	if !o.CreateSlot {
		return nil
	}
	row, err := s.readSlot()
	if err != nil || row != nil && row[0] != nil {
		return err
	}
	results, err := s.exec(o.ReceiverTimeout, fmt.Sprintf("CREATE_REPLICATION_SLOT %s PHYSICAL RESERVE_WAL", quoteName(o.Slot)))
	switch {
	case err != nil:
		return err
	case results[0].err == nil:
		s.log.Info("created replication slot", zap.String("slot", o.Slot))
	case !hasCode(results[0].err, protocol.CodeDuplicateObject):
		return fmt.Errorf("create slot %q on upstream %s: %w", o.Slot, s.peer, results[0].err)
	}
	return nil
}
