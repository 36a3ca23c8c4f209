package walformat

import (
	"context"
	"fmt"
	"testing"
	"time"

	"walproxy/integration/pgcluster"
	"walproxy/protocol"
	"walproxy/protocol/wal"
)

// setup makes the tables and indexes of the workload: one index of every kind.
const setup = `
CREATE EXTENSION bloom;
CREATE EXTENSION pageinspect;
CREATE TABLE plain (id serial PRIMARY KEY, a int, b text) WITH (fillfactor = 70);
CREATE TABLE kinds (id int, t text, p point, a int[], h text);
CREATE INDEX ON kinds USING gin (a);
CREATE INDEX ON kinds USING gist (p);
CREATE INDEX ON kinds USING spgist (p);
CREATE INDEX ON kinds USING spgist (t);
CREATE INDEX ON kinds USING hash (h);
CREATE INDEX ON kinds USING brin (id) WITH (pages_per_range = 2);
CREATE INDEX ON kinds USING bloom (id);
CREATE TABLE toasted (id int, body text);
ALTER TABLE toasted ALTER body SET STORAGE external;
CREATE TABLE parent (id int PRIMARY KEY);
CREATE TABLE child (id int REFERENCES parent);
`

// work is what the compared WAL comes from. Each element is a session of its own, so that each is committed by itself.
var work = []string{
	`INSERT INTO plain(a, b) SELECT i, repeat('x', i % 100) FROM generate_series(1, 3000) i`,
	`INSERT INTO kinds SELECT i, md5(i::text), point(i % 71, i % 13), ARRAY[i % 50, i % 7], 'h' || i % 400 FROM generate_series(1, 3000) i`,
	`INSERT INTO toasted SELECT i, repeat(md5(i::text), 400) FROM generate_series(1, 20) i`,
	`UPDATE plain SET a = a + 1 WHERE id % 3 = 0`,
	`UPDATE plain SET b = 'longer than before ' || b WHERE id % 5 = 0`,
	`DELETE FROM plain WHERE id % 7 = 0`,
	`UPDATE kinds SET t = md5(t), p = point(id % 17, id % 19) WHERE id % 4 = 0`,
	`DELETE FROM kinds WHERE id % 3 = 0`,
	`CHECKPOINT`,
	`VACUUM plain`,
	`VACUUM kinds`,
	`UPDATE plain SET a = a + 1 WHERE id % 10 = 1`,
	`VACUUM FREEZE plain`,
	`DO $$ BEGIN FOR i IN 1..200 LOOP BEGIN INSERT INTO plain(a) VALUES (i); EXCEPTION WHEN OTHERS THEN NULL; END; END LOOP; END $$`,
	`BEGIN; INSERT INTO plain(a) VALUES (1); SAVEPOINT s; INSERT INTO plain(a) VALUES (2); SAVEPOINT t; DELETE FROM plain WHERE id = 5; ROLLBACK TO s; COMMIT`,
	`BEGIN; INSERT INTO plain(a) VALUES (3); ROLLBACK`,
	`BEGIN; INSERT INTO plain(a) VALUES (4); PREPARE TRANSACTION 'one'`,
	`BEGIN; INSERT INTO plain(a) VALUES (5); PREPARE TRANSACTION 'two'`,
	`COMMIT PREPARED 'one'`,
	`ROLLBACK PREPARED 'two'`,
	`INSERT INTO parent SELECT generate_series(1, 50); INSERT INTO child SELECT generate_series(1, 50)`,
	`BEGIN; SELECT count(*) FROM (SELECT * FROM parent FOR KEY SHARE) x; SAVEPOINT a; SELECT count(*) FROM (SELECT * FROM parent FOR UPDATE) x; COMMIT`,
	`SELECT pg_logical_emit_message(true, 'walformat', repeat('long message ', 9000))`,
	`SELECT pg_logical_emit_message(false, 'walformat', '')`,
	`SELECT pg_replication_origin_create('walformat'); SELECT pg_replication_origin_session_setup('walformat'); INSERT INTO plain(a) VALUES (6)`,
	`SELECT pg_create_restore_point('walformat')`,
	`COPY parent FROM PROGRAM 'seq 1000 2000'`,
	`CREATE INDEX ON kinds USING brin (t)`,
	`TRUNCATE toasted`,
	`CREATE DATABASE other`,
	`DROP DATABASE other`,
	`ALTER TABLE toasted ALTER id TYPE bigint`,
	`SET wal_compression = on; CHECKPOINT; UPDATE plain SET a = a + 1 WHERE id % 50 = 0`,
	`SET wal_compression = off; SET wal_consistency_checking = 'all'; UPDATE plain SET a = a + 1 WHERE id % 60 = 0`,
	`SELECT pg_switch_wal()`,
	`CREATE INDEX again ON plain (b, a)`,
	`CLUSTER plain USING plain_pkey`,
	`SELECT nextval('plain_id_seq') FROM generate_series(1, 100)`,
	`CREATE UNLOGGED TABLE unlogged (id serial PRIMARY KEY, a int[])`,
	`CREATE INDEX ON unlogged USING gin (a)`,
	`CREATE TABLESPACE elsewhere LOCATION ''`,
	`ALTER TABLE plain SET TABLESPACE elsewhere`,
	`REINDEX TABLE kinds`,
	`VACUUM FULL toasted`,
	`DROP TABLE child`,
}

// copied is the other way to copy a database, which 15-18 have.
const copied = `CREATE DATABASE copied STRATEGY file_copy`

var atOnce = make(chan struct{}, 2)

// eachMajor runs test for every major version of which there are binaries, two at a time.
func eachMajor(t *testing.T, test func(ctx context.Context, t *testing.T, major int)) {
	majors := pgcluster.Majors()
	if len(majors) == 0 {
		t.Fatal("no PostgreSQL servers; integration/install-postgres.sh gets them")
	}
	for _, major := range majors {
		t.Run(fmt.Sprint(major), func(t *testing.T) {
			t.Parallel()
			atOnce <- struct{}{}
			defer func() { <-atOnce }()
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
			defer cancel()
			test(ctx, t, major)
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// start returns a running cluster with small segments that can do everything the workload does.
func start(ctx context.Context, t *testing.T, major int, conf ...string) *pgcluster.Cluster {
	t.Helper()
	conf = append([]string{"wal_level = logical", "max_prepared_transactions = 5", "track_commit_timestamp = on", "allow_in_place_tablespaces = on"}, conf...)
	c, err := pgcluster.Create(ctx, pgcluster.Options{Major: major, SegmentMiB: 1, NoFsync: true, Conf: conf, Templates: templates})
	must(t, err)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	must(t, c.Start(ctx))
	return c
}

// span is a stretch of WAL of one timeline, from a record's start to a record's end.
type span struct {
	begin, end protocol.LSN
	bytes      []byte
}

// mixed runs the workload and returns the WAL that it wrote. The span begins at the start of a segment.
func mixed(ctx context.Context, t *testing.T, c *pgcluster.Cluster) span {
	t.Helper()
	must(t, c.Exec(ctx, setup))
	_, err := c.SwitchWAL(ctx)
	must(t, err)
	must(t, c.Exec(ctx, "CHECKPOINT"))
	begin, err := c.CurrentLSN(ctx)
	must(t, err)
	for _, sql := range work {
		must(t, c.Exec(ctx, sql))
	}
	if c.Major >= 15 {
		must(t, c.Exec(ctx, copied))
	}
	return read(ctx, t, c, 1, begin.Floor(c.Options.SegmentBytes()))
}

// read returns the WAL from begin to what is flushed now.
func read(ctx context.Context, t *testing.T, c *pgcluster.Cluster, tli protocol.Timeline, begin protocol.LSN) span {
	t.Helper()
	must(t, c.Exec(ctx, "CREATE TABLE IF NOT EXISTS last (); DROP TABLE last")) // the commit flushes
	end, err := c.FlushLSN(ctx)
	must(t, err)
	bytes, err := pgcluster.ReadWAL(c.WAL(), tli, begin, end)
	must(t, err)
	return span{begin: begin, end: end, bytes: bytes}
}

func options(c *pgcluster.Cluster) wal.Options {
	return wal.Options{Stream: wal.Stream{Version: wal.Version(c.Major), SegmentSize: uint32(c.Options.SegmentBytes())}, MaxRecordBytes: 16 << 20}
}
