package bench

import (
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"
)

// WriteTable writes the report for people. It describes how frames were cut by o.
func (r *Report) WriteTable(w io.Writer, o Options) error {
	o = o.withDefaults()
	level := "default level"
	if o.Recompress.Level != 0 {
		level = "level " + strconv.Itoa(o.Recompress.Level)
	}
	t := &table{w: w}
	t.printf("codec %s, %s, reset distance %d MiB, %s, %s; speeds in MB/s of WAL\n\n",
		o.Recompress.Codec, level, o.Recompress.ResetDistance>>20, o.Cut, plural(o.CPUs, "processor"))
	t.summary(r)
	t.latency(&r.Total)
	t.kinds(&r.Total)
	if !r.Total.Identical {
		t.printf("\nDIFFERENT: some WAL did not come back as it was\n")
	}
	return t.err
}

// table writes until the first error.
type table struct {
	w   io.Writer
	err error
}

func (t *table) printf(format string, args ...any) {
	if t.err == nil {
		_, t.err = fmt.Fprintf(t.w, format, args...)
	}
}

// rows writes lines of cells, aligned; the first cell to the left, the others to the right.
func (t *table) rows(lines [][]string) {
	widths := make([]int, len(lines[0]))
	for _, cells := range lines {
		for i, cell := range cells {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, cells := range lines {
		line := fmt.Sprintf("%-*s", widths[0], cells[0])
		for i, cell := range cells[1:] {
			line += fmt.Sprintf("  %*s", widths[i+1], cell)
		}
		t.printf("%s\n", strings.TrimRight(line, " "))
	}
}

// summary has a line for each input, with its peers below, and one for the total.
func (t *table) summary(r *Report) {
	lines := [][]string{{"input", "WAL", "stored", "ratio", "encode", "decode", "memory", "identical", "raw frames"}}
	add := func(name string, s *Result) {
		identical := "yes"
		if !s.Identical {
			identical = "NO"
		}
		lines = append(lines, []string{
			name, size(s.RawBytes), size(s.EncodedBytes), times(s.Ratio), rate(s.EncodeMBPerS), rate(s.DecodeMBPerS),
			size(s.PeakMemoryBytes), identical, strconv.FormatInt(s.RawFallbackFrames, 10),
		})
		for _, p := range s.Peers {
			lines = append(lines, []string{"  " + p.Name, "", size(p.EncodedBytes), times(p.Ratio), rate(p.EncodeMBPerS), rate(p.DecodeMBPerS), "", "", ""})
		}
	}
	for i := range r.Inputs {
		add(filepath.Base(r.Inputs[i].Path), &r.Inputs[i].Result)
	}
	if len(r.Inputs) > 1 {
		add("total", &r.Total)
	}
	t.rows(lines)
}

func (t *table) latency(r *Result) {
	if l := r.Latency; l != nil {
		t.printf("\n%d frames; us per frame: encode p50 %.1f p99 %.1f, decode p50 %.1f p99 %.1f\n",
			l.Frames, l.EncodeP50, l.EncodeP99, l.DecodeP50, l.DecodeP99)
		if l.WarmEncodeMBPerS > 0 {
			t.printf("MB/s without the first window of each processor: encode %.1f, decode %.1f\n", l.WarmEncodeMBPerS, l.WarmDecodeMBPerS)
		}
	}
}

func (t *table) kinds(r *Result) {
	if len(r.ByKind) == 0 {
		return
	}
	known := r.ByKind[0].EncodedBytes != nil
	head := []string{"kind", "count", "WAL", "share"}
	if known {
		head = append(head, "stored", "ratio")
	}
	lines := [][]string{head}
	for _, k := range r.ByKind {
		line := []string{k.Kind, strconv.FormatInt(k.Count, 10), size(k.RawBytes), fmt.Sprintf("%.1f %%", 100*ratio(k.RawBytes, r.RawBytes))}
		if known {
			stored := max(0, *k.EncodedBytes)
			line = append(line, size(stored), times(ratio(k.RawBytes, stored)))
		}
		lines = append(lines, line)
	}
	t.printf("\n")
	t.rows(lines)
	if !known {
		t.printf("This codec does not tell what it spends on each kind.\n")
	}
}

func times(ratio float64) string {
	if ratio == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2fx", ratio)
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

func rate(mbPerS float64) string { return fmt.Sprintf("%.1f", mbPerS) }

// size prints bytes for people.
func size(bytes int64) string {
	switch {
	case bytes >= 1<<30:
		return fmt.Sprintf("%.2f GiB", float64(bytes)/(1<<30))
	case bytes >= 1<<20:
		return fmt.Sprintf("%.2f MiB", float64(bytes)/(1<<20))
	case bytes >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(bytes)/(1<<10))
	}
	return fmt.Sprintf("%d B", bytes)
}
