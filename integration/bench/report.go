package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

// report gathers Markdown.
type report struct{ text strings.Builder }

func (r *report) line(format string, args ...any) {
	fmt.Fprintf(&r.text, format+"\n", args...)
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}

// write replaces the section called name in the file, between its two marks, or appends it.
func (r *report) write(file, name string) error {
	begin, end := fmt.Sprintf("<!-- begin %s -->\n", name), fmt.Sprintf("<!-- end %s -->\n", name)
	old, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	section := begin + machine() + r.text.String() + end
	text := string(old)
	from, to := strings.Index(text, begin), strings.Index(text, end)
	if from >= 0 && to > from {
		text = text[:from] + section + text[to+len(end):]
	} else {
		text += section
	}
	return os.WriteFile(file, []byte(text), 0o644)
}

// machine says when and on what the figures were measured.
func machine() string {
	return fmt.Sprintf("Measured %s by `make bench` on %s, %d CPUs, %s.\n\n",
		time.Now().Format("2006-01-02"), cpu(), runtime.NumCPU(), runtime.Version())
}

func cpu() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "an unknown CPU"
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "an unknown CPU"
}
