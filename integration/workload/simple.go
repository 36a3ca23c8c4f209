package workload

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

func prepareOLTP(ctx context.Context, l *load) error {
	_, err := l.cluster.Pgbench(ctx, "-i", "-q", "-s", strconv.Itoa(l.n(50)))
	return err
}

func runOLTP(ctx context.Context, l *load) error {
	clients := l.clients(8)
	return l.pgbench(ctx, clients, max(1, l.n(160_000)/clients))
}

// copyFile is what COPY reads; the server writes it itself.
func (l *load) copyPath() string { return filepath.Join(l.cluster.Dir, "rows.tsv") }

func prepareCopy(ctx context.Context, l *load) error {
	return l.exec(ctx,
		"CREATE TABLE copied (id int, branch int, balance int, filler char(84))",
		fmt.Sprintf("COPY (SELECT n, 1, 0, '' FROM generate_series(1, %d) n) TO '%s'", l.n(1_000_000), l.copyPath()))
}

func runCopy(ctx context.Context, l *load) error {
	return l.exec(ctx, fmt.Sprintf("COPY copied FROM '%s'", l.copyPath()))
}

func prepareIndex(ctx context.Context, l *load) error {
	return l.exec(ctx, fmt.Sprintf("SELECT setseed(0.5); CREATE TABLE doubles AS SELECT random() AS d FROM generate_series(1, %d)", l.n(3_000_000)))
}

func prepareWide(ctx context.Context, l *load) error {
	return l.exec(ctx,
		"CREATE TABLE wide (id int, one text, two text, filler text, at timestamptz, counter int)",
		fmt.Sprintf(`INSERT INTO wide SELECT n, md5(n::text), md5((7 * n)::text), repeat('x', 200), timestamptz '2024-01-01' + n * interval '1 s', 0
			FROM generate_series(1, %d) n`, l.n(200_000)),
		"ALTER TABLE wide ADD PRIMARY KEY (id)", "VACUUM ANALYZE wide")
}

func prepareInts(ctx context.Context, l *load) error {
	return l.exec(ctx,
		"CREATE TABLE ints (a int, b int, c int, d int, e int) WITH (fillfactor = 50)",
		fmt.Sprintf("INSERT INTO ints SELECT n, n %% 7, n %% 100, 0, 1 FROM generate_series(1, %d) n", l.n(2_000_000)),
		"VACUUM ints")
}

func prepareIntText(ctx context.Context, l *load) error {
	return l.exec(ctx,
		"CREATE TABLE inttext (a int, b text) WITH (fillfactor = 50)",
		fmt.Sprintf("SELECT setseed(0.25); INSERT INTO inttext SELECT n, left(md5(random()::text), 11) FROM generate_series(1, %d) n", l.n(2_000_000)),
		"VACUUM inttext")
}

// prepareKeyed makes a table with a primary key and the given columns, whose values are computed from n.
func prepareKeyed(columns, values string) func(context.Context, *load) error {
	return func(ctx context.Context, l *load) error {
		return l.exec(ctx,
			fmt.Sprintf("CREATE TABLE keyed (key int PRIMARY KEY, %s)", columns),
			fmt.Sprintf("INSERT INTO keyed SELECT n, %s FROM generate_series(1, %d) n", values, l.n(300_000)),
			"VACUUM keyed")
	}
}

// tiny returns one text for each of ten columns.
func tiny(format string) string {
	var parts []string
	for i := range 10 {
		parts = append(parts, fmt.Sprintf(format, i))
	}
	return strings.Join(parts, ", ")
}

func prepareTenTiny(ctx context.Context, l *load) error {
	return prepareKeyed(tiny("c%d int"), tiny("%d"))(ctx, l)
}

func runTenTiny(ctx context.Context, l *load) error {
	return l.exec(ctx, "UPDATE keyed SET "+tiny("c%d = key"))
}
