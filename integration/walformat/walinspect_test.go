package walformat

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"testing"

	"walproxy/integration/pgcluster"
	"walproxy/protocol"
	"walproxy/protocol/wal"
)

// compareRecords holds records against pg_get_wal_records_info.
func compareRecords(ctx context.Context, t *testing.T, c *pgcluster.Cluster, records []seen) {
	t.Helper()
	rows, err := c.Query(ctx, fmt.Sprintf("SELECT start_lsn, end_lsn, prev_lsn, xid, resource_manager, record_type, record_length,"+
		" main_data_length, fpi_length FROM pg_get_wal_records_info('%s', '%s')", records[0].start, records[len(records)-1].end))
	must(t, err)
	if len(rows) != len(records) {
		t.Errorf("%d records, pg_walinspect sees %d", len(records), len(rows))
	}
	v := wal.Version(c.Major)
	for i := range min(len(records), len(rows)) {
		s := &records[i]
		end := s.end
		if s.Class() == wal.ClassSwitch { // to the server it fills the segment
			end = (end - 1).Next(c.Options.SegmentBytes())
		}
		want := fmt.Sprint([]string{
			s.start.String(), end.String(), s.Prev.String(), fmt.Sprint(s.XID), s.Rmgr.String(), s.operation(v), fmt.Sprint(s.TotalLength),
			fmt.Sprint(len(s.Main)), fmt.Sprint(s.imageBytes()),
		})
		if got := fmt.Sprint(rows[i]); got != want {
			t.Fatalf("pg_walinspect sees %s\nwant %s", got, want)
		}
	}
	t.Logf("%d records are the same", len(rows))
}

// compareBlocks holds the blocks of records against pg_get_wal_block_info, the bytes of data and images included.
func compareBlocks(ctx context.Context, t *testing.T, c *pgcluster.Cluster, records []seen) {
	t.Helper()
	rows, err := c.Query(ctx, fmt.Sprintf("SELECT start_lsn, block_id, reltablespace, reldatabase, relfilenode, relforknumber, relblocknumber,"+
		" block_data_length, block_fpi_length, array_to_string(block_fpi_info, ' '), md5(block_data), md5(block_fpi_data)"+
		" FROM pg_get_wal_block_info('%s', '%s') ORDER BY start_lsn, block_id", records[0].start, records[len(records)-1].end))
	must(t, err)
	v, n := wal.Version(c.Major), 0
	for i := range records {
		for j := range records[i].Blocks {
			if n == len(rows) {
				t.Fatalf("pg_walinspect sees %d blocks, there are more", n)
			}
			b, row := &records[i].Blocks[j], rows[n]
			n++
			want := blockRow(records[i].start, b, v)
			if b.HasImage() && b.Compression(v) != wal.Uncompressed {
				want[11] = row[11] // the page; images are opened elsewhere
			}
			if got, want := fmt.Sprint(row), fmt.Sprint(want); got != want {
				t.Fatalf("pg_walinspect sees %s\nwant %s", got, want)
			}
		}
	}
	if n != len(rows) {
		t.Errorf("%d blocks, pg_walinspect sees %d", n, len(rows))
	}
	t.Logf("%d blocks are the same", n)
}

func blockRow(start protocol.LSN, b *wal.Block, v wal.Version) []string {
	row := []string{
		start.String(), fmt.Sprint(b.ID), fmt.Sprint(b.Rel.Tablespace), fmt.Sprint(b.Rel.Database), fmt.Sprint(b.Rel.Number),
		fmt.Sprint(b.Flags.Fork()), fmt.Sprint(b.Number), fmt.Sprint(len(b.Data)), fmt.Sprint(len(b.Image)), "", "", "",
	}
	if len(b.Data) > 0 {
		row[10] = sum(b.Data)
	}
	if !b.HasImage() {
		return row
	}
	if b.HasHole() {
		row[9] += "HAS_HOLE "
	}
	if b.Apply(v) {
		row[9] += "APPLY "
	}
	if b.Compression(v) == wal.PGLZ {
		row[9] += "COMPRESS_PGLZ "
	}
	row[9] = row[9][:max(0, len(row[9])-1)]
	if b.Compression(v) == wal.Uncompressed {
		row[11] = sum(restore(b))
	}
	return row
}

func sum(b []byte) string {
	s := md5.Sum(b)
	return hex.EncodeToString(s[:])
}
