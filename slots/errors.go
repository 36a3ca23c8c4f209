package slots

import "fmt"

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
