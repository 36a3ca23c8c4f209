package bench

import (
	"testing"

	"walproxy/protocol/wal"
	"walproxy/recompress"
)

func TestByKind(t *testing.T) {
	dir := t.TempDir()
	g := generate(3*mib, mib+8000)
	g.segments(t, dir)
	for _, codec := range []recompress.Codec{recompress.Zstd, recompress.Model} {
		report, err := Run(t.Context(), []string{dir, dir}, Options{Recompress: recompress.Options{Codec: codec}, ByKind: true})
		if err != nil {
			t.Fatal(err)
		}
		checkKinds(t, g, codec, report.Total)
	}
}

// checkKinds holds the kinds against what was generated twice. The model knows what it spends on what; the sum is all there is.
func checkKinds(t *testing.T, g *generated, codec recompress.Codec, total Result) {
	counts, sum := map[string]int64{}, int64(0)
	for _, k := range total.ByKind {
		counts[k.Kind] = k.Count
		if (k.EncodedBytes != nil) != (codec == recompress.Model) {
			t.Errorf("%s, %s: encoded bytes %v", codec, k.Kind, k.EncodedBytes)
		}
		if k.EncodedBytes != nil {
			sum += *k.EncodedBytes
			if k.Kind == "Heap/INSERT" && (*k.EncodedBytes < 1000 || *k.EncodedBytes > k.RawBytes) {
				t.Errorf("%s: %d bytes became %d", k.Kind, k.RawBytes, *k.EncodedBytes)
			}
		}
	}
	if codec == recompress.Model && sum != total.EncodedBytes {
		t.Errorf("kinds add up to %d bytes of %d", sum, total.EncodedBytes)
	}
	commits := 2 * int64(len(g.commits))
	if counts["Transaction/COMMIT"] != commits || counts["page image/heap"] != 2*int64(g.images) || counts["Heap/INSERT"] < 2*commits-4 {
		t.Errorf("%v, want %d commits, %d images", counts, commits, 2*g.images)
	}
}

// The encoded bytes by kind are those that the codec says, and what it does not account for.
func TestEncodedByKind(t *testing.T) {
	tally := newTally()
	tally.encoded, tally.costs = 1000, map[string]float64{"Heap/INSERT": 699.6, "page image/gin": 20}
	byName := map[string]*Kind{"Heap/INSERT": {Kind: "Heap/INSERT", RawBytes: 5000}, "page header": {Kind: "page header"}}
	addEncoded(byName, tally)
	for name, want := range map[string]int64{"Heap/INSERT": 700, "page image/gin": 20, "page header": 0, kindHeaders: 280} {
		if k := byName[name]; k == nil || k.EncodedBytes == nil || *k.EncodedBytes != want {
			t.Errorf("%s: %+v, want %d", name, k, want)
		}
	}
}

// Counting kinds allocates nothing per record.
func TestKindCounterAllocates(t *testing.T) {
	g := generate(3*mib, 200_000)
	c := kindCounter{counts: make(map[kindKey]count)}
	walker := wal.NewWalker(g.start, wal.Options{})
	got := testing.AllocsPerRun(10, func() {
		walker.Reset(g.start)
		if err := walker.Feed(g.bytes); err != nil {
			t.Fatal(err)
		}
		for ev, ok := walker.Next(); ok; ev, ok = walker.Next() {
			c.event(ev)
		}
	})
	if got > 1 {
		t.Errorf("%g allocations for %d records", got, 3*len(g.commits))
	}
}
