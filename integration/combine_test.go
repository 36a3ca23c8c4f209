package integration

import (
	"bytes"
	"context"
	endian "encoding/binary"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"walproxy/integration/pgcluster"
)

const (
	incrementalPrefix = "INCREMENTAL."
	incrementalMagic  = 0xd3ae1f0d
	relationBlock     = 8192
	fullBackup        = "BASE_BACKUP (CHECKPOINT 'fast', WAIT false, MANIFEST 'yes')"
	incrementalBackup = "BASE_BACKUP (CHECKPOINT 'fast', WAIT false, MANIFEST 'yes', INCREMENTAL)"
)

// combine makes a full backup out of the archive of an incremental one and the full backup before it, which may be combined itself:
// there is no pg_combinebackup among the tools of version 15. Files are those of the increment; prior gives blocks only.
//
// Source: PostgreSQL src/bin/pg_combinebackup/pg_combinebackup.c.
func combine(prior map[string][]byte, increment []byte) (map[string][]byte, error) {
	combined, err := unpack(increment)
	if err != nil {
		return nil, err
	}
	combined["backup_label"] = withoutLines(combined["backup_label"], "INCREMENTAL FROM ")
	for _, name := range slices.Collect(maps.Keys(combined)) {
		base, incremental := strings.CutPrefix(path.Base(name), incrementalPrefix)
		if !incremental {
			continue
		}
		target := path.Join(path.Dir(name), base)
		older, found := prior[target]
		if !found {
			return nil, fmt.Errorf("%s has nothing to build on", name)
		}
		if combined[target], err = rebuilt(older, combined[name]); err != nil {
			return nil, fmt.Errorf("combine %s: %w", name, err)
		}
		delete(combined, name)
	}
	return combined, nil
}

// withoutLines returns text without the lines that begin with prefix.
func withoutLines(text []byte, prefix string) (kept []byte) {
	for line := range bytes.Lines(text) {
		if !bytes.HasPrefix(line, []byte(prefix)) {
			kept = append(kept, line...)
		}
	}
	return kept
}

// rebuilt returns a segment of a relation from its older content and an incremental file: magic, number of blocks, the shortest
// length in blocks that the segment had since, the blocks' numbers, zeros up to a whole block if any follow, and the blocks.
//
// Source: PostgreSQL src/bin/pg_combinebackup/reconstruct.c, make_incremental_rfile, find_reconstructed_block_length.
func rebuilt(older, increment []byte) ([]byte, error) {
	if len(increment) < 12 || endian.LittleEndian.Uint32(increment) != incrementalMagic {
		return nil, fmt.Errorf("%d bytes without the magic of an incremental file", len(increment))
	}
	count, length := int(endian.LittleEndian.Uint32(increment[4:])), int(endian.LittleEndian.Uint32(increment[8:]))
	header := 12 + 4*count
	if count > 0 {
		header = (header + relationBlock - 1) / relationBlock * relationBlock
	}
	if len(increment) != header+count*relationBlock {
		return nil, fmt.Errorf("%d bytes for %d blocks", len(increment), count)
	}
	number := func(i int) int { return int(endian.LittleEndian.Uint32(increment[12+4*i:])) }
	result := make([]byte, length*relationBlock)
	copy(result, older)
	for i := range count {
		at := number(i) * relationBlock
		if missing := at + relationBlock - len(result); missing > 0 {
			result = append(result, make([]byte, missing)...)
		}
		copy(result[at:at+relationBlock], increment[header+i*relationBlock:])
	}
	return result, nil
}

// sameFiles compares the relations and the transaction log of a backup with those of the server, which has written none since.
// Visibility maps are left out: a bit that a changed row clears is in no WAL summary, so the server's own incremental backups lack it.
func sameFiles(t *testing.T, server *pgcluster.Cluster, backup map[string][]byte) {
	t.Helper()
	compared, total := 0, 0
	for name, got := range backup {
		top, _, _ := strings.Cut(name, "/")
		if strings.HasSuffix(name, "/") || strings.HasSuffix(name, "_vm") || name == "global/pg_control" ||
			!slices.Contains([]string{"base", "global", "pg_xact", "pg_multixact"}, top) {
			continue
		}
		want, err := os.ReadFile(filepath.Join(server.DataDir, name))
		must(t, err)
		if !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes in the backup, others in the %d of the server", name, len(got), len(want))
		}
		compared, total = compared+1, total+len(got)
	}
	if t.Logf("%d files, %d bytes", compared, total); compared < 500 {
		t.Errorf("%d files to compare", compared)
	}
}

// incrementals takes two incremental backups after a full one, each through the nodes and with the manifest of the one before, while
// relations grow, shrink, come and go. Combined they are the server's files, and become a standby that follows.
func incrementals(ctx context.Context, t *testing.T, primary *pgcluster.Cluster, full *takenBackup, relayed *replication, conninfo string) {
	major := primary.Major
	files, err := unpack(full.base(major))
	must(t, err)
	manifest := full.manifest
	for i, sql := range []string{
		"DELETE FROM shrinks WHERE n > 500; UPDATE t SET text = 'changed' WHERE id % 5000 = 0; DROP TABLE goes",
		"INSERT INTO shrinks SELECT g, repeat('y', 500) FROM generate_series(1, 3000) g; CREATE TABLE comes AS TABLE shrinks",
	} {
		must(t, primary.Exec(ctx, sql))
		must(t, primary.Exec(ctx, "VACUUM shrinks"))
		if failure := relayed.upload(manifest); failure != nil {
			t.Fatalf("the manifest of backup %d: %v", i, failure)
		}
		increment := relayed.backUp(incrementalBackup, major)
		if increment.failure != nil || len(increment.base(major)) > len(full.base(major))/2 {
			t.Fatalf("backup %d: %d bytes, the full one had %d; failure %v", i+1, len(increment.base(major)), len(full.base(major)), increment.failure)
		}
		files, err = combine(files, increment.base(major))
		must(t, err)
		sameFiles(t, primary, files)
		manifest = increment.manifest
	}
	standby, err := primary.Restore("", func(dir string) error { return place(files, dir) })
	must(t, err)
	must(t, standby.MakeStandby(conninfo, ""))
	becomesStandby(ctx, t, primary, standby)
	for _, table := range []string{"shrinks", "comes"} {
		sql := "SELECT count(*), sum(hashtextextended(x::text, 0)) FROM " + table + " x"
		want, err := primary.Query(ctx, sql)
		must(t, err)
		got, err := standby.Query(ctx, sql)
		must(t, err)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("table %s: %v, on the primary %v", table, got, want)
		}
	}
}
