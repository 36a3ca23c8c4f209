package recompress

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
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

// mainRecord returns what is behind the header of a record without blocks.
func mainRecord(main []byte) []byte {
	return append(binary.LittleEndian.AppendUint32([]byte{254}, uint32(len(main))), main...)
}

// Large records are coded alone where the stream does no better, and can be decoded so: text of which zstd makes less than lz4.
func TestRecordsAreCodedAloneWhereItPays(t *testing.T) {
	r := waltest.Random(t)
	const start = protocol.LSN(0x3000000)
	var b []byte
	var prev protocol.LSN
	var ends []int
	var words []string
	for range 200 {
		words = append(words, hex.EncodeToString(noise(r, 1+r.IntN(6))))
	}
	for range 20 {
		var text []byte
		for len(text) < 5000 {
			text = append(text, words[r.IntN(len(words))]...)
		}
		b, prev = appendRecord(b, walPageBytes, start, prev, 700, 21, 0, mainRecord(text))
		ends = append(ends, len(b))
	}
	w, at, alone := mustWriter(t, Options{Codec: LZ4, RecordThreshold: 1 << 10}), 0, 0
	for _, end := range ends {
		for _, f := range write(t, w, start+protocol.LSN(at), b[at:end]) {
			if f.Codec == link.CodecRaw || f.Starts || f.Continues {
				continue
			}
			alone++
			if got, err := mustReader(t, Options{}).Decode(nil, &f); err != nil || !bytes.Equal(got, b[f.Start-start:][:f.RawLen]) {
				t.Fatalf("the record at %s is not decodable alone: %v", f.Start, err)
			}
		}
		at = end
	}
	if alone < len(ends)/2 {
		t.Errorf("%d of %d records were coded alone", alone, len(ends))
	}
}

// Live, too, a threshold costs next to nothing: records of which the stream makes less stay in it, whatever it makes of others.
func TestThresholdCostsLittleInLiveFrames(t *testing.T) {
	r := waltest.Random(t)
	const start = protocol.LSN(0x3000000)
	var b []byte
	var prev protocol.LSN
	var ends []int
	large := bytes.Repeat(hex.AppendEncode(nil, noise(r, 100)), 8)
	for range 60 {
		large[r.IntN(len(large))]++
		b, prev = appendRecord(b, walPageBytes, start, prev, 700, 21, 0, mainRecord(large))
		ends = append(ends, len(b))
		b, prev = appendRecord(b, walPageBytes, start, prev, 700, 21, 0x10, mainRecord(append(noise(r, 600), make([]byte, 300)...)))
		ends = append(ends, len(b))
	}
	for _, codec := range []Codec{Model, Zstd} {
		without, _ := wireBytes(t, mustWriter(t, Options{Codec: codec}), start, b, ends)
		with, _ := wireBytes(t, mustWriter(t, Options{Codec: codec, RecordThreshold: 1 << 10}), start, b, ends)
		if with > without+without/50 {
			t.Errorf("%s: %d bytes with a threshold, %d without", codec, with, without)
		}
	}
}
