package feed

import (
	"walproxy/protocol"
	"walproxy/slots/spool"
)

// history returns the ancestry of tli as the spool knows it.
func (f *Feed) history(tli protocol.Timeline) (protocol.History, error) {
	content, ok := f.log.History(tli)
	if !ok {
		return protocol.History{Timeline: tli}, nil // timeline 1, or one whose history the upstream did not have
	}
	return protocol.ParseHistory(tli, content)
}

func (f *Feed) currentHistory() (protocol.History, error) {
	current, _ := f.tail.position()
	return f.history(current)
}

// span returns what the spool holds of tli.
func (f *Feed) span(tli protocol.Timeline) (spool.TimelineSpan, bool) {
	for _, s := range f.log.Timelines() {
		if s.Timeline == tli {
			return s, true
		}
	}
	return spool.TimelineSpan{}, false
}

// locate finds the timeline whose frames hold the byte at lsn of tli's WAL: tli itself, the ancestor that the byte belongs
// to, or any timeline between it and the current one, since they all share the byte. limit is the LSN up to which that
// timeline's WAL is tli's too; 0 if there is no end.
func (f *Feed) locate(tli protocol.Timeline, lsn protocol.LSN) (from protocol.Timeline, limit protocol.LSN, err error) {
	path, err := f.currentHistory()
	if err != nil {
		return 0, 0, err
	}
	if !path.Contains(tli) {
		return 0, 0, protocol.Errorf(protocol.CodeInternalError,
			"requested starting point %s on timeline %d is not in this server's history", lsn, tli)
	}
	end, _, ended := path.End(tli)
	if ended && lsn >= end {
		end, next, _ := path.End(tli)
		return 0, 0, &protocol.TimelineEndError{Timeline: tli, Next: next, At: end}
	}
	own, err := f.history(tli)
	if err != nil {
		return 0, 0, err
	}
	owner := own.At(lsn)
	best := spool.TimelineSpan{}
	oldest := protocol.LSN(0) // of what is held on the path, for the error
	for _, s := range f.log.Timelines() {
		if s.Timeline < owner || !path.Contains(s.Timeline) {
			continue
		}
		if oldest == 0 || s.Begin < oldest {
			oldest = s.Begin
		}
		if lsn >= s.Begin && lsn < s.End && (best.Timeline == 0 || s.Timeline == tli || best.Timeline != tli && s.Timeline < best.Timeline) {
			best = s
		}
	}
	if best.Timeline == 0 {
		return 0, 0, f.removed(tli, lsn)
	}
	limit = end // 0 while tli is the current one
	if e, _, ok := path.End(best.Timeline); ok && (limit == 0 || e < limit) {
		limit = e
	}
	return best.Timeline, limit, nil
}

// checkSegment refuses what a server refuses: a timeline's WAL before the segment in which it forked off.
//
// Source: PostgreSQL src/backend/replication/walsender.c, WalSndSegmentOpen (13-18).
func (f *Feed) checkSegment(tli protocol.Timeline, lsn protocol.LSN) error {
	h, err := f.history(tli)
	if err != nil {
		return err
	}
	id, _ := f.log.Identity()
	if size := uint64(id.SegmentSize); size != 0 && lsn.Floor(size) < h.Begin().Floor(size) {
		return f.removed(tli, lsn)
	}
	return nil
}

func (f *Feed) removed(tli protocol.Timeline, lsn protocol.LSN) error {
	id, _ := f.log.Identity()
	size := uint64(max(id.SegmentSize, protocol.MinSegmentSize))
	return protocol.Errorf(protocol.CodeUndefinedFile, "requested WAL segment %s has already been removed", protocol.SegmentName(tli, lsn, size))
}
