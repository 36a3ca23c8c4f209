package protocol

import (
	"errors"
	"fmt"
)

// MaxNameBytes is the length to which PostgreSQL cuts identifiers.
//
// Source: PostgreSQL src/include/pg_config_manual.h, NAMEDATALEN - 1 (13-18).
const MaxNameBytes = 63

// What goes wrong with slots, for whoever keeps them and whoever serves them.
var (
	ErrSlotExists  = errors.New("replication slot already exists")
	ErrSlotMissing = errors.New("replication slot does not exist")
	ErrSlotsFull   = errors.New("all replication slots are in use")
)

// SlotInUseError says which session holds a slot.
type SlotInUseError struct {
	Name string
	PID  int32 // as the holder was told in its BackendKeyData
}

func (e *SlotInUseError) Error() string {
	return fmt.Sprintf("replication slot %q is active for PID %d", e.Name, e.PID)
}

// SlotInvalidatedError says that a slot holds no WAL any more and may not be used.
type SlotInvalidatedError struct {
	Name   string
	Reason string // in PostgreSQL's words, as "wal_removed"
}

func (e *SlotInvalidatedError) Error() string {
	return fmt.Sprintf("replication slot %q has been invalidated due to %q", e.Name, e.Reason)
}

// CheckSlotName returns nil if a slot may have this name, else an *Error as CREATE_REPLICATION_SLOT sends it.
//
// Source: PostgreSQL src/backend/replication/slot.c, ReplicationSlotValidateName (13-18).
func CheckSlotName(name string) error {
	if name == "" {
		return Errorf(CodeInvalidName, "replication slot name \"\" is too short")
	}
	if len(name) > MaxNameBytes {
		return Errorf(CodeNameTooLong, "replication slot name \"%s\" is too long", name)
	}
	for i := range len(name) {
		if c := name[i]; !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_') {
			err := Errorf(CodeInvalidName, "replication slot name \"%s\" contains invalid character", name)
			err.Hint = "Replication slot names may only contain lower case letters, numbers, and the underscore character."
			return err
		}
	}
	return nil
}
