// Package protocol holds the words that every part of walproxy shares: LSN, timeline, timeline history, segment names,
// replication commands, streaming messages and SQLSTATE errors. It is pure: no socket, file, clock or logger.
package protocol

import (
	"fmt"
	"strconv"
	"strings"
)

// LSN is a byte position in the WAL. Zero means "none" (PostgreSQL: InvalidXLogRecPtr).
//
// Source: PostgreSQL src/include/access/xlogdefs.h, XLogRecPtr (13-18).
type LSN uint64

// ParseLSN reads PostgreSQL's text form, two hexadecimal halves of one to eight digits: "16/B374D848".
// Anything else, blanks and signs included, is an error; it never returns a position the text does not spell.
func ParseLSN(text string) (LSN, error) {
	high, low, found := strings.Cut(text, "/")
	if !found || !isHex32(high) || !isHex32(low) {
		return 0, fmt.Errorf("parse LSN %q: want two hexadecimal numbers of up to 8 digits, as in 16/B374D848", text)
	}
	h, errHigh := strconv.ParseUint(high, 16, 32)
	l, errLow := strconv.ParseUint(low, 16, 32)
	if errHigh != nil || errLow != nil {
		return 0, fmt.Errorf("parse LSN %q: number out of range", text)
	}
	return LSN(h<<32 | l), nil
}

func isHex32(s string) bool {
	if len(s) == 0 || len(s) > 8 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F') {
			return false
		}
	}
	return true
}

// String returns the text form that PostgreSQL 13-18 print, upper case and without padding.
func (l LSN) String() string {
	return string(l.Append(nil))
}

// Append appends the text form to dst and returns the extended buffer.
func (l LSN) Append(dst []byte) []byte {
	return fmt.Appendf(dst, "%X/%X", uint32(l>>32), uint32(l))
}

// Floor returns the largest multiple of size, a power of two, at or below l.
func (l LSN) Floor(size uint64) LSN { return l &^ LSN(size-1) }

// Next returns the smallest multiple of size, a power of two, above l.
func (l LSN) Next(size uint64) LSN { return l.Floor(size) + LSN(size) }
