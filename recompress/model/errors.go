package model

import (
	"errors"
	"fmt"

	"walproxy/protocol"
)

// ErrCorrupt is the class of errors that say a payload is not what an Encoder wrote.
var ErrCorrupt = errors.New("model: corrupt payload")

// CorruptError says where in the WAL decoding failed, and why. It is an ErrCorrupt.
type CorruptError struct {
	LSN  protocol.LSN
	What string
}

func (e *CorruptError) Error() string { return fmt.Sprintf("corrupt payload at %s: %s", e.LSN, e.What) }

func (e *CorruptError) Unwrap() error { return ErrCorrupt }
