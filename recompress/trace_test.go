package recompress

import (
	"bytes"
	"reflect"
	"testing"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/protocol/wal/waltest"
)

// Frames and sealed windows are a function of the window alone, whatever the policy: a Writer or Sealer that has coded other WAL, the
// window before included, makes the same bytes as a new one. Which worker codes a window must not matter.
func TestWhatWasCodedBeforeLeavesNoTrace(t *testing.T) {
	r := waltest.Random(t)
	const boundary, size = protocol.LSN(9 * mib), 60_000
	// One run of rows, 1 MiB boundary in a record of the middle.
	b, _ := noiseInserts(r, boundary-24<<10&^8191, size, 5000)
	start := boundary - 24<<10&^8191
	next := b[boundary-start:]
	if le := restBytes(next); le == 0 {
		t.Fatal("no record goes over the boundary")
	}
	h := windowHeader(boundary)
	raw := link.Frame{Timeline: 1, Start: boundary, RawLen: uint32(len(next)), Payload: next}
	raw.SealRaw()
	for _, o := range []Options{{}, {MaxRecordBytes: 300}, {Compress: CompressVacuum}, {Except: []Relations{{Tablespace: 1663}}}, {RecordThreshold: 500}} {
		for _, codec := range []Codec{Zstd, Model, LZ4} {
			o.Codec, o.ResetDistance = codec, mib
			fresh, used := mustWriter(t, o), mustWriter(t, o)
			write(t, used, start, b[:boundary-start])
			want, got := write(t, fresh, boundary, next), write(t, used, boundary, next)
			if !reflect.DeepEqual(want, got) {
				t.Errorf("%+v: frames behind a window differ from those without", o)
			}
			write(t, used, start, makeWAL(r, 20_000)) // a jump back
			used.Reset()
			if got = write(t, used, boundary, next); !reflect.DeepEqual(want, got) {
				t.Errorf("%+v: frames behind a jump differ from those without", o)
			}
			sealed, _, err := mustSealer(t, o).Seal(nil, h, each([]link.Frame{raw}))
			if err != nil {
				t.Fatal(err)
			}
			s := mustSealer(t, o)
			first := windowHeader(start)
			first.Start = start
			if _, _, err = s.Seal(nil, first, each(write(t, mustWriter(t, Options{Codec: None, ResetDistance: mib}), start, b[:boundary-start]))); err != nil {
				t.Fatal(err)
			}
			again, _, err := s.Seal(nil, h, each([]link.Frame{raw}))
			if err != nil || !bytes.Equal(again, sealed) {
				t.Errorf("%+v: the window sealed behind another is another: %v", o, err)
			}
		}
	}
}

// restBytes returns how much of a record goes on on the page that b begins with.
func restBytes(b []byte) int { return int(b[16]) | int(b[17])<<8 }
