package report

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A section is replaced in its place; everything around it stays.
func TestWriteReplacesItsSection(t *testing.T) {
	file := filepath.Join(t.TempDir(), "BENCHMARKS.md")
	if err := os.WriteFile(file, []byte("# Benchmarks\n\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ name, text string }{{"one", "first"}, {"two", "second"}, {"one", "third"}} {
		var r Report
		r.Line("%s is measured", step.text)
		if err := r.Write(file, step.name, "make "+step.name); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	one, two := strings.Index(text, "third is measured\n<!-- end one -->"), strings.Index(text, "second is measured\n<!-- end two -->")
	if !strings.HasPrefix(text, "# Benchmarks\n\n<!-- begin one -->\nMeasured ") || one < 0 || two < one || strings.Contains(text, "first") || !strings.Contains(text, "`make two`") {
		t.Errorf("got\n%s", text)
	}
}
