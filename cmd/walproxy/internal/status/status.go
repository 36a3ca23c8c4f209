// Package status is what a node says of itself: the JSON of its /status and /slots, the client for it, and tables for people.
//
// Positions are written X/X, sizes are bytes of WAL unless they say otherwise, times are RFC 3339, durations are seconds.
package status

import (
	"fmt"
	"strconv"
	"time"

	"walproxy/protocol"
)

// LSN is a position that is written X/X in JSON; the zero LSN is null.
type LSN protocol.LSN

func (l LSN) String() string {
	if l == 0 {
		return "-"
	}
	return protocol.LSN(l).String()
}

// MarshalJSON implements json.Marshaler.
func (l LSN) MarshalJSON() ([]byte, error) {
	if l == 0 {
		return []byte("null"), nil
	}
	return append(protocol.LSN(l).Append([]byte{'"'}), '"'), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (l *LSN) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*l = 0
		return nil
	}
	text, err := strconv.Unquote(string(b))
	if err != nil {
		return fmt.Errorf("parse LSN %s: %w", b, err)
	}
	lsn, err := protocol.ParseLSN(text)
	*l = LSN(lsn)
	return err
}

// Node is the answer of /status.
type Node struct {
	Time      time.Time  `json:"time"`
	Version   string     `json:"version"`
	Cluster   Cluster    `json:"cluster"`
	Position  Position   `json:"position"`
	Upstream  Upstream   `json:"upstream"`
	Spool     Spool      `json:"spool"`
	Consumers []Consumer `json:"consumers"`
	Slots     []Slot     `json:"slots"`
}

// Cluster says whose WAL it is. It is empty until the upstream was seen once.
type Cluster struct {
	SystemID      string `json:"system_identifier,omitempty"`
	ServerVersion string `json:"server_version,omitempty"`
	SegmentBytes  uint32 `json:"segment_bytes,omitempty"`
}

// Position is where the node's WAL begins and ends.
type Position struct {
	Timeline protocol.Timeline `json:"timeline"`
	Oldest   LSN               `json:"oldest"`  // first byte held
	Written  LSN               `json:"written"` // behind the last byte
	Flushed  LSN               `json:"flushed"` // behind the last durable byte
	Redo     LSN               `json:"redo"`    // where recovery from the newest checkpoint begins; null if none has passed since the start
	Rate     float64           `json:"bytes_per_second"`
}

// Upstream is the connection to the server whose WAL the node takes in.
type Upstream struct {
	State       string     `json:"state"` // connecting, streaming, waiting, stopped
	Since       time.Time  `json:"since"`
	Peer        string     `json:"peer,omitempty"`
	Link        bool       `json:"link"` // it is a node, which sends frames
	Slot        string     `json:"slot,omitempty"`
	End         LSN        `json:"end"`       // position it reported last, at least what this node holds
	LagBytes    uint64     `json:"lag_bytes"` // of this node behind End
	LastMessage *time.Time `json:"last_message,omitempty"`
	LastError   string     `json:"last_error,omitempty"`
	Write       LSN        `json:"reported_write"`
	Flush       LSN        `json:"reported_flush"`
	Apply       LSN        `json:"reported_apply"`
	// RetainedBytes is the WAL that the upstream keeps for Slot: from the segment of what was reported as flushed. 0 without.
	RetainedBytes uint64 `json:"retained_bytes"`
}

// Spool is the log on disk. Its sizes are compressed bytes.
type Spool struct {
	Bytes      int64    `json:"bytes"`
	CapBytes   int64    `json:"cap_bytes"` // 0: none
	Fill       float64  `json:"fill"`      // of the cap, 0 to 1
	Alarm      bool     `json:"alarm"`     // the cap is near
	Blocked    bool     `json:"blocked"`   // the upstream is not read for want of room
	Rate       float64  `json:"bytes_per_second"`
	SecondsCap *float64 `json:"seconds_to_cap"` // at this rate; null if it does not grow or there is no cap
	HeldBy     string   `json:"held_by,omitempty"`
}

// Consumer is one stream.
type Consumer struct {
	Name       string            `json:"name"`
	Peer       string            `json:"peer"`
	PID        int32             `json:"pid"`
	Slot       string            `json:"slot,omitempty"`
	Link       bool              `json:"link"`
	State      string            `json:"state"` // startup, catchup, streaming, stopping
	Since      time.Time         `json:"since"`
	LastReply  *time.Time        `json:"last_reply,omitempty"`
	Timeline   protocol.Timeline `json:"timeline"`
	Sent       LSN               `json:"sent"`
	Write      LSN               `json:"write"`
	Flush      LSN               `json:"flush"`
	Apply      LSN               `json:"apply"`
	LagBytes   uint64            `json:"lag_bytes"`   // behind the node's WAL with what it has flushed, or written if it reports no flush
	LagSeconds float64           `json:"lag_seconds"` // for how long the node has had a byte that the consumer lacks
	Rate       float64           `json:"bytes_per_second"`
	// CatchUp is by how many bytes per second the lag shrinks; negative while it grows.
	CatchUp float64 `json:"catch_up_bytes_per_second"`
	// SecondsCaughtUp is when the lag will be 0 at that rate; null if it does not shrink.
	SecondsCaughtUp *float64 `json:"seconds_to_catch_up"`
	RetainedFrom    LSN      `json:"retained_from"`
	Reason          string   `json:"reason"`
}

// Slot is one physical replication slot of the node.
type Slot struct {
	Name        string `json:"name"`
	Temporary   bool   `json:"temporary"`
	Active      bool   `json:"active"`
	PID         int32  `json:"pid,omitempty"`
	Consumer    string `json:"consumer,omitempty"` // application_name of its stream
	Peer        string `json:"peer,omitempty"`
	RestartLSN  LSN    `json:"restart_lsn"`
	Status      string `json:"wal_status"` // reserved, unreserved (no restart_lsn), lost (its WAL is not all there), invalidated
	Invalidated string `json:"invalidation_reason,omitempty"`
	// RetainedFrom is the oldest WAL that is kept for the slot.
	RetainedFrom LSN    `json:"retained_from"`
	LagBytes     uint64 `json:"lag_bytes"`
	// LagSeconds is for how long the node has had WAL beyond restart_lsn.
	LagSeconds float64 `json:"lag_seconds"`
	// RetainedBytes is the WAL from RetainedFrom on that this node holds, RetainedUpstreamBytes what of it the upstream keeps
	// too, for the node's own slot there.
	RetainedBytes         uint64 `json:"retained_bytes"`
	RetainedUpstreamBytes uint64 `json:"retained_upstream_bytes"`
	Reason                string `json:"reason"`
}
