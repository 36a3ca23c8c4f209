package slots

import "walproxy/protocol"

// Slot is a copy of what a Store knows of one physical replication slot.
type Slot struct {
	Name       string
	Temporary  bool         // dies with its session
	RestartLSN protocol.LSN // oldest WAL that the consumer may still want; 0 until it is known
	SavedLSN   protocol.LSN // RestartLSN as a crash may find it; 0 if it was never saved or the slot is temporary
	PID        int32        // of the session that holds the slot, 0 if none does
	// Invalidated says why the slot no longer holds WAL back ("wal_removed"); empty for a good slot.
	Invalidated string
}

// Active reports whether a session holds the slot.
func (s Slot) Active() bool { return s.PID != 0 }

// HoldsFrom returns the oldest WAL that must be kept for the slot, before widening: after a crash the slot claims SavedLSN
// again, so that is kept too. 0 means that the slot holds nothing.
func (s Slot) HoldsFrom() protocol.LSN {
	switch {
	case s.Invalidated != "":
		return 0
	case s.SavedLSN != 0 && s.SavedLSN < s.RestartLSN:
		return s.SavedLSN
	}
	return s.RestartLSN
}
