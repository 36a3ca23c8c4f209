package recompress

import (
	"bytes"
	"testing"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/protocol/wal/waltest"
)

// Records that are coded alone never make a sealed window larger, whatever the threshold.
func TestThresholdCostsNothingInSealedWindows(t *testing.T) {
	for _, sample := range waltest.Samples(t) {
		start := protocol.LSN(uint64(sample.Start) &^ (mib - 1)) // the sample's own pages, as one window
		content := sample.WAL[:min(len(sample.WAL), int(sample.Start.Next(mib)-sample.Start))]
		h := windowHeader(start)
		h.Start = sample.Start
		for _, codec := range []Codec{Model, Zstd, LZ4} {
			live := write(t, mustWriter(t, Options{Codec: None, ResetDistance: mib}), sample.Start, content)
			without, _, err := mustSealer(t, Options{Codec: codec}).Seal(nil, h, each(live))
			if err != nil {
				t.Fatal(err)
			}
			for _, threshold := range []int64{32, 256, 2 << 10, 8 << 10, 64 << 10} {
				with, stats, err := mustSealer(t, Options{Codec: codec, RecordThreshold: threshold}).Seal(nil, h, each(live))
				if err != nil || stats.Mismatches != 0 {
					t.Fatalf("%s, %s, threshold %d: %+v, %v", sample.Name, codec, threshold, stats, err)
				}
				if len(with) > len(without) {
					t.Errorf("%s, %s, threshold %d: %d bytes, %d without", sample.Name, codec, threshold, len(with), len(without))
				}
				if got, _ := unseal(t, with); !bytes.Equal(got, content) {
					t.Fatalf("%s, %s, threshold %d: the WAL came back changed", sample.Name, codec, threshold)
				}
			}
		}
	}
}

// Large records are coded alone where the stream does no better, and can be decoded so.
func TestRecordsAreCodedAloneWhereItPays(t *testing.T) {
	alone := 0
	r := waltest.Random(t)
	for _, s := range waltest.Samples(t) {
		for _, f := range encode(t, r, mustWriter(t, Options{Codec: Zstd, RecordThreshold: 1 << 10}), s.Start, s.WAL, 32<<10) {
			if f.Codec == link.CodecRaw || f.Starts || f.Continues {
				continue
			}
			alone++
			if got, err := mustReader(t, Options{}).Decode(nil, &f); err != nil || !bytes.Equal(got, s.WAL[f.Start-s.Start:][:f.RawLen]) {
				t.Fatalf("%s: the record at %s is not decodable alone: %v", s.Name, f.Start, err)
			}
		}
	}
	if alone == 0 {
		t.Error("no record was coded alone")
	}
}
