package wal_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"walproxy/protocol/wal"
)

var formats = []wal.Version{wal.PG13, wal.PG14, wal.PG15, wal.PG16, wal.PG17, wal.PG18}

// TestRecordRoundTrip: whatever fields a record has, they come back from its bytes, and the bytes from the fields.
func TestRecordRoundTrip(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var got wal.Record
	for i := range 6000 {
		v := formats[i%len(formats)]
		r := randomRecord(rng, v)
		rec := r.Append(nil, v)
		wal.SetCRC(rec)
		if err := wal.Decode(rec, wal.Format{Version: v}, &got); err != nil {
			t.Fatalf("%s: %v", v, err)
		}
		if !got.Canonical {
			t.Fatalf("%s: not canonical: % x", v, rec[:r.HeaderBytes])
		}
		if again := got.Append(nil, v); !bytes.Equal(again, rec) {
			t.Fatalf("%s: appended again differs", v)
		}
		if headers := got.AppendHeaders(nil, v); !bytes.Equal(headers, rec[:got.HeaderBytes]) {
			t.Fatalf("%s: headers are not a prefix", v)
		}
		equalRecords(t, v, r, &got)
	}
}

func equalRecords(t *testing.T, v wal.Version, want, got *wal.Record) {
	t.Helper()
	if got.XID != want.XID || got.Prev != want.Prev || got.Info != want.Info || got.Rmgr != want.Rmgr || got.TotalLength != want.TotalLength {
		t.Fatalf("%s: header %+v, want %+v", v, got.Header, want.Header)
	}
	if got.HasOrigin != want.HasOrigin || got.Origin != want.Origin || got.HasTopXID != want.HasTopXID || got.TopXID != want.TopXID ||
		!bytes.Equal(got.Main, want.Main) || len(got.Blocks) != len(want.Blocks) {
		t.Fatalf("%s: %+v, want %+v", v, got, want)
	}
	for i := range want.Blocks {
		w, g := want.Blocks[i], got.Blocks[i]
		if !bytes.Equal(g.Data, w.Data) || !bytes.Equal(g.Image, w.Image) || g.HasImage() != w.HasImage() {
			t.Fatalf("%s: block %d has other bytes", v, i)
		}
		if g.ID != w.ID || g.Flags != w.Flags || g.Rel != w.Rel || g.Number != w.Number || g.ImageFlags != w.ImageFlags ||
			g.HoleOffset != w.HoleOffset || g.HoleLength != w.HoleLength {
			t.Fatalf("%s: block %d is %+v, want %+v", v, i, g, w)
		}
	}
}

// body returns a record of version 15 whose bytes behind the header are parts.
func body(parts ...[]byte) []byte {
	return withCRC(make([]byte, wal.RecordHeaderBytes), func(rec []byte) []byte { return append(rec, bytes.Join(parts, nil)...) })
}

// rel is the end of a block header that names a relation.
func rel() []byte { return []byte{1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0} }

// image is the header of a block with an image, its payload not included.
func image(length, hole int, flags uint8, more ...byte) []byte {
	b := []byte{0, 0x10, 0, 0, byte(length), byte(length >> 8), byte(hole), byte(hole >> 8), flags}
	return append(append(b, more...), rel()...)
}

var (
	bytes8192 = make([]byte, 8192)
	main      = []byte{255, 1, 0}
)

var decodeCases = []struct {
	name    string
	version wal.Version
	rec     []byte
	rule    wal.Rule
	offset  int
}{
	{"empty record", 15, body(), wal.RuleNone, 0},
	{"main data", 15, body([]byte{255, 2, 7, 7}), wal.RuleNone, 0},
	{"image of a whole page", 15, body(image(8192, 0, 2), bytes8192), wal.RuleNone, 0},
	{"image with a hole", 15, body(image(8000, 24, 3), bytes8192[:8000]), wal.RuleNone, 0},
	{"compressed image", 15, body(image(100, 0, 4), bytes8192[:100]), wal.RuleNone, 0},
	{"compressed image with a hole", 15, body(image(100, 24, 5, 1, 0), bytes8192[:100]), wal.RuleNone, 0},
	{"compressed image with a hole before 15", 14, body(image(100, 24, 3, 1, 0), bytes8192[:100]), wal.RuleNone, 0},
	{"hole and apply before 15 are 5", 14, body(image(8000, 24, 5), bytes8192[:8000]), wal.RuleNone, 0},

	{"no header", 15, make([]byte, 23), wal.RuleLength, 0},
	{"length", 15, func() []byte { r := body(main); r[0]++; wal.SetCRC(r); return r }(), wal.RuleLength, 0},
	{"checksum", 15, func() []byte { r := body(main); r[20]++; return r }(), wal.RuleCRC, 20},
	{"bit of the body", 15, func() []byte { r := body(main); r[26] ^= 16; return r }(), wal.RuleCRC, 20},
	{"bit of the header", 15, func() []byte { r := body(main); r[16] ^= 16; return r }(), wal.RuleCRC, 20},
	{"resource manager", 15, withCRC(body(main), func(r []byte) []byte { r[17] = 22; return r }), wal.RuleRmgr, 17},
	{"custom resource manager before 15", 14, withCRC(body(main), func(r []byte) []byte { r[17] = 128; return r }), wal.RuleRmgr, 17},
	{"custom resource manager", 15, withCRC(body(main), func(r []byte) []byte { r[17] = 128; return r }), wal.RuleNone, 0},
	{"block id", 15, body([]byte{33, 0, 0, 0}, rel()), wal.RuleBlockID, 24},
	{"special id", 15, body([]byte{251, 0, 0, 0, 0}), wal.RuleBlockID, 24},
	{"top-level xid", 14, body([]byte{252, 1, 0, 0, 0}), wal.RuleNone, 0},
	{"top-level xid before 14", 13, body([]byte{252, 1, 0, 0, 0}), wal.RuleBlockID, 24},
	{"block twice", 15, body([]byte{1, 0, 0, 0}, rel(), []byte{1, 0, 0, 0}, rel()), wal.RuleBlockOrder, 44},
	{"block order", 15, body([]byte{1, 0, 0, 0}, rel(), []byte{0, 0, 0, 0}, rel()), wal.RuleBlockOrder, 44},
	{"data without flag", 15, body([]byte{0, 0, 1, 0}, rel(), []byte{9}), wal.RuleDataFlag, 24},
	{"flag without data", 15, body([]byte{0, 0x20, 0, 0}, rel()), wal.RuleDataFlag, 24},
	{"first block of the same relation", 15, body([]byte{0, 0x80, 0, 0, 4, 0, 0, 0}), wal.RuleSameRel, 24},
	{"block header cut", 15, body([]byte{0, 0, 0}), wal.RuleShort, 24},
	{"image header cut", 15, body([]byte{0, 0x10, 0, 0, 0, 0}), wal.RuleShort, 24},
	{"hole length cut", 15, body([]byte{0, 0x10, 0, 0, 100, 0, 24, 0, 5, 1}), wal.RuleShort, 24},
	{"relation cut", 15, body([]byte{0, 0, 0, 0}, rel()[:11]), wal.RuleShort, 24},
	{"block number cut", 15, body([]byte{0, 0, 0, 0}, rel()[:15]), wal.RuleShort, 24},
	{"origin cut", 15, body([]byte{253, 0}), wal.RuleShort, 24},
	{"top-level xid cut", 15, body([]byte{252, 0, 0, 0}), wal.RuleShort, 24},
	{"short main data cut", 15, body([]byte{255}), wal.RuleShort, 24},
	{"long main data cut", 15, body([]byte{254, 0, 0, 0}), wal.RuleShort, 24},
	{"main data missing", 15, body([]byte{255, 2, 0}), wal.RuleDataLength, 26},
	{"long main data missing", 15, body([]byte{254, 0xFF, 0xFF, 0xFF, 0xFF, 0}), wal.RuleDataLength, 24},
	{"payload left over", 15, body([]byte{255, 1, 0, 0}), wal.RuleDataLength, 26},
	{"data missing", 15, body([]byte{0, 0x20, 0xFF, 0xFF}, rel()), wal.RuleDataLength, 44},
	{"two compression methods", 15, body(image(100, 0, 4|8), bytes8192[:100]), wal.RuleCompression, 24},
	{"image above the block size", 15, body(image(8193, 0, 2), bytes8192, []byte{0}), wal.RuleImageLength, 24},
	{"compressed image of block size", 15, body(image(8192, 0, 4), bytes8192), wal.RuleImageLength, 24},
	{"whole image with a hole", 15, body(image(8192, 24, 1), bytes8192), wal.RuleImageLength, 24},
	{"short image without a hole", 15, body(image(8000, 0, 2), bytes8192[:8000]), wal.RuleHole, 24},
	{"hole at 0", 15, body(image(8000, 0, 1), bytes8192[:8000]), wal.RuleHole, 24},
	{"hole of 0 bytes", 15, body(image(100, 24, 5, 0, 0), bytes8192[:100]), wal.RuleHole, 24},
	{"hole over the end", 15, body(image(8000, 8192-191, 3), bytes8192[:8000]), wal.RuleHole, 24},
	{"hole offset without a hole", 15, body(image(8192, 24, 2), bytes8192), wal.RuleHole, 24},
	{"compressed, hole offset without a hole", 15, body(image(100, 24, 4), bytes8192[:100]), wal.RuleHole, 24},
}

// TestDecodeRules: each rule of the reader, broken once, and the place that the error names.
func TestDecodeRules(t *testing.T) {
	var r wal.Record
	for _, c := range decodeCases {
		err := wal.Decode(c.rec, wal.Format{Version: c.version}, &r)
		if c.rule == wal.RuleNone {
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			} else if !r.Canonical || !bytes.Equal(r.Append(nil, c.version), c.rec) {
				t.Errorf("%s: appended again differs", c.name)
			}
			continue
		}
		var broken *wal.RecordError
		if !errors.As(err, &broken) || !errors.Is(err, wal.ErrInvalid) {
			t.Errorf("%s: %v, want a RecordError", c.name, err)
		} else if broken.Rule != c.rule || broken.Offset != c.offset {
			t.Errorf("%s: rule %q at %d, want %q at %d", c.name, broken.Rule, broken.Offset, c.rule, c.offset)
		}
	}
}

// TestDecodeBlockSize: images are held against the block size of the server.
func TestDecodeBlockSize(t *testing.T) {
	var r wal.Record
	rec := body(image(32768, 0, 2), make([]byte, 32768))
	if err := wal.Decode(rec, wal.Format{Version: wal.PG15, BlockSize: 32768}, &r); err != nil {
		t.Error(err)
	}
	rec = body(image(4000, 24, 3), make([]byte, 4000))
	if err := wal.Decode(rec, wal.Format{Version: wal.PG15, BlockSize: 4096}, &r); err != nil || r.Blocks[0].HoleLength != 96 {
		t.Error(err, r.Blocks)
	}
}

func TestDecodeUnknownVersion(t *testing.T) {
	var unknown *wal.VersionError
	if err := wal.Decode(body(), wal.Format{Version: 12}, &wal.Record{}); !errors.As(err, &unknown) || errors.Is(err, wal.ErrInvalid) {
		t.Errorf("version 12: %v", err)
	}
}

// TestNotCanonical: what a reader accepts and no server writes decodes, and says that Append gives other bytes.
func TestNotCanonical(t *testing.T) {
	long := append([]byte{254, 5, 0, 0, 0}, 1, 2, 3, 4, 5)
	cases := map[string][]byte{
		"unused bytes":           withCRC(body(), func(r []byte) []byte { r[18] = 1; return r }),
		"long form, short data":  body(long),
		"main data of no bytes":  body([]byte{253, 0, 0}, []byte{255, 0}),
		"xid before origin":      body([]byte{252, 0, 0, 0, 0, 253, 0, 0}),
		"origin before block":    body([]byte{253, 0, 0, 0, 0, 0, 0}, rel()),
		"origin twice":           body([]byte{253, 0, 0, 253, 0, 0}),
		"long form, 255 bytes":   body([]byte{254, 255, 0, 0, 0}, make([]byte, 255)),
		"both unused, long form": withCRC(body(long), func(r []byte) []byte { r[19] = 8; return r }),
	}
	var r wal.Record
	for name, rec := range cases {
		if err := wal.Decode(rec, wal.Format{Version: wal.PG15}, &r); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if r.Canonical || bytes.Equal(r.Append(nil, wal.PG15), rec) {
			t.Errorf("%s: canonical", name)
		}
	}
}

func TestImageFlags(t *testing.T) {
	cases := []struct {
		version wal.Version
		flags   uint8
		method  wal.Compression
		hole    bool
		apply   bool
	}{
		{13, 0x04, wal.Uncompressed, false, true},
		{13, 0x05, wal.Uncompressed, true, true},
		{14, 0x07, wal.PGLZ, true, true},
		{14, 0x02, wal.PGLZ, false, false},
		{15, 0x02, wal.Uncompressed, false, true},
		{15, 0x03, wal.Uncompressed, true, true},
		{15, 0x05, wal.PGLZ, true, false},
		{16, 0x0A, wal.LZ4, false, true},
		{18, 0x13, wal.Zstd, true, true},
	}
	for _, c := range cases {
		b := wal.Block{ImageFlags: c.flags}
		if b.Compression(c.version) != c.method || b.HasHole() != c.hole || b.Apply(c.version) != c.apply {
			t.Errorf("%s, flags %#02x: %s, hole %v, apply %v", c.version, c.flags, b.Compression(c.version), b.HasHole(), b.Apply(c.version))
		}
	}
}

func TestHeader(t *testing.T) {
	want := wal.Header{TotalLength: 1, XID: 2, Prev: 3, Info: 4, Rmgr: 5, CRC: 6}
	if got, err := wal.ParseHeader(want.Append(nil)); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := wal.ParseHeader(make([]byte, 23)); !errors.Is(err, wal.ErrShort) {
		t.Error(err)
	}
}
