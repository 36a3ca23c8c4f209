// Package bench measures what recompression makes of WAL on disk: bytes stored, speed both ways, memory. Whatever it encodes it
// decodes again and compares byte for byte. It opens WAL for reading only.
package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"walproxy/recompress"
)

// ErrDifferent says that some WAL did not come back as it was.
var ErrDifferent = errors.New("decoded WAL differs from the input")

// Options say how WAL is encoded and what is measured beside.
type Options struct {
	Recompress recompress.Options
	Cut        Cut      // where frames end
	CPUs       int      // windows in work at a time, and what the runtime may use; 0 means all
	Peers      []string // also run the same bytes through these general compressors, as far as they are installed
	ByKind     bool     // also tell what kinds of records the WAL consists of
	Latency    bool     // also tell how long single frames take
	// Progress is told after every window how much of all inputs was done, in bytes of WAL; nil: nobody is. One call at a time.
	Progress func(done, total int64)
}

func (o Options) withDefaults() Options {
	if o.CPUs <= 0 {
		o.CPUs = runtime.NumCPU()
	}
	if o.Recompress.ResetDistance == 0 {
		o.Recompress.ResetDistance = recompress.DefaultResetDistance
	}
	return o
}

// Run measures every path, a WAL segment or a directory of segments, one after the other. While it runs, the Go runtime is
// limited to o.CPUs processors, so one Run at a time.
//
// Errors: one of class ErrDifferent if any WAL came back changed; the report is complete nevertheless. Others if options or paths
// are unusable, or ctx ended.
func Run(ctx context.Context, paths []string, o Options) (*Report, error) {
	o = o.withDefaults()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(o.CPUs))
	sets := make([][]stream, len(paths))
	p := progress{tell: o.Progress}
	for i, path := range paths {
		var err error
		if sets[i], err = findStreams(path); err != nil {
			return nil, err
		}
		for j := range sets[i] {
			p.total += sets[i][j].bytes()
		}
	}
	report, sum := &Report{}, newTally()
	for i, path := range paths {
		t, result, err := runInput(ctx, sets[i], o, &p)
		if err != nil {
			return nil, fmt.Errorf("bench %s: %w", path, err)
		}
		report.Inputs = append(report.Inputs, Input{Path: path, Result: *result})
		for _, s := range sets[i] {
			if s.hint != "" {
				report.Hints = append(report.Hints, s.hint)
			}
		}
		sum.add(t)
	}
	report.Total = *sum.result(o)
	report.sumExtras()
	if sum.different != nil {
		return report, sum.different
	}
	return report, nil
}

// runInput measures the streams of one path.
func runInput(ctx context.Context, streams []stream, o Options, p *progress) (*tally, *Result, error) {
	resetPeak()
	pool, err := newPool(o, streams)
	if err != nil {
		return nil, nil, err
	}
	t, err := pool.run(ctx, streams, p)
	if err != nil {
		return nil, nil, err
	}
	t.peak = peakBytes()
	result := t.result(o)
	if o.ByKind {
		if result.ByKind, err = countKinds(ctx, streams, t); err != nil {
			return nil, nil, err
		}
	}
	if len(o.Peers) > 0 {
		if result.Peers, err = runPeers(ctx, streams, o.Peers); err != nil {
			return nil, nil, err
		}
	}
	return t, result, nil
}

// progress adds up what was done.
type progress struct {
	done, total int64
	tell        func(done, total int64)
}

func (p *progress) add(bytes int64) {
	p.done += bytes
	if p.tell != nil {
		p.tell(p.done, p.total)
	}
}
