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
	"walproxy/recompress/zstd"
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
		Encode    float64 `json:"warm_encode_mb_per_s"` // without the first window, if there are several
		Decode    float64 `json:"warm_decode_mb_per_s"`
	} `json:"latency"`
	ByKind []struct {
		Kind  string `json:"kind"`
		Count int64  `json:"count"`
	} `json:"by_kind"`
	Peers []peer `json:"peers"`

	firstEncode, firstDecode float64 // speeds of the first window
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

// steady returns the speeds in the long run: without the first window, if there are several.
func (f *figures) steady() (encode, decode float64) {
	if f.Latency.Encode == 0 {
		return f.Encode, f.Decode
	}
	return f.Latency.Encode, f.Latency.Decode
}

// first returns the speeds of the first window of a process with one worker; 0 if there was no other.
func (f *figures) first() (encode, decode float64) {
	const window = recompress.DefaultResetDistance
	if f.RawBytes <= window || f.Latency.Encode == 0 {
		return 0, 0
	}
	all := float64(f.RawBytes)
	speed := func(mean, rest float64) float64 { return window / (all/mean - (all-window)/rest) }
	return speed(f.Encode, f.Latency.Encode), speed(f.Decode, f.Latency.Decode)
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

// settings returns every codec of this version, model and zstd at all levels. Level 1 of the model is its level 3.
func (b *bench) settings() []setting {
	var all []setting
	for _, codec := range []string{"model", "zstd", "lz4", "none"} { // auto is one of them
		if !slices.Contains(recompress.Codecs(), codec) {
			continue
		}
		if b.quick || codec != "zstd" && codec != "model" {
			all = append(all, setting{codec: codec})
			continue
		}
		for _, level := range zstd.Levels {
			if codec != "model" || level > 1 {
				all = append(all, setting{codec: codec, level: level})
			}
		}
	}
	return all
}

// measure runs walproxy bench on dir. Of several rounds the fastest counts, for each figure. Slow peers run once. Errors: also if any
// WAL changed.
func (b *bench) measure(ctx context.Context, dir string, s setting, more ...string) (best figures, err error) {
	more = append(slices.Clone(more), "--latency")
	for round := range b.rounds {
		f, err := b.once(ctx, dir, s, more)
		if err != nil {
			return f, err
		}
		f.firstEncode, f.firstDecode = f.first()
		if round == 0 {
			best = f
			if i := slices.Index(more, "--peers"); i >= 0 {
				more[i] = "--peers=" + strings.Join(fastPeers, ",")
			}
			continue
		}
		if f.EncodedBytes != best.EncodedBytes {
			return f, fmt.Errorf("%s on %s: %d bytes, and %d the next time", s, dir, best.EncodedBytes, f.EncodedBytes)
		}
		for i := range best.Peers {
			p, again := &best.Peers[i], f.peer(best.Peers[i].Name)
			p.Encode, p.Decode = max(p.Encode, again.Encode), max(p.Decode, again.Decode)
		}
		best.Encode, best.Decode = max(best.Encode, f.Encode), max(best.Decode, f.Decode)
		best.Latency.Encode, best.Latency.Decode = max(best.Latency.Encode, f.Latency.Encode), max(best.Latency.Decode, f.Latency.Decode)
		best.firstEncode, best.firstDecode = max(best.firstEncode, f.firstEncode), max(best.firstDecode, f.firstDecode)
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
