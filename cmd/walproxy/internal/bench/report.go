package bench

import (
	"slices"
	"time"
)

// Report is what `walproxy bench --json` prints.
type Report struct {
	Inputs []Input  `json:"inputs"`
	Total  Result   `json:"total"`
	Hints  []string `json:"-"` // what is wrong with inputs that do not begin like WAL
}

// Input is what was measured on one path.
type Input struct {
	Path string `json:"path"`
	Result
}

// Result is what was measured on some WAL.
type Result struct {
	RawBytes     int64   `json:"raw_bytes"`
	EncodedBytes int64   `json:"encoded_bytes"` // everything a node stores: window headers, frame headers, payloads
	Ratio        float64 `json:"ratio"`         // raw / encoded; 0 for no WAL
	// Speeds are in 10^6 bytes of raw WAL per second and cover all that a node does: parsing, encoding, decoding and comparing
	// before a frame leaves, checksums; on the way back checksums of frames and of WAL.
	EncodeMBPerS    float64 `json:"encode_mb_per_s"`
	DecodeMBPerS    float64 `json:"decode_mb_per_s"`
	PeakMemoryBytes int64   `json:"peak_memory_bytes"` // resident memory of the whole process at its highest
	Identical       bool    `json:"identical"`         // all WAL came back byte for byte
	// RawFallbackFrames carry WAL as it is because the codec made nothing smaller of it.
	RawFallbackFrames int64 `json:"raw_fallback_frames"`

	Latency *Latency `json:"latency,omitempty"` // Options.Latency
	ByKind  []Kind   `json:"by_kind,omitempty"` // Options.ByKind; most raw bytes first
	Peers   []Peer   `json:"peers,omitempty"`   // Options.Peers
}

// Latency tells how long single frames took, in microseconds, and how fast it is in the long run.
type Latency struct {
	Frames    int64   `json:"frames"`
	EncodeP50 float64 `json:"encode_us_p50"`
	EncodeP99 float64 `json:"encode_us_p99"`
	DecodeP50 float64 `json:"decode_us_p50"`
	DecodeP99 float64 `json:"decode_us_p99"`
	// Speeds of all windows but the first of each worker, which makes tables and buffers; 0 if there are no others.
	WarmEncodeMBPerS float64 `json:"warm_encode_mb_per_s"`
	WarmDecodeMBPerS float64 `json:"warm_decode_mb_per_s"`
}

// Kind is one kind of content of the WAL.
type Kind struct {
	Kind     string `json:"kind"` // "Heap/INSERT", "page image/btree", "page header" ...
	Count    int64  `json:"count"`
	RawBytes int64  `json:"raw_bytes"`
	// EncodedBytes is nil if the codec does not tell what it spends on what.
	EncodedBytes *int64 `json:"encoded_bytes,omitempty"`
}

// Peer is what a general compressor made of the same bytes, as one piece, on one processor.
type Peer struct {
	Name         string  `json:"name"` // with its options: "zstd -3"
	EncodedBytes int64   `json:"encoded_bytes"`
	Ratio        float64 `json:"ratio"`
	EncodeMBPerS float64 `json:"encode_mb_per_s"`
	DecodeMBPerS float64 `json:"decode_mb_per_s"`

	rawBytes               int64
	encodeTime, decodeTime time.Duration
}

// sumExtras fills the total with what only inputs have.
func (r *Report) sumExtras() {
	for i := range r.Inputs {
		for _, p := range r.Inputs[i].Peers {
			at := slices.IndexFunc(r.Total.Peers, func(sum Peer) bool { return sum.Name == p.Name })
			if at < 0 {
				r.Total.Peers = append(r.Total.Peers, p)
				continue
			}
			r.Total.Peers[at].add(p)
		}
		for _, k := range r.Inputs[i].ByKind {
			at := slices.IndexFunc(r.Total.ByKind, func(sum Kind) bool { return sum.Kind == k.Kind })
			if at < 0 {
				if k.EncodedBytes != nil { // not the input's
					encoded := *k.EncodedBytes
					k.EncodedBytes = &encoded
				}
				r.Total.ByKind = append(r.Total.ByKind, k)
				continue
			}
			r.Total.ByKind[at].add(k)
		}
	}
	sortKinds(r.Total.ByKind)
}

func (p *Peer) add(o Peer) {
	p.EncodedBytes += o.EncodedBytes
	p.rawBytes += o.rawBytes
	p.encodeTime += o.encodeTime
	p.decodeTime += o.decodeTime
	p.rate()
}

func (k *Kind) add(o Kind) {
	k.Count += o.Count
	k.RawBytes += o.RawBytes
	if k.EncodedBytes != nil && o.EncodedBytes != nil {
		*k.EncodedBytes += *o.EncodedBytes
	}
}
