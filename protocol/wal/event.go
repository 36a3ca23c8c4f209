package wal

import "walproxy/protocol"

// Kind says what a stretch of WAL is.
type Kind uint8

// The kinds of events. All but KindPage are content: what is left of the WAL when valid page headers are taken out.
const (
	// KindPage is a valid page header. It comes before the event whose content goes on behind it.
	KindPage Kind = iota + 1
	// KindRecord is a whole record. Data holds xl_tot_len bytes; zero bytes up to a multiple of 8 follow in the WAL.
	KindRecord
	// KindFragment is a part of a record whose whole is not at hand: its start lies before the walker's, it is longer than
	// Options.MaxRecordBytes, or Flush tore it. Padding is included. Also the rest of what Flush tore.
	KindFragment
	// KindAborted is the beginning of a record that a crash cut off and that the next page overrules.
	KindAborted
	// KindSwitchTail is zero bytes behind SWITCH, page headers included, up to the end of the segment or of the page.
	KindSwitchTail
	// KindRaw is something else; Rule says what is wrong with it.
	KindRaw
)

var kindNames = [...]string{
	KindPage: "page", KindRecord: "record", KindFragment: "fragment", KindAborted: "aborted", KindSwitchTail: "switch tail", KindRaw: "raw",
}

func (k Kind) String() string {
	if int(k) >= len(kindNames) || kindNames[k] == "" {
		return "unknown kind"
	}
	return kindNames[k]
}

// Event is one piece of WAL. The events of a stream, put back together as Joiner does, are all its bytes.
type Event struct {
	Kind     Kind
	Rule     Rule              // KindRaw: the broken rule; else RuleNone
	Version  Version           // of the page before, 0 if none was seen
	Timeline protocol.Timeline // of the page before, 0 if none was seen

	// Start is the LSN of the first byte and End the one behind the last. Content that goes over pages begins behind a
	// page header, never on it, and has the headers of the pages it enters between Start and End, but not in Data.
	Start, End protocol.LSN

	// Data is valid until the next call of any method of the walker, and as long as the chunk is.
	Data []byte

	// Page is the decoded header (KindPage only), NewTimeline whether the page before had another timeline.
	Page        *PageHeader
	NewTimeline bool
}
