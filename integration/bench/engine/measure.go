package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"walproxy/recompress"
)

// setting is how WAL is encoded.
type setting struct {
	codec       string
	level       int    // 0: the codec's default
	flush       string // "" is window
	distanceMiB int    // 0: the default
	cpus        int    // 0: one
}

func (s setting) String() string {
	if s.level == 0 {
		return s.codec
	}
	return s.codec + " " + strconv.Itoa(s.level)
}

// figures are the part of the report of `walproxy bench --json` that tables are made of.
type figures struct {
	RawBytes     int64   `json:"raw_bytes"`
	EncodedBytes int64   `json:"encoded_bytes"`
	Ratio        float64 `json:"ratio"`
	Encode       float64 `json:"encode_mb_per_s"`
	Decode       float64 `json:"decode_mb_per_s"`
	PeakBytes    int64   `json:"peak_memory_bytes"`
	Identical    bool    `json:"identical"`
	Latency      struct {
		Frames    int64   `json:"frames"`
		EncodeP50 float64 `json:"encode_us_p50"`
		EncodeP99 float64 `json:"encode_us_p99"`
		DecodeP50 float64 `json:"decode_us_p50"`
		DecodeP99 float64 `json:"decode_us_p99"`
	} `json:"latency"`
	ByKind []struct {
		Kind  string `json:"kind"`
		Count int64  `json:"count"`
	} `json:"by_kind"`
	Peers []peer `json:"peers"`
}

type peer struct {
	Name         string  `json:"name"`
	EncodedBytes int64   `json:"encoded_bytes"`
	Ratio        float64 `json:"ratio"`
	Encode       float64 `json:"encode_mb_per_s"`
	Decode       float64 `json:"decode_mb_per_s"`
}

// peer returns the figures of a general compressor; all zero if it is not installed.
func (f *figures) peer(name string) peer {
	if i := slices.IndexFunc(f.Peers, func(p peer) bool { return p.Name == name }); i >= 0 {
		return f.Peers[i]
	}
	return peer{Name: name}
}

// count returns how many records of a kind there are.
func (f *figures) count(kind string) (n int64) {
	for _, k := range f.ByKind {
		if k.Kind == kind {
			n += k.Count
		}
	}
	return n
}

// settings returns every codec of this version at the levels that are measured.
func (b *bench) settings() []setting {
	var all []setting
	for _, codec := range []string{"model", "zstd", "lz4", "none"} { // auto is one of them
		if !slices.Contains(recompress.Codecs(), codec) {
			continue
		}
		levels := []int{1, 3, 5, 10, 16}
		if b.quick || codec == "none" || codec == "lz4" || codec == "model" {
			levels = []int{0}
		}
		for _, level := range levels {
			all = append(all, setting{codec: codec, level: level})
		}
	}
	return all
}

// measure runs walproxy bench on dir. Of several rounds the fastest counts, for each figure. Errors: also if any WAL changed.
func (b *bench) measure(ctx context.Context, dir string, s setting, more ...string) (best figures, err error) {
	for round := range b.rounds {
		f, err := b.once(ctx, dir, s, more)
		if err != nil {
			return f, err
		}
		if round == 0 {
			best = f
			more = slices.DeleteFunc(slices.Clone(more), func(flag string) bool { return flag == "--peers" }) // they take longest
			continue
		}
		if f.EncodedBytes != best.EncodedBytes {
			return f, fmt.Errorf("%s on %s: %d bytes, and %d the next time", s, dir, best.EncodedBytes, f.EncodedBytes)
		}
		best.Encode, best.Decode = max(best.Encode, f.Encode), max(best.Decode, f.Decode)
		best.Latency.EncodeP50 = min(best.Latency.EncodeP50, f.Latency.EncodeP50)
		best.Latency.EncodeP99 = min(best.Latency.EncodeP99, f.Latency.EncodeP99)
		best.Latency.DecodeP50 = min(best.Latency.DecodeP50, f.Latency.DecodeP50)
		best.Latency.DecodeP99 = min(best.Latency.DecodeP99, f.Latency.DecodeP99)
	}
	return best, nil
}

func (b *bench) once(ctx context.Context, dir string, s setting, more []string) (f figures, err error) {
	args := []string{"bench", "--json", "--codec", s.codec, "--cpus", strconv.Itoa(max(1, s.cpus))}
	if s.level != 0 {
		args = append(args, "--level", strconv.Itoa(s.level))
	}
	if s.flush != "" {
		args = append(args, "--flush", s.flush)
	}
	if s.distanceMiB != 0 {
		args = append(args, "--reset-distance", fmt.Sprintf("%dMiB", s.distanceMiB))
	}
	args = append(append(args, more...), dir)
	cmd := exec.CommandContext(ctx, b.binary, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return f, fmt.Errorf("walproxy %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	var report struct {
		Total *figures `json:"total"`
	}
	report.Total = &f
	if err := json.Unmarshal(out, &report); err != nil {
		return f, fmt.Errorf("read the report of walproxy %s: %w", strings.Join(args, " "), err)
	}
	if !f.Identical || f.RawBytes == 0 {
		return f, fmt.Errorf("walproxy %s: the WAL did not come back", strings.Join(args, " "))
	}
	return f, nil
}

// geomean returns the geometric mean; 0 if there is nothing, or anything not above 0.
func geomean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		if v <= 0 {
			return 0
		}
		sum += math.Log(v)
	}
	if len(values) == 0 {
		return 0
	}
	return math.Exp(sum / float64(len(values)))
}
