package verify

import (
	"fmt"
	"io"
	"strings"

	"walproxy/protocol"
)

// Report says what was compared and what came out.
type Report struct {
	A          Point       `json:"a"`
	B          Point       `json:"b"`
	Compared   []Range     `json:"compared"`             // found the same; up to the difference if there is one
	OnlyA      []Range     `json:"only_a,omitempty"`     // not compared: the other one does not hold it
	OnlyB      []Range     `json:"only_b,omitempty"`     //
	Difference *Difference `json:"difference,omitempty"` // the first one
}

// Point is one of the two sources.
type Point struct {
	Name     string  `json:"name"`
	SystemID string  `json:"system_id"`
	Holds    []Range `json:"holds"`
}

// Range is WAL of one timeline, to excluded.
type Range struct {
	Timeline protocol.Timeline `json:"timeline"`
	From     string            `json:"from"`
	To       string            `json:"to"`
	Bytes    uint64            `json:"bytes"`
}

// Difference is where the two begin to differ, and how.
type Difference struct {
	Timeline protocol.Timeline `json:"timeline,omitempty"`
	LSN      string            `json:"lsn,omitempty"`
	What     string            `json:"what"`
	at       protocol.LSN
}

func rangeOf(s Span) Range {
	return Range{Timeline: s.Timeline, From: s.Begin.String(), To: s.End.String(), Bytes: uint64(s.End - s.Begin)}
}

func point(s Source, v Inventory) Point {
	p := Point{Name: s.Name(), SystemID: v.SystemID.String(), Holds: []Range{}}
	for _, span := range v.Spans {
		p.Holds = append(p.Holds, rangeOf(span))
	}
	return p
}

func (r Range) String() string {
	return fmt.Sprintf("timeline %d, %s to %s (%s)", r.Timeline, r.From, r.To, size(r.Bytes))
}

func size(n uint64) string {
	if n < 1<<20 {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}

// Write writes the report as text.
func (r *Report) Write(w io.Writer) error {
	var b strings.Builder
	for _, p := range []struct {
		letter string
		Point
	}{{"A", r.A}, {"B", r.B}} {
		fmt.Fprintf(&b, "%s  %s, system %s\n", p.letter, p.Name, p.SystemID)
		for _, held := range p.Holds {
			fmt.Fprintf(&b, "   holds %s\n", held)
		}
	}
	for _, only := range r.OnlyA {
		fmt.Fprintf(&b, "only A holds %s\n", only)
	}
	for _, only := range r.OnlyB {
		fmt.Fprintf(&b, "only B holds %s\n", only)
	}
	for _, same := range r.Compared {
		if same.Bytes > 0 {
			fmt.Fprintf(&b, "the same: %s\n", same)
		}
	}
	if r.Difference != nil {
		fmt.Fprintf(&b, "DIFFERENT: %s\n", r.Difference.What)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
