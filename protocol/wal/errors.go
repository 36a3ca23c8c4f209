package wal

import (
	"errors"
	"fmt"

	"walproxy/protocol"
)

var (
	// ErrShort means that the bytes end before the value does.
	ErrShort = errors.New("wal: more bytes needed")
	// ErrInvalid is the class of every error that says bytes are not WAL as the server's own reader would accept it.
	ErrInvalid = errors.New("wal: invalid")
	// ErrUndrained means that a Walker was fed before Next had said that nothing is left.
	ErrUndrained = errors.New("wal: events of the last chunk are still to be read")
	// ErrPosition means that WAL would lie beyond MaxLSN.
	ErrPosition = errors.New("wal: position out of range")
)

// PageError says which rule the page at LSN breaks. It is an ErrInvalid.
type PageError struct {
	LSN  protocol.LSN
	Rule Rule
}

func (e *PageError) Error() string { return fmt.Sprintf("invalid WAL page at %s: %s", e.LSN, e.Rule) }

func (e *PageError) Unwrap() error { return ErrInvalid }

// VersionError says that a page was written by a server that this package does not know. The page may be in order.
type VersionError struct {
	LSN   protocol.LSN
	Magic uint16
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("unknown WAL page magic %04X at %s: PostgreSQL 13 to 18 (little-endian) are known", e.Magic, e.LSN)
}

// RecordError says which rule a record breaks, and where in the record. It is an ErrInvalid.
type RecordError struct {
	Rule   Rule
	Offset int // bytes from the start of the record
}

func (e *RecordError) Error() string {
	return fmt.Sprintf("invalid WAL record, offset %d: %s", e.Offset, e.Rule)
}

func (e *RecordError) Unwrap() error { return ErrInvalid }
