package slots

import (
	"errors"
	"fmt"
)

var (
	// ErrExists means that a slot of this name exists (SQLSTATE 42710).
	ErrExists = errors.New("replication slot already exists")
	// ErrMissing means that no slot has this name (SQLSTATE 42704).
	ErrMissing = errors.New("replication slot does not exist")
	// ErrInvalidName is the class of names that PostgreSQL refuses (SQLSTATE 42602).
	ErrInvalidName = errors.New("invalid replication slot name")
	// ErrTooMany means that as many slots exist as are allowed (SQLSTATE 53400).
	ErrTooMany = errors.New("all replication slots are in use")
)

// InUseError means that a session holds the slot (SQLSTATE 55006).
type InUseError struct {
	Name string
	PID  int32 // of the session, as its client was told
}

func (e *InUseError) Error() string {
	return fmt.Sprintf("replication slot %q is active for PID %d", e.Name, e.PID)
}

// CorruptError means that the file of the slots is not what was written. The slots are unknown then; they are not made up.
type CorruptError struct {
	File string
	Err  error
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("corrupt slot file %s: %v; restore it from a backup, or move it away and create the slots again "+
		"(consumers that are behind may then miss WAL)", e.File, e.Err)
}

func (e *CorruptError) Unwrap() error { return e.Err }
