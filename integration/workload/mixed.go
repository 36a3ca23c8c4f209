package workload

import (
	"context"
	"os"
	"path/filepath"
)

// The shop of workload mixed: events with an index of every kind, accounts that change in place, and bodies that are too large for a page.
var mixedTables = []string{
	"CREATE EXTENSION IF NOT EXISTS btree_gin",
	`CREATE TABLE event (id bigserial PRIMARY KEY, tenant int, happened timestamptz DEFAULT clock_timestamp(), what text,
		amount numeric(12, 2), labels text[], details jsonb, reference uuid DEFAULT gen_random_uuid(), remark text)`,
	"CREATE INDEX ON event (tenant, happened)",
	"CREATE INDEX ON event USING gin (details jsonb_path_ops)",
	"CREATE INDEX ON event USING hash (reference)",
	"CREATE INDEX ON event USING brin (happened)",
	"CREATE TABLE account (id int PRIMARY KEY, holder text, balance bigint, changed timestamptz, flags int) WITH (fillfactor = 80)",
	"INSERT INTO account SELECT n, 'holder ' || n, 0, now(), 0 FROM generate_series(1, 100000) n",
	"CREATE TABLE body (id serial PRIMARY KEY, content bytea)",
	"ALTER TABLE body ALTER content SET STORAGE external",
	"VACUUM ANALYZE",
}

// eventScript is a pgbench transaction: an event happens and an account changes.
const eventScript = `\set account random(1, 100000)
\set tenant random(1, 200)
\set change random(-5000, 5000)
BEGIN;
INSERT INTO event (tenant, what, amount, labels, details, remark) SELECT :tenant,
  (ARRAY['viewed', 'clicked', 'ordered', 'returned'])[1 + (random() * 3)::int], (random() * 900)::numeric(12, 2),
  CASE WHEN random() < 0.3 THEN ARRAY['new', 't' || :tenant] END,
  jsonb_build_object('article', (random() * 5000)::int, 'page', '/shelf/' || (random() * 300)::int, 'good', random() < 0.9, 'session', md5(random()::text)),
  CASE WHEN random() < 0.2 THEN repeat(md5(random()::text), 4) END;
UPDATE account SET balance = balance + :change, changed = clock_timestamp(), flags = flags # 1 WHERE id = :account;
COMMIT;
`

// bodyScript stores a body of 4000 random bytes and forgets the oldest events.
const bodyScript = `INSERT INTO body (content) SELECT decode(string_agg(md5(random()::text), ''), 'hex') FROM generate_series(1, 250);
DELETE FROM event WHERE id IN (SELECT id FROM event ORDER BY id LIMIT 20);
`

func prepareMixed(ctx context.Context, l *load) error { return l.exec(ctx, mixedTables...) }

func runMixed(ctx context.Context, l *load) error {
	dir, err := os.MkdirTemp("", "walproxy-workload-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	events, bodies := filepath.Join(dir, "event.sql"), filepath.Join(dir, "body.sql")
	if err := os.WriteFile(events, []byte(eventScript), 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(bodies, []byte(bodyScript), 0o644); err != nil {
		return err
	}
	clients := l.clients(6)
	for range 3 {
		if err := l.pgbench(ctx, clients, max(1, l.n(36_000)/clients), "-f", events+"@20", "-f", bodies+"@1"); err != nil {
			return err
		}
		if err := l.exec(ctx, "VACUUM event", "VACUUM account", "CHECKPOINT"); err != nil {
			return err
		}
	}
	return nil
}
