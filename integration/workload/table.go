package workload

import (
	"context"
	"fmt"
	"strings"
)

// workload is a way to write WAL. What prepare writes is not kept.
type workload struct {
	name         string
	about        string
	full         int      // MiB of WAL at full size, about
	conf         []string // lines for postgresql.conf
	prepare, run func(context.Context, *load) error
}

// workloads in the order in which reports list them.
var workloads = []workload{
	{name: "oltp", full: 180 /* of page images: it goes on with few */, about: "pgbench, page images on", prepare: prepareOLTP, run: runOLTP},
	{name: "oltp_nofpw", full: 76, about: "pgbench, page images off", conf: []string{"full_page_writes = off"}, prepare: prepareOLTP, run: runOLTP},
	{name: "copy", full: 102, about: "COPY into a table without indexes", prepare: prepareCopy, run: runCopy},
	{name: "index", full: 56, about: "CREATE INDEX on random doubles", prepare: prepareIndex, run: statement("CREATE INDEX ON doubles (d)")},
	{name: "wide", full: 160, about: "an integer changes in wide rows", prepare: prepareWide, run: statement("UPDATE wide SET counter = counter + 1")},
	{name: "ints", full: 145, about: "an integer changes in rows of integers", prepare: prepareInts, run: statement("UPDATE ints SET d = d + 1 WHERE a % 3 = 0")},
	{name: "inttext", full: 130, about: "an integer changes beside a random text", prepare: prepareIntText, run: statement("UPDATE inttext SET a = a + 1 WHERE a % 3 = 0")},
	{
		name: "two_short", full: 82, about: "one of two short texts changes",
		prepare: prepareKeyed("one text, two text", "'a' || n % 10, 'b' || n % 10"), run: statement("UPDATE keyed SET two = 'c' || key % 10"),
	},
	{
		name: "long", full: 630, about: "a short text changes before a long one",
		prepare: prepareKeyed("one text, two text", "'a' || n % 10, repeat(md5(n::text), 30)"), run: statement("UPDATE keyed SET one = 'z'"),
	},
	{name: "ten_tiny", full: 100, about: "ten integers change", prepare: prepareTenTiny, run: runTenTiny},
	{
		name: "delete", full: 24, about: "every other row goes, then VACUUM",
		prepare: prepareKeyed("one text, two text", "'a' || n % 10, 'b' || n % 10"), run: statement("DELETE FROM keyed WHERE key % 2 = 0", "VACUUM keyed"),
	},
	{name: "mixed", full: 340, about: "many types, an index of every kind, TOAST, VACUUM, checkpoints", prepare: prepareMixed, run: runMixed},
	{name: "orders", full: 168, about: "orders and their items are loaded, keyed, indexed and frozen", prepare: prepareOrders, run: runOrders},
	{name: "indexes", full: 55, about: "GIN, hash, GiST, SP-GiST and BRIN indexes are built and grow, sequences, VACUUM", conf: []string{"wal_log_hints = on"}, prepare: prepareIndexes, run: runIndexes},
}

// Names returns the names of all workloads.
func Names() []string {
	var names []string
	for i := range workloads {
		names = append(names, workloads[i].name)
	}
	return names
}

// About says in a few words what a workload does, "" if there is none of that name.
func About(name string) string {
	if w, err := find(name); err == nil {
		return w.about
	}
	return ""
}

// ScaleFor returns the scale at which a workload writes some more than n bytes of WAL; 1 for one that there is not.
func ScaleFor(name string, n int64) float64 {
	w, err := find(name)
	if err != nil {
		return 1
	}
	const more = 1.2 // the figures are rough, and the last segment is not full
	return more * float64(n) / float64(int64(w.full)<<20)
}

func find(name string) (*workload, error) {
	for i := range workloads {
		if workloads[i].name == name {
			return &workloads[i], nil
		}
	}
	return nil, fmt.Errorf("unknown workload %q: want one of %s", name, strings.Join(Names(), ", "))
}

// statement is a run of SQL statements.
func statement(sql ...string) func(context.Context, *load) error {
	return func(ctx context.Context, l *load) error { return l.exec(ctx, sql...) }
}
