package model

import (
	"bytes"
	"testing"

	"walproxy/protocol"
	"walproxy/protocol/wal/waltest"
)

// FuzzDecode feeds damaged payloads of real WAL, and anything else: whatever comes back is an error or bytes of the right length.
func FuzzDecode(f *testing.F) {
	enc := NewEncoder(1)
	for i, s := range waltest.Samples(f) {
		enc.m.predictions = 1 + i%MaxPredictions
		wal := s.WAL[:min(len(s.WAL), 3*walPageBytes)]
		enc.Reset(1, s.Start)
		f.Add(enc.Append(nil, wal), uint64(s.Start), uint32(len(wal)))
	}
	f.Add([]byte{}, uint64(0), uint32(60000))
	dec := NewDecoder()
	f.Fuzz(func(t *testing.T, payload []byte, start uint64, rawBytes uint32) {
		rawBytes %= 1 << 16
		dec.Reset(1, protocol.LSN(start))
		out, err := dec.Decode(nil, payload, int(rawBytes))
		if err == nil && len(out) != int(rawBytes) || err != nil && len(out) != 0 {
			t.Fatalf("%d bytes, want %d, error %v", len(out), rawBytes, err)
		}
	})
}

// FuzzRoundTrip codes arbitrary bytes in two pieces.
func FuzzRoundTrip(f *testing.F) {
	for _, s := range waltest.Samples(f) {
		f.Add(s.WAL[:min(len(s.WAL), 3*walPageBytes)], uint64(s.Start), uint16(10000), false)
	}
	dec := NewDecoder()
	var pairs [MaxPredictions]pair
	for i := range pairs {
		pairs[i] = pair{NewEncoder(1 + i), dec}
	}
	f.Fuzz(func(t *testing.T, wal []byte, start uint64, cut uint16, sum bool) {
		wal = bytes.Clone(wal)
		if sum {
			fixChecksums(wal)
		}
		p := pairs[cut%MaxPredictions]
		p.reset(protocol.LSN(start))
		n := min(int(cut), len(wal))
		p.pass(t, wal[:n])
		p.pass(t, wal[n:])
	})
}

// fixChecksums makes whatever looks like a record on its page sound.
func fixChecksums(wal []byte) { mutate(wal, nil) }
