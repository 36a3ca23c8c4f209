// Package report writes sections of BENCHMARKS.md.
package report

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

// Report gathers the Markdown of one section. The zero value is empty and ready to use.
type Report struct{ text strings.Builder }

// Line adds a line, and shows it on standard error.
func (r *Report) Line(format string, args ...any) {
	fmt.Fprintf(&r.text, format+"\n", args...)
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}

// Empty reports whether there is nothing in it.
func (r *Report) Empty() bool { return r.text.Len() == 0 }

// Write replaces the section called name in the file, between its two marks, or appends it. command is what measured.
func (r *Report) Write(file, name, command string) error {
	begin, end := fmt.Sprintf("<!-- begin %s -->\n", name), fmt.Sprintf("<!-- end %s -->\n", name)
	old, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	section := begin + machine(command) + r.text.String() + end
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
func machine(command string) string {
	return fmt.Sprintf("Measured %s by `%s` on %s, %d CPUs, %s.\n\n",
		time.Now().Format("2006-01-02"), command, cpu(), runtime.NumCPU(), runtime.Version())
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
