package recompress

import (
	"bytes"
	"testing"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/protocol/wal"
	"walproxy/protocol/wal/waltest"
)

// Whatever is left out, for whatever reason and however the WAL is cut: it travels in raw frames, the stream goes on behind
// them, and the same bytes come out.
func TestPolicies(t *testing.T) {
	r := waltest.Random(t)
	for _, o := range []Options{
		{Compress: CompressOff}, {Compress: CompressVacuum}, {Compress: CompressPhysical}, {Compress: CompressLogical},
		{MaxRecordBytes: 300}, {RecordThreshold: 1000}, {RecordThreshold: 32, Compress: CompressLogical},
		{Except: []Relations{{Tablespace: 1663}}}, {Except: []Relations{{Number: 16384}, {Number: 16390}}},
	} {
		for i, codec := range []Codec{Zstd, Model, LZ4} {
			o.Codec, o.ResetDistance = codec, mib
			w, reader := mustWriter(t, o), mustReader(t, o)
			for j, s := range waltest.Samples(t) {
				if (i+j)%3 != 0 && testing.Short() {
					continue
				}
				content := s.WAL[:min(len(s.WAL), 120_000)]
				frames := encode(t, r, w, s.Start, content, 30_000)
				checkTiling(t, w.distance, s.Start, content, frames)
				if got := decodeAll(t, reader, overWire(t, frames)); !bytes.Equal(got, content) {
					t.Fatalf("%+v, %s: the WAL came back changed", o, s.Name)
				}
				if o.Compress == CompressOff && w.Stats().RawFrames != w.Stats().Frames {
					t.Errorf("%s: something was compressed", s.Name)
				}
			}
			if w.Stats().Mismatches != 0 {
				t.Errorf("%+v: %+v", o, w.Stats())
			}
		}
	}
}

// A stream goes on behind raw frames and records coded alone: only the first frame starts one.
func TestStreamGoesOnBehindRawFrames(t *testing.T) {
	for _, s := range waltest.Samples(t) {
		w := mustWriter(t, Options{Codec: Model, MaxRecordBytes: 400, RecordThreshold: 200})
		starts, raw, alone := 0, 0, 0
		for _, f := range write(t, w, s.Start, s.WAL) {
			switch {
			case f.Starts:
				starts++
			case f.Codec == link.CodecRaw:
				raw++
			case !f.Continues:
				alone++
				if got, err := mustReader(t, Options{}).Decode(nil, &f); err != nil || !bytes.Equal(got, s.WAL[f.Start-s.Start:][:f.RawLen]) {
					t.Fatalf("%s: the record at %s is not decodable alone: %v", s.Name, f.Start, err)
				}
			}
		}
		if starts > 1 {
			t.Errorf("%s: %d streams were started; %d raw frames, %d records alone", s.Name, starts, raw, alone)
		}
	}
}

// makeCheckpoints makes every 97th record a CHECKPOINT_ONLINE, by name.
func makeCheckpoints(t *testing.T, s waltest.Sample) {
	walker := wal.NewWalker(s.Start, wal.Options{})
	if err := walker.Feed(bytes.Clone(s.WAL)); err != nil {
		t.Fatal(err)
	}
	n := 0
	for ev, ok := walker.Next(); ok; ev, ok = walker.Next() {
		if ev.Kind != wal.KindRecord || uint64(ev.Start)%8192 > 8000 {
			continue
		}
		if n++; n%97 == 0 {
			header := s.WAL[ev.Start-s.Start:]
			header[16], header[17] = 0x10, 0
		}
	}
}

// Records that recovery, or COMMIT PREPARED, comes for by LSN have a raw frame of their own, live and sealed.
func TestStandingRecordsStandAlone(t *testing.T) {
	found := 0
	for _, s := range waltest.Samples(t) {
		makeCheckpoints(t, s)
		at := map[protocol.LSN]int{}
		for _, f := range write(t, mustWriter(t, Options{Codec: Model}), s.Start, s.WAL) {
			if !f.Starts && !f.Continues {
				at[f.Start] = int(f.RawLen)
			}
		}
		walker := wal.NewWalker(s.Start, wal.Options{})
		if err := walker.Feed(s.WAL); err != nil {
			t.Fatal(err)
		}
		for ev, ok := walker.Next(); ok; ev, ok = walker.Next() {
			if ev.Kind != wal.KindRecord {
				continue
			}
			if h, err := wal.ParseHeader(ev.Data); err == nil && h.Class().StandsAlone() {
				found++
				if at[ev.Start] != int(ev.End-ev.Start) {
					t.Errorf("%s: no frame holds the record at %s alone", s.Name, ev.Start)
				}
			}
		}
	}
	if found == 0 {
		t.Error("no such record in the samples")
	}
}

func TestParsePolicyAndRelations(t *testing.T) {
	for name, want := range map[string]Policy{"all": CompressAll, "off": CompressOff, "vacuum": CompressVacuum, "physical": CompressPhysical, "logical": CompressLogical} {
		if p, err := ParsePolicy(name); err != nil || p != want || p.String() != name {
			t.Errorf("%s is %s, %v", name, p, err)
		}
	}
	if _, err := ParsePolicy("some"); err == nil {
		t.Error("policy some")
	}
	for text, want := range map[string]Relations{"1663/5/16384": {1663, 5, 16384}, "*/5/*": {0, 5, 0}} {
		if r, err := ParseRelations(text); err != nil || r != want || r.String() != text {
			t.Errorf("%s is %+v, %v", text, r, err)
		}
	}
	for _, text := range []string{"", "1/2", "1/2/3/4", "a/*/*", "0/1/2", "1/2/4294967296"} {
		if r, err := ParseRelations(text); err == nil {
			t.Errorf("%q is %+v", text, r)
		}
	}
	if _, err := NewWriter(Options{Compress: 9}); err == nil {
		t.Error("policy 9")
	}
}
