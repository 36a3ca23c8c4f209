package walreceiver

import (
	"fmt"
	"slices"
	"time"

	"walproxy/protocol"
)

func historyCommand(tli protocol.Timeline) string { return fmt.Sprintf("TIMELINE_HISTORY %d", tli) }

// fetchHistory returns the content of a timeline's history file, whatever type the server gives that column (bytea in 13,
// text later; both carry the bytes as they are).
func (c *wire) fetchHistory(within time.Duration, tli protocol.Timeline) ([]byte, error) {
	results, err := c.exec(within, historyCommand(tli))
	if err != nil {
		return nil, err
	}
	row, err := results[0].one(2)
	if err != nil {
		return nil, fmt.Errorf("fetch history of timeline %d from upstream %s: %w", tli, c.peer, err)
	}
	if name := protocol.HistoryName(tli); string(row[0]) != name {
		return nil, fmt.Errorf("fetch history of timeline %d from upstream %s: got file %q", tli, c.peer, row[0])
	}
	return row[1], nil
}

// checkLineage compares the upstream's timeline and its history with what sink holds. history is the content of the file of
// theirs.timeline, nil for timeline 1. Errors: *TimelineError if the upstream does not continue ours.
func checkLineage(sink Sink, theirs position, history []byte, peer string) error {
	ours, lsn := sink.Resume()
	if ours == 0 {
		return nil
	}
	refuse := func(why string) error {
		return &TimelineError{Ours: ours, Theirs: theirs.timeline, LSN: lsn, Peer: peer, Why: why}
	}
	if theirs.timeline < ours {
		return refuse("the upstream has not been promoted, or is another server; it may catch up")
	}
	parsed, err := protocol.ParseHistory(theirs.timeline, history)
	if err != nil {
		return err
	}
	if !parsed.Contains(ours) {
		return refuse("the upstream's timeline does not descend from ours")
	}
	held, ok := sink.History(ours)
	if !ok {
		return nil
	}
	own, err := protocol.ParseHistory(ours, held)
	if err != nil {
		return &FatalError{Op: "read own history", Err: err}
	}
	line := parsed.Entries
	if ours != theirs.timeline {
		line = line[:slices.IndexFunc(line, func(e protocol.HistoryEntry) bool { return e.Timeline == ours })]
	}
	if !slices.Equal(line, own.Entries) {
		return refuse("both have the same number but different histories")
	}
	return nil
}

// keepHistories fetches the histories that sink lacks: of the upstream's timeline, whose content is known, and of its
// ancestors as far as the upstream has them.
func (c *wire) keepHistories(within time.Duration, sink Sink, tli protocol.Timeline, content []byte) error {
	if tli == 1 {
		return nil
	}
	parsed, err := protocol.ParseHistory(tli, content)
	if err != nil {
		return err
	}
	for _, entry := range parsed.Entries {
		if _, ok := sink.History(entry.Timeline); ok || entry.Timeline == 1 {
			continue
		}
		ancestor, err := c.fetchHistory(within, entry.Timeline)
		if hasCode(err, protocol.CodeUndefinedFile) {
			continue // a server keeps no ancestor's file that it did not need itself
		}
		if err != nil {
			return err
		}
		if err := addHistory(sink, entry.Timeline, ancestor); err != nil {
			return err
		}
	}
	return addHistory(sink, tli, content)
}

// addHistory keeps a history that sink lacks. One that it has must say the same.
func addHistory(sink Sink, tli protocol.Timeline, content []byte) error {
	parsed, err := protocol.ParseHistory(tli, content)
	if err != nil {
		return err
	}
	if held, ok := sink.History(tli); ok {
		own, err := protocol.ParseHistory(tli, held)
		if err == nil && !slices.Equal(own.Entries, parsed.Entries) {
			err = fmt.Errorf("the upstream's history of timeline %d differs from the one held here", tli)
		}
		return err
	}
	if err := sink.AddHistory(tli, content); err != nil {
		return &FatalError{Op: fmt.Sprintf("keep history of timeline %d", tli), Err: err}
	}
	return nil
}
