package protocol

import (
	"fmt"
	"strconv"
)

// Timeline is the number of a timeline; the first one is 1 and 0 means "none".
//
// Source: PostgreSQL src/include/access/xlogdefs.h, TimeLineID (13-18).
type Timeline uint32

// ParseTimeline reads a decimal timeline number from 1 to 2^31-1, the range that a stock walreceiver accepts.
func ParseTimeline(text string) (Timeline, error) {
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil || n == 0 || text[0] == '+' {
		return 0, fmt.Errorf("parse timeline %q: want a decimal number from 1 to 2147483647", text)
	}
	return Timeline(n), nil
}
