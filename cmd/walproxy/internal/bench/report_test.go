package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"walproxy/recompress"
)

// The object that --json prints has the fields that are promised, and no others unless they are asked for.
func TestJSON(t *testing.T) {
	dir := t.TempDir()
	generate(3*mib, 100_000).segments(t, dir)
	fields := []string{"raw_bytes", "encoded_bytes", "ratio", "encode_mb_per_s", "decode_mb_per_s", "peak_memory_bytes", "identical", "raw_fallback_frames"}
	for _, extra := range [][]string{nil, {"by_kind", "latency", "peers"}} {
		o := Options{Recompress: recompress.Options{Level: 1}}
		if extra != nil {
			o.ByKind, o.Latency, o.Peers = true, true, PeerNames()
		}
		report, err := Run(t.Context(), []string{dir}, o)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(report)
		if err != nil {
			t.Fatal(err)
		}
		var object struct {
			Inputs []map[string]any `json:"inputs"`
			Total  map[string]any   `json:"total"`
		}
		var top map[string]any
		if err := errors.Join(json.Unmarshal(text, &object), json.Unmarshal(text, &top)); err != nil || len(top) != 2 || len(object.Inputs) != 1 {
			t.Fatalf("%v: %s", err, text)
		}
		want := slices.Sorted(slices.Values(slices.Concat(fields, extra)))
		if got := slices.Sorted(maps.Keys(object.Total)); !slices.Equal(got, want) {
			t.Errorf("total has %q, want %q", got, want)
		}
		want = slices.Sorted(slices.Values(append(want, "path")))
		if got := slices.Sorted(maps.Keys(object.Inputs[0])); !slices.Equal(got, want) {
			t.Errorf("an input has %q, want %q", got, want)
		}
		if object.Total["identical"] != true || object.Total["raw_bytes"] != float64(mib) {
			t.Errorf("total is %v", object.Total)
		}
	}
}

// The speed in the long run is that of all windows but each worker's first.
func TestWarm(t *testing.T) {
	o := Options{Latency: true}
	sum := newTally()
	for range 2 {
		w := newTally()
		w.raw, w.encode, w.decode = 5_000_000, 3*time.Second, 2*time.Second
		w.cold = cold{1_000_000, 1 * time.Second, 1 * time.Second}
		sum.add(w)
	}
	if l := sum.result(o).Latency; l.WarmEncodeMBPerS != 2 || l.WarmDecodeMBPerS != 4 {
		t.Errorf("%+v, want 2 and 4 MB/s", l)
	}
	one := newTally()
	one.raw, one.encode = 1_000_000, time.Second
	one.cold = cold{raw: one.raw, encode: one.encode}
	if l := one.result(o).Latency; l.WarmEncodeMBPerS != 0 {
		t.Errorf("%+v of one window, want 0", l)
	}
}

var update = flag.Bool("update", false, "write the golden files")

func TestTable(t *testing.T) {
	encoded, headers := int64(700), int64(300)
	peers := []Peer{{Name: "zstd -19 --long=27", EncodedBytes: 5 * mib, Ratio: 3.2, EncodeMBPerS: 2.25, DecodeMBPerS: 1200}}
	first := Result{
		RawBytes: 16 * mib, EncodedBytes: 740_000, Ratio: 22.67, EncodeMBPerS: 48.04, DecodeMBPerS: 51.96, PeakMemoryBytes: 70 * mib,
		Identical: true, RawFallbackFrames: 2, Peers: peers,
	}
	total := first
	total.RawBytes, total.Identical = 3<<30, false
	total.Latency = &Latency{Frames: 31_000, EncodeP50: 12.5, EncodeP99: 80, DecodeP50: 9, DecodeP99: 33.3}
	total.ByKind = []Kind{{"Heap/INSERT", 4000, 14 * mib, &encoded}, {"page image/btree", 17, 2048, new(int64)}, {kindHeaders, 0, 0, &headers}}
	report := Report{Inputs: []Input{{"wal/000000010000000000000042", first}, {"/archive", first}}, Total: total}
	var out bytes.Buffer
	o := Options{Recompress: recompress.Options{Codec: recompress.Zstd, Level: 5}, Cut: Cut{Commits: true}, CPUs: 1}
	if err := report.WriteTable(&out, o); err != nil {
		t.Fatal(err)
	}
	out.WriteString("----\n")
	single := Report{Inputs: report.Inputs[1:], Total: first}
	single.Total.ByKind = []Kind{{Kind: "Heap/INSERT", Count: 4000, RawBytes: 14 * mib}}
	if err := single.WriteTable(&out, Options{CPUs: 2}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("testdata", "table.txt")
	if *update {
		write(t, file, out.Bytes())
	}
	want, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(out.Bytes(), want) {
		t.Errorf("%v, got\n%s\nwant\n%s", err, out.Bytes(), want)
	}
	if err := report.WriteTable(failing{}, o); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a failing writer gives %v", err)
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
