package protocol

import (
	"fmt"
	"strconv"
	"strings"
)

// MaxHistoryBytes bounds a timeline history file. A line is some 50 bytes plus a reason; thousands of promotions fit.
const MaxHistoryBytes = 1 << 20

// HistoryEntry says that Timeline ended at End, where the next entry's timeline (or the history's own) began.
type HistoryEntry struct {
	Timeline Timeline
	End      LSN // the switch point: first byte that does not belong to Timeline
}

// History is the ancestry of one timeline, oldest ancestor first. The zero value is no history; timeline 1 has no entries.
type History struct {
	Timeline Timeline
	Entries  []HistoryEntry
}

// ParseHistory reads the content of tli's history file. Blank lines and lines that begin with # are skipped, whatever
// follows the LSN is a reason for humans. Timelines must grow strictly and stay below tli.
//
// Source: PostgreSQL src/backend/access/transam/timeline.c, readTimeLineHistory (13-18).
func ParseHistory(tli Timeline, content []byte) (History, error) {
	h := History{Timeline: tli}
	if len(content) > MaxHistoryBytes {
		return History{}, fmt.Errorf("parse history of timeline %d: %d bytes exceed the limit of %d", tli, len(content), MaxHistoryBytes)
	}
	for number, line := range strings.Split(string(content), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		entry, err := parseHistoryLine(line)
		if err != nil {
			return History{}, fmt.Errorf("parse history of timeline %d, line %d: %w", tli, number+1, err)
		}
		if n := len(h.Entries); n > 0 && entry.Timeline <= h.Entries[n-1].Timeline {
			return History{}, fmt.Errorf("parse history of timeline %d, line %d: timeline %d does not follow %d",
				tli, number+1, entry.Timeline, h.Entries[n-1].Timeline)
		}
		h.Entries = append(h.Entries, entry)
	}
	if n := len(h.Entries); n > 0 && h.Entries[n-1].Timeline >= tli {
		return History{}, fmt.Errorf("parse history of timeline %d: it names timeline %d as an ancestor", tli, h.Entries[n-1].Timeline)
	}
	return h, nil
}

func parseHistoryLine(line string) (HistoryEntry, error) {
	fields := strings.Fields(line)
	if len(fields) < 2 {
		return HistoryEntry{}, fmt.Errorf("want a timeline and an LSN, got %q", line)
	}
	n, err := strconv.ParseUint(fields[0], 10, 32)
	if err != nil || n == 0 {
		return HistoryEntry{}, fmt.Errorf("bad timeline %q", fields[0])
	}
	end, err := ParseLSN(fields[1])
	if err != nil {
		return HistoryEntry{}, err
	}
	return HistoryEntry{Timeline: Timeline(n), End: end}, nil
}

// End returns where tli ended on the way to h.Timeline and which timeline came next.
// ok is false for h.Timeline itself, which has no end yet, and for timelines that are no ancestors.
func (h History) End(tli Timeline) (end LSN, next Timeline, ok bool) {
	for i, e := range h.Entries {
		if e.Timeline == tli {
			next = h.Timeline
			if i+1 < len(h.Entries) {
				next = h.Entries[i+1].Timeline
			}
			return e.End, next, true
		}
	}
	return 0, 0, false
}

// Contains reports whether tli is h.Timeline or one of its ancestors.
func (h History) Contains(tli Timeline) bool {
	_, _, ancestor := h.End(tli)
	return ancestor || tli == h.Timeline
}

// At returns the timeline that the byte at lsn belongs to: the oldest ancestor whose end lies above lsn, else h.Timeline.
//
// Source: PostgreSQL src/backend/access/transam/timeline.c, tliOfPointInHistory (13-18).
func (h History) At(lsn LSN) Timeline {
	for _, e := range h.Entries {
		if lsn < e.End {
			return e.Timeline
		}
	}
	return h.Timeline
}

// Begin returns the LSN at which h.Timeline forked off its parent; zero for a timeline without parent.
func (h History) Begin() LSN {
	if len(h.Entries) == 0 {
		return 0
	}
	return h.Entries[len(h.Entries)-1].End
}
