package walformat

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"walproxy/integration/pgcluster"
	"walproxy/protocol/wal"
)

var (
	dumpedRecord = regexp.MustCompile(`^rmgr: (\S+) +len \(rec/tot\): +(\d+)/ *(\d+), tx: +(\d+), lsn: (\S+), prev (\S+), desc: (.*)$`)
	dumpedBlock  = regexp.MustCompile(`^\tblkref #(\d+): rel (\d+)/(\d+)/(\d+) fork (\S+) blk (\d+)(.*)$`)
	forks        = []string{"main", "fsm", "vm", "init"}
)

// TestWaldump: pg_waldump of version 15 prints the same records, blocks and images, with every wal_compression that it knows.
func TestWaldump(t *testing.T) {
	install, err := pgcluster.Find(15)
	must(t, err)
	path, err := install.Tool("pg_waldump")
	must(t, err)
	for _, method := range []string{"off", "pglz", "lz4", "zstd"} {
		t.Run(method, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
			defer cancel()
			c := start(ctx, t, 15, "wal_compression = "+method)
			w := mixed(ctx, t, c)
			records := decode(t, w, options(c))
			name := map[string]string{"off": "none"}[method]
			if name == "" {
				name = method
			}
			counts(t, wal.PG15, records, "image "+name)
			out, err := pgcluster.RunAs(ctx, path, "-b", "-p", c.WALDir(), "-s", w.begin.String(), "-e", w.end.String())
			must(t, err)
			compareDump(t, records, out)
		})
	}
}

// compareDump makes the dump out of records and compares it line by line; descriptions are compared as far as the
// operation's name goes.
func compareDump(t *testing.T, records []seen, dump []byte) {
	t.Helper()
	lines, n := bufio.NewScanner(bytes.NewReader(dump)), 0
	lines.Buffer(nil, 1<<20)
	next := func() string {
		if !lines.Scan() {
			return ""
		}
		return lines.Text()
	}
	line := next()
	for i := range records {
		s := &records[i]
		m := dumpedRecord.FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("record %d at %s: pg_waldump prints %q", i, s.start, line)
		}
		got := fmt.Sprint(m[1:7])
		want := fmt.Sprint([]string{
			s.Rmgr.String(), fmt.Sprint(int(s.TotalLength) - s.imageBytes()), fmt.Sprint(s.TotalLength), fmt.Sprint(s.XID),
			dumpLSN(uint64(s.start)), dumpLSN(uint64(s.Prev)),
		})
		if got != want || !strings.HasPrefix(m[7]+" ", s.operation(wal.PG15)+" ") && m[7] != s.operation(wal.PG15) {
			t.Fatalf("pg_waldump prints %s %s\nwant %s %s", got, m[7], want, s.operation(wal.PG15))
		}
		line = next()
		for j := range s.Blocks {
			b := dumpedBlock.FindStringSubmatch(line)
			if b == nil {
				t.Fatalf("record at %s, block %d: pg_waldump prints %q", s.start, j, line)
			}
			if got, want := fmt.Sprint(b[1:]), blockLine(&s.Blocks[j]); got != want {
				t.Fatalf("record at %s: pg_waldump prints %s\nwant %s", s.start, got, want)
			}
			line = next()
			n++
		}
	}
	if line != "" {
		t.Fatalf("pg_waldump goes on with %q", line)
	}
	t.Logf("%d records and %d blocks are the same", len(records), n)
}

func dumpLSN(lsn uint64) string { return fmt.Sprintf("%X/%08X", lsn>>32, uint32(lsn)) }

func blockLine(b *wal.Block) string {
	image := ""
	if b.HasImage() {
		image = " (FPW"
		if !b.Apply(wal.PG15) {
			image += " for WAL verification"
		}
		image += fmt.Sprintf("); hole: offset: %d, length: %d", b.HoleOffset, b.HoleLength)
		if method := b.Compression(wal.PG15); method != wal.Uncompressed {
			image += fmt.Sprintf(", compression saved: %d, method: %s", 8192-int(b.HoleLength)-len(b.Image), method)
		}
	}
	return fmt.Sprint([]string{
		fmt.Sprint(b.ID), fmt.Sprint(b.Rel.Tablespace), fmt.Sprint(b.Rel.Database), fmt.Sprint(b.Rel.Number), forks[b.Flags.Fork()],
		fmt.Sprint(b.Number), image,
	})
}
