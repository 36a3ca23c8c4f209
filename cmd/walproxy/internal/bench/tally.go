package bench

import (
	"time"

	"walproxy/recompress"
)

// tally is what was measured so far.
type tally struct {
	raw, encoded               int64
	windows, frames, rawFrames int64
	encode, decode             time.Duration
	cold                       cold       // first windows
	encodeTimes, decodeTimes   *histogram // of single frames
	peak                       int64
	different                  error              // the first WAL that came back changed
	costs                      map[string]float64 // encoded bytes by kind, as far as the codec tells; else nil
}

// cold is what the first windows of workers took, which is in the sums too.
type cold struct {
	raw            int64
	encode, decode time.Duration
}

func newTally() *tally { return &tally{encodeTimes: new(histogram), decodeTimes: new(histogram)} }

func (t *tally) differ(err error) {
	if t.different == nil {
		t.different = err
	}
}

func (t *tally) add(o *tally) {
	t.raw += o.raw
	t.encoded += o.encoded
	t.windows += o.windows
	t.frames += o.frames
	t.rawFrames += o.rawFrames
	t.encode += o.encode
	t.decode += o.decode
	t.cold.raw += o.cold.raw
	t.cold.encode += o.cold.encode
	t.cold.decode += o.cold.decode
	t.encodeTimes.merge(o.encodeTimes)
	t.decodeTimes.merge(o.decodeTimes)
	t.peak = max(t.peak, o.peak)
	t.differ(o.different)
}

// result is the tally as it is reported.
func (t *tally) result(o Options) *Result {
	r := &Result{
		RawBytes: t.raw, EncodedBytes: t.encoded, Ratio: ratio(t.raw, t.encoded), EncodeMBPerS: speed(t.raw, t.encode),
		DecodeMBPerS: speed(t.raw, t.decode), PeakMemoryBytes: t.peak, Identical: t.different == nil,
	}
	if o.Recompress.Codec != recompress.None { // where nothing else was asked for, raw is no fallback
		r.RawFallbackFrames = t.rawFrames
	}
	if o.Latency {
		r.Latency = &Latency{
			Frames:    t.frames,
			EncodeP50: t.encodeTimes.percentile(50), EncodeP99: t.encodeTimes.percentile(99),
			DecodeP50: t.decodeTimes.percentile(50), DecodeP99: t.decodeTimes.percentile(99),
			WarmEncodeMBPerS: speed(t.raw-t.cold.raw, t.encode-t.cold.encode), WarmDecodeMBPerS: speed(t.raw-t.cold.raw, t.decode-t.cold.decode),
		}
	}
	return r
}

func ratio(raw, encoded int64) float64 {
	if encoded == 0 {
		return 0
	}
	return float64(raw) / float64(encoded)
}

// speed is in units of 10^6 bytes per second, as every compressor prints it.
func speed(bytes int64, took time.Duration) float64 {
	if took <= 0 {
		return 0
	}
	return float64(bytes) / 1e6 / took.Seconds()
}
