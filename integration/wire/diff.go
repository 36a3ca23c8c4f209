package wire

import (
	"fmt"
	"slices"
	"strings"
)

// Normal returns a log in which the order of ParameterStatus messages that follow each other does not show: it differs between
// versions and means nothing.
func Normal(log []string) []string {
	normal := slices.Clone(log)
	for start := 0; start < len(normal); {
		end := start
		for end < len(normal) && strings.HasPrefix(normal[end], "S ") {
			end++
		}
		slices.Sort(normal[start:end])
		start = max(end, start+1)
	}
	return normal
}

// Diff compares two logs and returns the first difference with what is around it; "" if they are equal.
func Diff(want, got []string) string {
	want, got = Normal(want), Normal(got)
	if slices.Equal(want, got) {
		return ""
	}
	at := 0
	for at < len(want) && at < len(got) && want[at] == got[at] {
		at++
	}
	show := func(log []string) string { return strings.Join(log[max(0, at-3):min(len(log), at+4)], "\n    ") }
	return fmt.Sprintf("message %d differs\n  want\n    %s\n  got\n    %s", at+1, show(want), show(got))
}
