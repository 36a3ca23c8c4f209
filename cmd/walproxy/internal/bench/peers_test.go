package bench

import (
	"os"
	"testing"

	"walproxy/recompress"
)

func TestPeers(t *testing.T) {
	dir, temporary := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", temporary)
	generate(3*mib, 100_000).segments(t, dir)
	report, err := Run(t.Context(), []string{dir, dir}, Options{Recompress: recompress.Options{Level: 1}, Peers: PeerNames()})
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Total.Peers) == 0 {
		t.Error("none of the compressors is installed; integration/install-tools.sh gets them")
	}
	for i, p := range report.Total.Peers {
		one := report.Inputs[0].Peers[i]
		if p.Name != one.Name || p.EncodedBytes != 2*one.EncodedBytes || p.EncodedBytes == 0 || p.EncodeMBPerS <= 0 || p.DecodeMBPerS <= 0 || p.Ratio < 2 {
			t.Errorf("%+v, of one input %+v", p, one)
		}
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// Only the compressors that are asked for run.
func TestOnlyPeers(t *testing.T) {
	dir := t.TempDir()
	generate(3*mib, 100_000).segments(t, dir)
	report, err := Run(t.Context(), []string{dir}, Options{Recompress: recompress.Options{Level: 1}, Peers: []string{"gzip"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := report.Total.Peers; len(got) != 1 || got[0].Name != "gzip" {
		t.Errorf("ran %+v, want gzip", got)
	}
}
