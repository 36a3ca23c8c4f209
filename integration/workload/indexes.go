package workload

import (
	"context"
	"fmt"
)

// Indexes of every kind but the usual one. A row's values are computed from its number; the sequences are beside the point of the
// rows, but a server that uses them writes their pages too.
var documentTable = []string{
	`CREATE FUNCTION draw(key bigint, salt int, below int) RETURNS int LANGUAGE sql IMMUTABLE AS
		$$ SELECT ((hashint8extended(key, salt) & 2147483647) % below)::int $$`,
	`CREATE TABLE document (id int, labels int[], body tsvector, place point, span int4range, code uuid, name text, happened timestamptz, size int) WITH (fillfactor = 90)`,
	"CREATE SEQUENCE ticket CACHE 1", "CREATE SEQUENCE receipt CACHE 20",
}

const fillDocuments = `INSERT INTO document SELECT n, ARRAY(SELECT draw(n, 10 + k, 30 * k * k) FROM generate_series(1, 1 + draw(n, 1, 8)) k),
	(SELECT to_tsvector('simple', string_agg('word' || draw(n, 30 + k, 4) * draw(n, 60 + k, 800), ' ')) FROM generate_series(1, 12) k),
	point(draw(n, 2, 1000000) / 1000.0, draw(n, 3, 1000000) / 1000.0), int4range(draw(n, 4, 1000000), 1000001 + draw(n, 5, 500)),
	md5(n::text)::uuid, 'name/' || draw(n, 6, 100) || '/' || draw(n, 7, 10000), timestamptz '2024-01-01' + n * interval '7 s', draw(n, 8, 100000)
	FROM generate_series(%d, %d) n`

// Indexes are built on half of the rows and grow with the rest.
var documentIndexes = []string{
	"CREATE INDEX ON document USING gin (labels)",
	"CREATE INDEX ON document USING gin (body) WITH (fastupdate = off)",
	"CREATE INDEX ON document USING hash (code)",
	"CREATE INDEX ON document USING hash (size)",
	"CREATE INDEX ON document USING gist (place)",
	"CREATE INDEX ON document USING gist (span)",
	"CREATE INDEX ON document USING spgist (place)",
	"CREATE INDEX ON document USING spgist (name)",
	"CREATE INDEX ON document USING brin (happened) WITH (pages_per_range = 1)",
	"CREATE INDEX ON document USING brin (size, id) WITH (pages_per_range = 4)",
}

func prepareIndexes(ctx context.Context, l *load) error {
	return l.exec(ctx, append(documentTable, fmt.Sprintf(fillDocuments, 1, l.n(20_000)))...)
}

func runIndexes(ctx context.Context, l *load) error {
	if err := l.exec(ctx, documentIndexes...); err != nil {
		return err
	}
	for round := range 3 {
		from := l.n(20_000) + round*l.n(800)
		if err := l.exec(ctx,
			"CHECKPOINT",
			fmt.Sprintf(fillDocuments, from+1, from+l.n(800)),
			fmt.Sprintf("SELECT nextval('ticket'), nextval('receipt') FROM generate_series(1, %d)", l.n(1_000)),
			fmt.Sprintf("DELETE FROM document WHERE id %% 41 = %d", round),
			fmt.Sprintf("UPDATE document SET size = size + 1 WHERE id %% 97 = %d", round),
			"VACUUM document",
		); err != nil {
			return err
		}
	}
	return nil
}
