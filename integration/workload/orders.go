package workload

import (
	"context"
	"fmt"
)

// A warehouse load in the manner of decision-support benchmarks: orders, one to seven items each, all computed from numbers. What is
// loaded gets its keys and indexes afterwards, and is frozen.
const (
	orderTable = `CREATE TABLE orders (order_key int NOT NULL, customer_key int NOT NULL, status char(1) NOT NULL, total numeric(12, 2) NOT NULL,
		ordered date NOT NULL, priority char(15) NOT NULL, clerk char(15) NOT NULL, ship_priority int NOT NULL, remark varchar(79) NOT NULL)`
	itemTable = `CREATE TABLE item (order_key int NOT NULL, line int NOT NULL, part_key int NOT NULL, supplier_key int NOT NULL, quantity numeric(12, 2) NOT NULL,
		price numeric(12, 2) NOT NULL, discount numeric(12, 2) NOT NULL, tax numeric(12, 2) NOT NULL, returned char(1) NOT NULL, status char(1) NOT NULL,
		shipped date NOT NULL, promised date NOT NULL, received date NOT NULL, instruction char(25) NOT NULL, carrier char(10) NOT NULL, remark varchar(44) NOT NULL)`

	// Words are drawn by hash, so that a row depends on its key alone.
	drawFunction = `CREATE FUNCTION draw(key bigint, salt int, below int) RETURNS int LANGUAGE sql IMMUTABLE AS
		$$ SELECT ((hashint8extended(key, salt) & 2147483647) % below)::int $$`
	wordFunction = `CREATE FUNCTION words(key bigint, salt int, count int) RETURNS text LANGUAGE sql IMMUTABLE AS
		$$ SELECT string_agg((ARRAY['quick', 'pending', 'accounts', 'sleep', 'furiously', 'among', 'the', 'final', 'parcels', 'carefully', 'bold', 'requests',
			'near', 'even', 'shelves', 'wait', 'blue', 'express', 'again', 'never'])[1 + draw(key, salt + n, 20)], ' ') FROM generate_series(1, count) n $$`

	fillOrders = `INSERT INTO orders SELECT n * 4 - n %% 3, 1 + draw(n, 1, %[1]d), (ARRAY['F', 'O', 'P'])[1 + draw(n, 2, 3)], draw(n, 3, 40000000) / 100.0,
		date '2022-01-01' + draw(n, 4, 2400), (ARRAY['1-URGENT', '2-HIGH', '3-MEDIUM', '4-NONE', '5-LOW'])[1 + draw(n, 5, 5)],
		'Clerk#' || lpad(draw(n, 6, 1000)::text, 9, '0'), 0, left(words(n, 100, 4 + draw(n, 7, 7)), 79) FROM generate_series(1, %[1]d) n`
	fillItems = `INSERT INTO item SELECT order_key, line, 1 + draw(k, 1, 200000), 1 + draw(k, 2, 10000), 1 + draw(k, 3, 50), draw(k, 4, 10000000) / 100.0, draw(k, 5, 11) / 100.0,
		draw(k, 6, 9) / 100.0, (ARRAY['R', 'A', 'N'])[1 + draw(k, 7, 3)], (ARRAY['O', 'F'])[1 + draw(k, 8, 2)], ordered + 1 + draw(k, 9, 121), ordered + 30 + draw(k, 10, 61),
		ordered + 31 + draw(k, 11, 121), (ARRAY['IN PERSON', 'ON DELIVERY', 'NONE', 'TAKE BACK'])[1 + draw(k, 12, 4)],
		(ARRAY['AIR', 'MAIL', 'RAIL', 'SHIP', 'ROAD', 'ANY', 'COURIER'])[1 + draw(k, 13, 7)], left(words(k, 200, 2 + draw(k, 14, 5)), 44)
		FROM orders, generate_series(1, 1 + draw(order_key, 15, 7)) line, LATERAL (SELECT order_key::bigint * 8 + line AS k) key`
)

func prepareOrders(ctx context.Context, l *load) error {
	return l.exec(ctx, drawFunction, wordFunction, orderTable, itemTable)
}

func runOrders(ctx context.Context, l *load) error {
	return l.exec(ctx,
		fmt.Sprintf(fillOrders, l.n(150_000)), fillItems,
		"ALTER TABLE orders ADD PRIMARY KEY (order_key)",
		"ALTER TABLE item ADD PRIMARY KEY (order_key, line)",
		"CREATE INDEX ON orders (customer_key)", "CREATE INDEX ON orders (ordered)",
		"CREATE INDEX ON item (part_key, supplier_key)", "CREATE INDEX ON item (shipped)",
		"VACUUM FREEZE orders", "VACUUM FREEZE item")
}
