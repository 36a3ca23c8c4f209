package integration

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"walproxy/integration/workload"
)

// benchResult is what the test reads of the report of `walproxy bench --json`.
type benchResult struct {
	RawBytes     int64   `json:"raw_bytes"`
	EncodedBytes int64   `json:"encoded_bytes"`
	Ratio        float64 `json:"ratio"`
	Identical    bool    `json:"identical"`
	RawFrames    int64   `json:"raw_fallback_frames"`
	PeakBytes    int64   `json:"peak_memory_bytes"`
	Latency      struct {
		Frames int64 `json:"frames"`
	} `json:"latency"`
	ByKind []struct {
		Kind     string `json:"kind"`
		Count    int64  `json:"count"`
		RawBytes int64  `json:"raw_bytes"`
	} `json:"by_kind"`
}

func (r *benchResult) count(kind string) int64 {
	for _, k := range r.ByKind {
		if k.Kind == kind {
			return k.Count
		}
	}
	return 0
}

// bench runs the program and returns its total.
func bench(t *testing.T, args ...string) benchResult {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), binary(t), append([]string{"bench", "--json"}, args...)...).Output()
	must(t, err)
	var report struct {
		Total benchResult `json:"total"`
	}
	must(t, json.Unmarshal(out, &report))
	return report.Total
}

// TestBench: WAL of a real server, whole and a segment from its middle, comes back from every way of cutting frames and shrinks.
func TestBench(t *testing.T) {
	t.Parallel()
	ctx := setting(t, patience)
	for _, name := range []string{"oltp_nofpw", "mixed"} {
		dir := t.TempDir()
		made, err := workload.Generate(ctx, dir, workload.Options{Name: name, SegmentMiB: 1, Scale: 0.02})
		must(t, err)
		entries, err := os.ReadDir(dir)
		must(t, err)
		if len(entries) < 2 {
			t.Fatalf("%s: %d segments", name, len(entries))
		}
		whole := int64(made.Segments) << 20
		sealed := bench(t, dir)
		if sealed.RawBytes != whole || !sealed.Identical || sealed.Ratio < 2 || sealed.PeakBytes == 0 {
			t.Errorf("%s, sealed: %+v, want %d bytes", name, sealed, whole)
		}
		commits := bench(t, "--flush", "commit", "--by-kind", "--latency", dir)
		if commits.RawBytes != whole || !commits.Identical || commits.Ratio < 1.5 {
			t.Errorf("%s, per commit: %+v", name, commits)
		}
		ended := commits.count("Transaction/COMMIT") + commits.count("Transaction/ABORT")
		if frames := commits.Latency.Frames; ended < 400 || frames < ended || frames > ended+int64(made.Segments)+1 {
			t.Errorf("%s: %d frames for %d transactions", name, frames, ended)
		}
		sum := int64(0)
		for _, k := range commits.ByKind {
			sum += k.RawBytes
		}
		if sum != whole || commits.count("not WAL") != 0 {
			t.Errorf("%s: kinds are %d bytes of %d: %+v", name, sum, whole, commits.ByKind)
		}
		middle := bench(t, "--flush", "64KiB", "--codec", "none", filepath.Join(dir, entries[1].Name()))
		if middle.RawBytes != 1<<20 || !middle.Identical || middle.EncodedBytes < 1<<20 || middle.EncodedBytes > 1<<20+1<<10 || middle.RawFrames != 0 {
			t.Errorf("%s, one segment: %+v", name, middle)
		}
	}
}
