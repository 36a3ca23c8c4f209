package bench

import (
	"bytes"
	"slices"
	"testing"

	"walproxy/protocol/wal"
	"walproxy/protocol/wal/waltest"
)

// The page images of real servers, by the resource manager whose record holds them, are of the kinds that they must be.
func TestPageKinds(t *testing.T) {
	want := map[wal.Rmgr][]pageKind{
		wal.RmgrHeap: {pageHeap, pageVisibilityMap}, wal.RmgrHeap2: {pageHeap, pageVisibilityMap}, wal.RmgrBtree: {pageBtree},
		wal.RmgrHash: {pageHash}, wal.RmgrGin: {pageGin}, wal.RmgrGist: {pageGist}, wal.RmgrSPGist: {pageSPGist},
		wal.RmgrBRIN: {pageBRIN}, wal.RmgrSequence: {pageSequence}, wal.RmgrGeneric: {pageBloom},
	}
	seen := map[string]int{}
	for v := wal.PG13; v <= wal.PG18; v++ {
		var sorter pageSorter
		eachCorpusRecord(t, v, func(r *wal.Record) {
			for i := range r.Blocks {
				b := &r.Blocks[i]
				if !b.HasImage() {
					continue
				}
				kind := sorter.kind(b, v)
				seen[pageNames[kind]]++
				kinds, ok := want[r.Rmgr]
				if kind == pageUnknown || ok && !slices.Contains(kinds, kind) {
					t.Errorf("%s: %s holds an image of a page of kind %s (%s)", v, RecordKind(v, r.Rmgr, r.Info), pageNames[kind], b.Compression(v))
				}
			}
		})
	}
	t.Log(seen)
	for _, kind := range []pageKind{pageHeap, pageBtree} {
		if seen[pageNames[kind]] == 0 {
			t.Errorf("no page of kind %s in the corpus", pageNames[kind])
		}
	}
	for name, page := range map[string][]byte{"zeros": make([]byte, 8192), "short": make([]byte, 10), "noise": bytes.Repeat([]byte{0xff}, 8192)} {
		if kind := kindOfPage(page, 0); kind != pageUnknown {
			t.Errorf("%s: kind %s", name, pageNames[kind])
		}
	}
}

// eachCorpusRecord calls do with every record of the corpus of version v, page by page, so that jumps do not matter.
func eachCorpusRecord(t *testing.T, v wal.Version, do func(*wal.Record)) {
	t.Helper()
	var walker *wal.Walker
	var r wal.Record
	for page := range slices.Chunk(waltest.Pages(t, v), wal.DefaultPageSize) {
		h, _, err := wal.ParsePageHeader(page)
		if err == nil && (walker == nil || walker.Position() != h.Addr) {
			walker = wal.NewWalker(h.Addr, wal.Options{Stream: wal.Stream{SegmentSize: mib}})
		}
		if err := walker.Feed(page); err != nil {
			t.Fatal(err)
		}
		for ev, ok := walker.Next(); ok; ev, ok = walker.Next() {
			if ev.Kind == wal.KindRecord && wal.Decode(ev.Data, wal.Format{Version: ev.Version}, &r) == nil {
				do(&r)
			}
		}
	}
}
