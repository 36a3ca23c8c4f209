package main

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// example is what a run might give: two workloads.
func example() (columns []*column, raw []float64) {
	for _, c := range []struct {
		name                  string
		ours                  bool
		share, encode, decode float64
	}{
		{"model", true, 0.027, 25, 27}, {"zstd 1", true, 0.22, 90, 400}, {"zstd 3", true, 0.19, 60, 380}, {"zstd 5", true, 0.17, 35, 370},
		{"zstd 10", true, 0.155, 6, 360}, {"lz4", true, 0.26, 180, 500}, {"none", true, 1.001, 1500, 1400},
		{"lz4", false, 0.31, 450, 1100}, {"gzip", false, 0.21, 30, 190}, {"zstd -3", false, 0.2, 170, 600},
		{"zstd -19 --long=27", false, 0.165, 1.4, 500}, {"xz -9e", false, 0.12, 1.6, 90}, {"not installed", false, 0, 0, 0},
	} {
		columns = append(columns, &column{
			name: c.name, ours: c.ours, bytes: []float64{c.share * 4e6, c.share * 5e6},
			encode: []float64{c.encode, c.encode * 1.1}, decode: []float64{c.decode, c.decode},
		})
	}
	return columns, []float64{4e6, 5e6}
}

// The chart is an SVG with a label for every column that has figures, and the report links to it.
func TestChart(t *testing.T) {
	dir := t.TempDir()
	b := bench{out: filepath.Join(dir, "BENCHMARKS.md"), charts: filepath.Join(dir, "docs", "charts")}
	columns, raw := example()
	if err := b.chart(columns, raw); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(filepath.Join(b.charts, chartName))
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]int{}
	for decoder := xml.NewDecoder(strings.NewReader(string(file))); ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if text, ok := token.(xml.CharData); ok {
			texts[strings.TrimSpace(string(text))]++
		}
	}
	for name, want := range map[string]int{"model": 1, "lz4": 2, "zstd -19 --long=27": 1, "not installed": 0, "walproxy": 1, "general compressors": 1} {
		if texts[name] != want {
			t.Errorf("%q is there %d times, want %d", name, texts[name], want)
		}
	}
	if err := b.report.Write(b.out, "engine", "make bench-engine"); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(b.out); err != nil || !strings.Contains(string(text), "](docs/charts/"+chartName+")") {
		t.Errorf("%v, %s", err, text)
	}
}

func TestGeomean(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{{nil, 0}, {[]float64{4}, 4}, {[]float64{2, 8}, 4}, {[]float64{2, 0}, 0}} {
		if got := geomean(c.values); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%v: %g, want %g", c.values, got, c.want)
		}
	}
}
