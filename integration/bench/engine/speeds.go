package main

import (
	"slices"
	"strings"

	"walproxy/recompress/zstd"
)

// paced are the workloads that the goals for speed are about.
var paced = []string{"oltp_nofpw", "oltp", "index", "wide", "mixed"}

// workloadSpeeds prints the speeds of the codecs at their default levels on each workload, beside pace.
func (b *bench) workloadSpeeds(columns []*column) {
	var few []*column
	for _, c := range columns {
		if s := c.setting; c.ours && s.codec != "none" && (s.level == 0 || s.level == zstd.DefaultLevel) {
			few = append(few, c)
		}
	}
	b.report.Line("#### Speed on each workload\n")
	b.report.Line("At default levels, in the windows behind the first one, and what part of `%s`'s on the same bytes that is. Last line: the\n"+
		"geometric mean over %s.\n", pace, strings.Join(paced, ", "))
	head, rule := "| workload |", "|---|"
	for _, c := range few {
		head += " " + c.name + " encode MB/s | of " + pace + " | decode MB/s | of " + pace + " |"
		rule += "---:|---:|---:|---:|"
	}
	b.report.Line("%s\n%s", head, rule)
	for row, name := range b.workloads {
		line := "| " + name + " |"
		for _, c := range few {
			line += " " + number("%.1f", c.encode[row]) + " | " + number("%.2f", c.faster[row]) + " | " + number("%.1f", c.decode[row]) + " | " +
				number("%.2f", c.reads[row]) + " |"
		}
		b.report.Line("%s", line)
	}
	line := "| |"
	for _, c := range few {
		of := func(values []float64) (some []float64) {
			for row, name := range b.workloads {
				if slices.Contains(paced, name) {
					some = append(some, values[row])
				}
			}
			return some
		}
		line += " " + number("%.1f", geomean(of(c.encode))) + " | " + number("%.2f", geomean(of(c.faster))) + " | " +
			number("%.1f", geomean(of(c.decode))) + " | " + number("%.2f", geomean(of(c.reads))) + " |"
	}
	b.report.Line("%s\n", line)
}
