package walformat

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"strconv"
	"testing"

	"walproxy/integration/pgcluster"
	"walproxy/protocol/wal"
)

// TestMixedWorkload: all WAL of a mixed workload, on every version, is records with right checksums that can be appended again,
// without a gap, up to the byte that the server calls its end. pageinspect knows the page images, pg_walinspect (16-18) everything;
// version 15 is held against pg_waldump by TestWaldump.
func TestMixedWorkload(t *testing.T) {
	eachMajor(t, func(ctx context.Context, t *testing.T, major int) {
		c := start(ctx, t, major)
		w := mixed(ctx, t, c)
		v := wal.Version(major)
		records := decode(t, w, options(c))
		want := everyMajor
		if v >= wal.PG14 {
			want = append(want[:len(want):len(want)], "top-level xid", "Transaction/INVALIDATION")
		}
		if v >= wal.PG17 {
			want = append(want[:len(want):len(want)], "XLOG/CHECKPOINT_REDO", "Heap2/PRUNE_VACUUM_SCAN")
		}
		n := counts(t, v, records, want...)
		t.Logf("%d records in %d bytes: %v", len(records), len(w.bytes), n)
		if last := records[len(records)-1]; last.end != w.end {
			t.Errorf("last record ends at %s, the WAL at %s", last.end, w.end)
		}
		images(ctx, t, c, records)
		if major >= 16 {
			must(t, c.Exec(ctx, "CREATE EXTENSION pg_walinspect"))
			compareRecords(ctx, t, c, records)
			compareBlocks(ctx, t, c, records)
		}
	})
}

// images compares the page images that CREATE INDEX logged with the pages of the index as pageinspect reads them.
func images(ctx context.Context, t *testing.T, c *pgcluster.Cluster, records []seen) {
	t.Helper()
	v := wal.Version(c.Major)
	must(t, c.Exec(ctx, "CREATE INDEX compared ON kinds (h, t)"))
	logged := read(ctx, t, c, 1, records[len(records)-1].end.Floor(c.Options.SegmentBytes()))
	number, err := c.Value(ctx, "SELECT pg_relation_filenode('compared')")
	must(t, err)
	pages := map[uint32]*wal.Block{}
	indexed := decode(t, logged, options(c), wal.KindFragment)
	for i := range indexed {
		for j := range indexed[i].Blocks {
			b := &indexed[i].Blocks[j]
			if fmt.Sprint(b.Rel.Number) == number && b.HasImage() && b.Flags.Fork() == 0 && b.Compression(v) == wal.Uncompressed {
				pages[b.Number] = b
			}
		}
	}
	if len(pages) < 10 {
		t.Fatalf("%d images of the index, want more", len(pages))
	}
	rows, err := c.Query(ctx, "SELECT i, encode(get_raw_page('compared', i), 'hex')"+
		" FROM generate_series(0, pg_relation_size('compared') / 8192 - 1) s(n), LATERAL CAST(n AS int) i")
	must(t, err)
	for _, row := range rows {
		number, err := strconv.ParseUint(row[0], 10, 32)
		must(t, err)
		page, err := hex.DecodeString(row[1])
		must(t, err)
		b := pages[uint32(number)]
		if b == nil {
			t.Errorf("no image of page %d", number)
			continue
		}
		clear(page[b.HoleOffset : b.HoleOffset+b.HoleLength]) // the build leaves old bytes there
		if !bytes.Equal(restore(b)[10:], page[10:]) {         // not pd_lsn and pd_checksum
			t.Errorf("page %d of the index is not its image", number)
		}
	}
}

// restore returns the page of an image that is not compressed.
func restore(b *wal.Block) []byte {
	page := append([]byte(nil), b.Image[:min(int(b.HoleOffset), len(b.Image))]...)
	page = append(page, make([]byte, b.HoleLength)...)
	return append(page, b.Image[b.HoleOffset:]...)
}
